"""Reports errors in a command line, such as an unknown option, in one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import typer

NUMBER = "<int>"
"""The placeholder in help texts for a whole number."""

_UsageError: Any = typer.BadParameter.__mro__[1]
"""The base class of typer's usage errors, which is not public."""


@contextlib.contextmanager
def in_one_line() -> Iterator[None]:
    """Turn typer's usage errors, which span several lines, into a ``ConfigError``."""
    try:
        yield
    except _UsageError as error:
        from raysim.core.errors import ConfigError

        message = error.format_message().rstrip(".")
        command = error.ctx.command_path if error.ctx is not None else "raysim"
        raise ConfigError(f"{message}; see '{command} --help'") from None


def whole_number(text: str) -> int:
    """Parse an option's whole number. The error contains the value, which some typer versions omit."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"'{text}' is not a whole number") from None
