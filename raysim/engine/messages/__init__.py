"""The messages between server and hospitals in a round."""
