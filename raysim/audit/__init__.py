"""What audits learn from what leaves hospitals."""
