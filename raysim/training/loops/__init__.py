"""Loops that numba compiles; see :mod:`raysim.training.machine_code`.

Nothing here is imported but to compile, other than the sizes in ``winograd.points`` and ``winograd.table``.
"""
