"""The steps between a hospital's update and the server: each has a half on either side."""
