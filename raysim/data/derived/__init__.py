"""Federations made of another one: for attacks and audits, and of some of its rows."""
