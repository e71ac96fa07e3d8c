"""The kernel that trains any ``nn.Module``, by autograd."""
