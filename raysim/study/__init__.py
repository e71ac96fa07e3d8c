"""Which measure predicts how data was divided.

It also counts the clusters that are chosen. Nothing is trained here.
"""
