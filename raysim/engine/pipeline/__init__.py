"""The steps between hospitals' updates and the strategy. Each step has a hospital's side and a server's side."""
