"""Mistakes in a command line itself, such as an unknown option: one line that names what is wrong and where help is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import typer

NUMBER = "<int>"
"""How help shows the value of an option that :func:`whole_number` reads."""

_UsageError: Any = typer.BadParameter.__mro__[1]
"""The class of all mistakes of usage, of which typer makes only this subclass public."""


@contextlib.contextmanager
def in_one_line() -> Iterator[None]:
    """Turn typer's usage errors, which take several lines, into a ``ConfigError``."""
    try:
        yield
    except _UsageError as error:
        from raysim.core.errors import ConfigError

        said = error.format_message().rstrip(".")
        command = error.ctx.command_path if error.ctx is not None else "raysim"
        raise ConfigError(f"{said}; see '{command} --help'") from None


def whole_number(text: str) -> int:
    """The number of an option. typer's own error does not name the value in all its versions."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"'{text}' is not a whole number") from None
