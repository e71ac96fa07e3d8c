"""The power of a federation's comparisons, computed from the sizes of its hospitals and from assumptions."""
