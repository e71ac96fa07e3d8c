"""What travels between server and hospitals in a round."""
