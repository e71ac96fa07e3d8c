"""Local training: models, losses and fast kernels.

Each family of models has a file. A kernel trains one kind of model on one kind of device.
"""
