"""The power of a federation's comparisons, computed only from the sizes of its hospitals."""
