"""Federated regressions: exact Newton steps over sums, one-shot methods, hospital effects."""
