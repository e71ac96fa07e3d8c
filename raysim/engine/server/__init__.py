"""The server of a run: its rounds, its messages, and what it makes of the answers."""
