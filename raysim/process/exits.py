"""Tells a call of ``sys.exit`` in a plug-in from the end of the process that hosts it."""

from __future__ import annotations


def of_plugin(error: SystemExit) -> bool:
    """Whether it is a plain one. Ends that raysim or Ray give a process are of a kind of their own, or carry a note."""
    return type(error) is SystemExit and not vars(error)


def said(error: SystemExit) -> str:
    """The call as text, for a message."""
    return f"called sys.exit({'' if error.code is None else repr(error.code)})"
