"""What is odd in a table before anything is trained: features that give the label away, hospitals that differ."""
