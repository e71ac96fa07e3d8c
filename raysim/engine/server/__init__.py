"""The server of a run: its rounds, its messages, and how it processes answers."""
