"""Studies of measures that predict label skew.

A study also counts the clusters that a strategy chooses. No federated model is trained.
"""
