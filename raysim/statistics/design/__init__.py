"""What a federation could demonstrate, from the sizes of its hospitals alone."""
