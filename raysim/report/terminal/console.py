"""The console of the command line."""

from __future__ import annotations

from rich.console import Console

from raysim.core import pipes


class Lasting(Console):
    """A console whose reader may go, as of a pipe to ``head``: what comes after that is dropped, and nothing ends."""

    def on_broken_pipe(self) -> None:
        """Go on in silence."""
        self.quiet = True
        pipes.silence_unread()
