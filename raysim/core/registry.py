"""The registry, which finds strategies, selections, models and data sources by name or by import path.

Names come from the entry-point groups ``raysim.strategies``, ``raysim.selections``, ``raysim.models`` and
``raysim.sources``, to which other packages can add.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib.metadata import EntryPoint
from typing import Any

from raysim.core.errors import ConfigError, nearest
from raysim.core.importing import by_path
from raysim.core.installed import is_own, loaded, loaded_if_sound, registered


@cache
def entries(kind: str) -> dict[str, EntryPoint]:
    """Return the registered entry points of ``kind``, such as ``strategies`` or ``commands``, by name.

    If another package registers a name that raysim itself registers, raysim's entry point is used.
    """
    by_name = {entry.name: entry for entry in reversed(registered(kind))}
    return dict(sorted(by_name.items()))


ABBREVIATIONS = frozenset(("cnn", "lstm", "mlp"))
"""The parts of models' registered names that are written in capitals in reports."""


def of_learner(learner: str) -> str:
    """Return the readable name of a model, given its name in tables. Names that are not registered are unchanged.

    >>> of_learner("logistic_regression"), of_learner("fashion_cnn"), of_learner("small_net"), of_learner("net")
    ('logistic regression', 'fashion CNN', 'small_net', 'net')
    """
    if learner not in entries("models"):
        return learner
    return " ".join(word.upper() if word in ABBREVIATIONS else word for word in learner.split("_"))


def load(kind: str, name: str, field: str) -> Any:
    """Return the object registered as ``name`` for ``kind``, such as ``strategies``. Case, ``-`` and ``_`` do not
    matter.

    Errors name the configuration ``field`` that contains the name.
    """
    registered = entries(kind)
    spelled_alike = [entry for entry in registered.values() if _plain(entry.name) == _plain(name)]
    for entry in sorted(spelled_alike, key=lambda entry: (entry.name != name, not is_own(entry))):
        return loaded(entry, field)
    raise ConfigError(f"{field}: '{name}' is not a known name; {nearest(name, registered)}")


def load_class(path: str, field: str) -> Any:
    """Return the class at import path ``package.module.Class``; the working directory is searched last.

    Errors name the configuration ``field`` that contains the path.
    """
    try:
        return by_path(path)
    except ValueError as error:
        raise ConfigError(f"{field}: {error}") from None


def name_of(kind: str, cls: type) -> str | None:
    """Return the first name under which the class is registered for ``kind``, or None if it is not registered."""
    places = {name: (entry.module, entry.attr) for name, entry in entries(kind).items()}
    for name, place in places.items():
        if place == (cls.__module__, cls.__qualname__):
            return name
    for name, (_, attribute) in places.items():
        if attribute == cls.__qualname__ and loaded_if_sound(entries(kind)[name]) is cls:  # its module imports it
            return name
    return None


@lru_cache(maxsize=1024)
def _plain(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.lower())
