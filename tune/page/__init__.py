"""The page of a sweep: the recommendation with its costs, and every trial in linked figures."""
