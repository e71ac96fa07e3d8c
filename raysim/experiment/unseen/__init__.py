"""Hospitals that are left out in turn: who, what is measured of them, and what it comes to for a further one."""
