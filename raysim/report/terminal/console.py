"""The console of the command line."""

from __future__ import annotations

from rich.console import Console

from raysim.core import pipes


class Lasting(Console):
    """A console whose reader may disconnect, such as a pipe to ``head``; later output is dropped."""

    def on_broken_pipe(self) -> None:
        """Continue silently."""
        self.quiet = True
        pipes.silence_unread()
