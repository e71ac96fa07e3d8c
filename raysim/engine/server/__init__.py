"""The server of a run: its rounds, its messages, and its processing of answers."""
