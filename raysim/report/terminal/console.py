"""The console of the command line."""

from __future__ import annotations

from rich.console import Console

from raysim.core import pipes


class Lasting(Console):
    """A console that drops further output once its reader, such as ``head`` in a pipe, has ended."""

    def on_broken_pipe(self) -> None:
        """Drop all further output without an error."""
        self.quiet = True
        pipes.silence_unread()
