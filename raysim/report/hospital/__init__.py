"""What a page shows of each hospital."""
