"""What dishonest or mistaken hospitals do: to their rows, to their updates, and together."""
