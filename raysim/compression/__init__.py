"""Compression of updates: what is sent in place of a vector, and in how many bits."""
