"""Studies of measures that predict label skew.

A study divides a data set among clients with many degrees of label skew, and finds the measure of label distributions
that predicts the degree best. It can also count the clusters that a strategy chooses. No federated model is trained.
"""
