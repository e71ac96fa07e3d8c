"""Says what a planned comparison could demonstrate."""
