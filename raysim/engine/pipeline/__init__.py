"""The steps between hospitals' updates and the strategy. Each step has a hospital's half and a server's half."""
