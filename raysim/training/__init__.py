"""Local training: models, losses and fast kernels."""
