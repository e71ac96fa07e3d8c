"""Federations derived from another federation or some of its rows, for attacks and audits."""
