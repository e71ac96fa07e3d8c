"""Estimates of many hospitals together: their mean, how far they truly spread, and each drawn towards the mean."""
