"""Metrics of a model at each hospital, and equity over hospitals."""
