"""Federated regressions: exact Newton steps from sums, one-shot methods, hospital effects."""
