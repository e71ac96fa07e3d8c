"""The conclusions of a comparison, and their evidence."""
