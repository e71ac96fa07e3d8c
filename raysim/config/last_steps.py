"""Reads ``strategy.personalization``: one step that each hospital takes after the last round, or a list of steps.

A step without a name is fine-tuning; ``recalibrate`` must be the last step.
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
    """The settings of each step after the last round; None for a step that is not configured."""

    fine_tuning: Any
    recalibration: Mapping[str, Any] | None


def split(value: Any, where: str) -> Steps:
    """Return the steps in ``value``, the value of ``strategy.personalization``.

    Raises ``ConfigError`` for unknown or repeated steps, and for steps in the wrong order.
    """
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
            raise ConfigError(
                f"{at}: comes after {RECALIBRATE}, which must be the last step; move {RECALIBRATE} to the end"
            )
        if name == RECALIBRATE:
            recalibration = keys
        elif name is not None:
            raise ConfigError(
                f"{at}.name: '{name}' is not a step after the last round; use {RECALIBRATE}, or remove name "
                "to fine-tune"
            )
        elif fine_tuning is not None:
            raise ConfigError(f"{at}: fine-tunes a second time; use one step with all epochs")
        else:
            fine_tuning = keys
    return Steps(fine_tuning, recalibration)


def recalibrated(section: StrategySection, where: str) -> StrategySection:
    """Return the strategy's section with recalibration as its last step, added if it is missing."""
    options = section.options()
    steps = split(options.pop(KEY, None), f"{where}.{KEY}")
    recalibration = {} if steps.recalibration is None else steps.recalibration
    return section.having(options | written(steps.fine_tuning, recalibration))


def judged_before(section: StrategySection, where: str) -> StrategySection:
    """Return the strategy's section without recalibration, for runs that are evaluated on validation rows.

    Recalibration is fitted on validation rows, so its evaluation on them would be too optimistic.
    """
    options = section.options()
    steps = split(options.pop(KEY, None), f"{where}.{KEY}")
    return section if steps.recalibration is None else section.having(options | written(steps.fine_tuning, None))


def takes_fine_tuning(cls: Any) -> bool:
    """Return whether a strategy does its own fine-tuning, so that its class has a field ``personalization``."""
    return dataclasses.is_dataclass(cls) and any(field.name == KEY for field in dataclasses.fields(cls))


def written(fine_tuning: Any, recalibration: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the key ``personalization`` of a configuration with these steps; an empty mapping if both are None."""
    steps = [] if fine_tuning is None else [fine_tuning]
    if recalibration is not None:
        steps.append({"name": RECALIBRATE, **recalibration})
    return {} if not steps else {KEY: steps[0] if len(steps) == 1 else steps}
