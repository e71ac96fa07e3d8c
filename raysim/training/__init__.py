"""What a hospital minimises, computed fast.

Models by family, kernels by model and device.
"""
