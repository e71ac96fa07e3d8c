"""A finished run put to use: rows that it has not seen are scored, and its models leave raysim."""
