"""Errors that a user can correct. Each message is one line that names the field, the value and how to correct it."""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable

WORD, LINE = 250, 2000
"""The largest number of characters of a word, and of a message, that is printed whole. The middle of a longer one is
left out.
"""


class RaysimError(Exception):
    """A bad configuration, bad data or a bad environment.

    The command line prints the message and ends with exit code 2. The message is :func:`shortened`, because it may
    contain text from other people's files.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(shortened(str(message)))


class ConfigError(RaysimError):
    """A configuration field has a value that cannot be used."""


class TableGiven(ConfigError):
    """A table was given where a YAML file is needed. ``lines`` are the lines of an example of a YAML file, for this
    table if possible.
    """

    def __init__(self, message: str, lines: str) -> None:
        super().__init__(message)
        self.lines = lines


class DataError(RaysimError):
    """The data that the configuration names is missing, malformed or cannot be federated."""


class ResourceError(RaysimError):
    """The machine or cluster cannot provide what the configuration requests."""


class StrategyError(RaysimError):
    """A strategy returned a value that cannot be used. The message names the strategy, the round and the field."""


class HangingError(ResourceError):
    """A library call does not return; only ending the process stops it."""


class TrainingDiverged(RaysimError):
    """A model's parameters at a hospital are no longer finite numbers."""


class PrivacyBroken(RaysimError):
    """An audit found that a run reveals more about its data than its privacy guarantee allows."""


class HospitalFailed(RaysimError):
    """An error in the user's code during training, evaluation or a reply at a hospital."""


SYSTEM = {
    errno.ENAMETOOLONG: "name a shorter path",
    errno.ENOSPC: "free space on the disk",
    errno.EDQUOT: "free space on the disk",
    errno.EACCES: "name a path that this user may use",
    errno.EROFS: "name a path that can be written",
}
"""By error number, what a user can do about an error of the file system."""


def of_the_machine(error: BaseException) -> ResourceError | None:
    """Convert a lack of memory, or an error of the file system in :data:`SYSTEM`, to a ``ResourceError``.

    Return None for any other error.
    """
    if isinstance(error, MemoryError):
        return ResourceError(f"memory: {error or 'there is not enough'}; use less data or a smaller model")
    if isinstance(error, OSError) and error.errno in SYSTEM:
        return ResourceError(f"{error.filename or 'a file'}: {error.strerror}; {SYSTEM[error.errno]}")
    return None


def shortened(text: str) -> str:
    """Return ``text`` without the middle of words and messages that are too long. Unprintable characters are escaped.

    >>> shortened("a" * 300 + ": unknown key")
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…(221 characters)…aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: unknown key'
    """
    # Escape sequences would be obeyed by the terminal.
    text = "".join(c if c.isprintable() or c in " \t\n" else repr(c)[1:-1] for c in text)
    text = re.sub(rf"\S{{{WORD + 1},}}", lambda word: _without_middle(word[0], 80), text)
    return _without_middle(text, LINE) if len(text) > LINE else text


def _without_middle(text: str, length: int) -> str:
    half = length // 2
    return f"{text[:half]}…({len(text) - 2 * half} characters)…{text[-half:]}"


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return advice for an unknown name: the closest known name, or all known names if none is similar.

    >>> nearest("fedporx", ["fedavg", "fedprox"])
    "did you mean 'fedprox'?"
    >>> nearest("zzz", ["fedavg", "fedprox"])
    'known: fedavg, fedprox'
    """
    names = sorted(choices)
    name = name[:WORD]
    close = difflib.get_close_matches(name.lower(), names, n=1) or [n for n in names if n.startswith(name.lower())]
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(names)}"
