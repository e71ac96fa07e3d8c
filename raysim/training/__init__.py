"""Local training: models, losses, fast kernels.

There is a file for each family of models, and a kernel for each kind of model and device.
"""
