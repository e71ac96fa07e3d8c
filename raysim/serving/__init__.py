"""A finished run put to use: new rows are scored.

Its models leave raysim too.
"""
