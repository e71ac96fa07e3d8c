"""Federations derived from another federation, for attacks and audits, or from some of its rows."""
