"""Studies of measures that predict label skew.

A study divides a data set among clients with many degrees of label skew, and finds the measure that predicts the degree
best. No federated model is trained.
"""
