"""Reads ``strategy.personalization``: what hospitals do after the last round, one step or a list of steps in order.

A step without a name fine-tunes; ``recalibrate`` is the last one. Strategies that fine-tune by themselves have a field
of this name, which takes the step without a name; the engine does it for all others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from raysim.config.sections.plugin_sections import StrategySection
from raysim.core.errors import ConfigError

KEY = "personalization"
RECALIBRATE = "recalibrate"


class Steps(NamedTuple):
    """The keys of each step; None: it is not asked for."""

    fine_tuning: Any
    recalibration: Mapping[str, Any] | None


def split(value: Any, where: str) -> Steps:
    """The steps that ``value``, found at ``where``, asks for. Raises ``ConfigError`` for others and another order."""
    fine_tuning, recalibration = None, None
    several = isinstance(value, list | tuple)
    for i, step in enumerate(value if several else [] if value is None else [value]):
        at = f"{where}.{i}" if several else where
        keys: Any = {"name": step} if isinstance(step, str) else step
        name = None
        if isinstance(keys, Mapping):
            keys = dict(keys)
            name = keys.pop("name", None)
        if recalibration is not None:
            raise ConfigError(f"{at}: stands after {RECALIBRATE}, which is the last step; put it before, or drop it")
        if name == RECALIBRATE:
            recalibration = keys
        elif name is not None:
            raise ConfigError(
                f"{at}.name: '{name}' is no step after the last round; use {RECALIBRATE}, or fine-tune without a name"
            )
        elif fine_tuning is not None:
            raise ConfigError(f"{at}: fine-tunes a second time; give one step all epochs")
        else:
            fine_tuning = keys
    return Steps(fine_tuning, recalibration)


def recalibrated(section: StrategySection, where: str) -> StrategySection:
    """The section with recalibration as its last step, where it has none."""
    options = section.options()
    steps = split(options.pop(KEY, None), f"{where}.{KEY}")
    recalibration = {} if steps.recalibration is None else steps.recalibration
    return section.having(options | written(steps.fine_tuning, recalibration))


def judged_before(section: StrategySection, where: str) -> StrategySection:
    """The section without recalibration, for runs that are judged on the rows on which it would be fitted."""
    options = section.options()
    steps = split(options.pop(KEY, None), f"{where}.{KEY}")
    return section if steps.recalibration is None else section.having(options | written(steps.fine_tuning, None))


def takes_fine_tuning(cls: Any) -> bool:
    """Whether a strategy's class fine-tunes by itself, as its field says."""
    return dataclasses.is_dataclass(cls) and any(field.name == KEY for field in dataclasses.fields(cls))


def written(fine_tuning: Any, recalibration: Mapping[str, Any] | None) -> dict[str, Any]:
    """The key that asks for these steps, as it stands in a configuration; empty for none."""
    steps = [] if fine_tuning is None else [fine_tuning]
    if recalibration is not None:
        steps.append({"name": RECALIBRATE, **recalibration})
    return {} if not steps else {KEY: steps[0] if len(steps) == 1 else steps}
