"""Local training: models, losses, optimisers, and the kernels that run them fast.

There is a file for each family of models, and a kernel for each kind of model and device.
"""
