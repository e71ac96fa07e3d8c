"""The terminal output of commands: tables, and progress."""
