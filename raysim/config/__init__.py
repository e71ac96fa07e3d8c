"""Configuration: its keys, and how they are read and checked."""
