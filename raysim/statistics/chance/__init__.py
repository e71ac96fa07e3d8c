"""Differences between equal hospitals or groups of patients by chance alone, and true differences beyond chance."""
