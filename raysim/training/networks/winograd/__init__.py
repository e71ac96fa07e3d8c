"""Blocks of convolutions with ReLU, batch norm and max pooling, computed by :mod:`raysim.training.loops.winograd`."""
