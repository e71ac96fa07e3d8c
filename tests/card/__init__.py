"""What is computed on a card, on one that torch has or on one that is pretended."""
