"""Local training: models, losses and fast kernels.

A kernel trains one kind of model on one kind of device.
"""
