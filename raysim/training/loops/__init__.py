"""Loops that numba compiles. Nothing here is imported but to compile: see :mod:`raysim.training.machine_code`."""
