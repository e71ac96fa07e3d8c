"""What a federation could demonstrate, computed from the sizes of its hospitals alone."""
