"""Fuzzing: what a stranger may hand to raysim ends well or in one line, within a time and a memory bound.

``python -m tests.fuzz --cases 2000`` draws cases by hypothesis; a derandomised sample is part of the suite.
"""
