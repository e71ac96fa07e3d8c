"""Studies of which measure best predicts the label skew of a partition.

A study also counts the clusters that a strategy chooses. Nothing is trained.
"""
