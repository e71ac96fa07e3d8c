"""Client programs: what hospitals do with a call, and how the server makes calls and reads the answers."""
