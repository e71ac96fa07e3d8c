"""The kinds of messages that hospitals release. Their names are the valid words in ``declared_public`` and
``statistics``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from raysim.config.sections.privacy import METRICS, PREPROCESSING, SIZE, UPDATES, WITHOUT_NOISE, PrivacySection, plain
from raysim.core import registry
from raysim.core.errors import ConfigError, nearest
from raysim.core.installed import loaded_if_sound
from raysim.strategies.base import Program, Statistic
from raysim.traffic.ledger import RECALIBRATION

if TYPE_CHECKING:
    from raysim.engine.job import Job

OF_THE_ENGINE = (*UPDATES, *WITHOUT_NOISE, SIZE, METRICS, PREPROCESSING, RECALIBRATION)
"""The kinds of messages that the engine itself releases, with any strategy."""


def check_kinds(section: PrivacySection, job: Job) -> None:
    """Raise ``ConfigError`` if ``section`` names a kind of message that neither the engine nor any known strategy or
    client selection sends.
    """
    known = set(OF_THE_ENGINE)
    for key, names in (("declared_public", section.declared_public), ("statistics", tuple(section.statistics))):
        for name in names:
            if plain(name) not in map(plain, known):
                known |= _of_plugins(job)  # only now: it imports every strategy
            if plain(name) not in map(plain, known):
                raise ConfigError(
                    f"privacy.{key}: '{name}' is not a kind of message that hospitals release; {nearest(name, known)}"
                )


def _of_plugins(job: Job) -> set[str]:
    """Return the kinds of messages that registered strategies and selections, and the job's own, send."""
    modules = [type(job.strategy).__module__, type(job.selection).__module__]
    for group in ("strategies", "selections"):
        for entry in registry.entries(group).values():
            if loaded_if_sound(entry) is not None:
                modules.append(entry.module)
    package = "raysim.strategies."
    modules += [name for name in sys.modules if name.startswith(package)]
    return _named(modules)


def _named(modules: Iterable[str]) -> set[str]:
    """Return the names of statistics and of users' client programs in ``modules``; each name is a kind of message."""
    loaded = [sys.modules[name] for name in dict.fromkeys(modules) if name in sys.modules]
    classes = [each for module in loaded for each in vars(module).values() if isinstance(each, type)]
    programs = [each for each in classes if issubclass(each, Program)]
    releasing = [each for each in programs if issubclass(each, Statistic) or not each.__module__.startswith("raysim.")]
    return {each.name for each in releasing if isinstance(each.name, str) and each.name}
