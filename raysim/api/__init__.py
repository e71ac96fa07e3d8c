"""The Python API: runs, comparisons, results."""
