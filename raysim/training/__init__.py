"""Local training: models, losses and fast kernels.

Each family of models has a file, and each kind of model and device has a kernel.
"""
