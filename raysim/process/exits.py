"""Distinguishes a call of ``sys.exit`` in a plug-in from the end of the process that hosts it."""

from __future__ import annotations


def of_plugin(error: SystemExit) -> bool:
    """Return whether the error comes from a plug-in. Exits by raysim or Ray have a subclass or carry a note."""
    return type(error) is SystemExit and not vars(error)


def said(error: SystemExit) -> str:
    """Return the call as text, for a message."""
    return f"called sys.exit({'' if error.code is None else repr(error.code)})"
