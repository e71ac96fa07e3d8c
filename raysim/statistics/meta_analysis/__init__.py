"""Estimates over many hospitals: their mean, their true spread, and shrunken estimates of each."""
