"""Configuration: its keys, read and checked."""
