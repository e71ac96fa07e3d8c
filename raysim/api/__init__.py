"""What Python calls: runs, comparisons, results."""
