"""The kernel of any ``nn.Module``, by autograd."""
