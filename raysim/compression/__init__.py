"""Compression of the updates that hospitals send, and the bits of each message."""
