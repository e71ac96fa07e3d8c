"""What is sent for an update, and in how many bits."""
