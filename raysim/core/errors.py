"""Errors that a user can mend: one line that names the field, the value and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RaysimError(Exception):
    """Bad configuration, data or environment. The command line prints the message and ends with exit code 2."""


class ConfigError(RaysimError):
    """A configuration field holds a value that cannot be used."""


class DataError(RaysimError):
    """The data that the configuration names is missing, malformed or cannot be federated."""


class ResourceError(RaysimError):
    """The configuration asks for more than the machine or cluster has."""


class StrategyError(RaysimError):
    """A strategy returned something that cannot be used; the message names it, the round and the field."""


class HangingError(ResourceError):
    """A library does not come back, and no exception reaches it: what it has begun ends with this process alone."""


class TrainingDiverged(RaysimError):
    """A hospital's parameters stopped being finite numbers."""


class HospitalFailed(RaysimError):
    """A hospital raised an error of its own while it trained, evaluated or answered."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A remedy for an unknown name: the closest known one, or all of them.

    >>> nearest("fedporx", ["fedavg", "fedprox"])
    "did you mean 'fedprox'?"
    >>> nearest("zzz", ["fedavg", "fedprox"])
    'known: fedavg, fedprox'
    """
    names = sorted(known)
    close = difflib.get_close_matches(name.lower(), names, n=1) or [n for n in names if n.startswith(name.lower())]
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(names)}"
