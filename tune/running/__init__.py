"""Trials while they run: who starts them, the process that plays them, and who watches them."""
