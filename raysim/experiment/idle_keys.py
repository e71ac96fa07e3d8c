"""Finds keys of a configuration that have no effect on any strategy that a command runs.

A key without effect is a configuration error, unless its value is the default. In a comparison, a key has an effect if
any strategy uses it. A ``selection`` without effect is only reported, because configurations are often reused for
another strategy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic_core import to_jsonable_python

from raysim.config import plugins
from raysim.config.schema import Config
from raysim.config.sections.compression import CompressionSection
from raysim.config.sections.secure import SecureSection
from raysim.config.sections.system import RoundsSection, SystemSection
from raysim.config.sections.training import TrainingSection
from raysim.core.errors import ConfigError
from raysim.core.words import as_yaml, listed
from raysim.strategies.base import Strategy
from raysim.training.models import takes_raw

Uses = Callable[[Config, Strategy], bool]
"""A function of a run's complete configuration and its strategy. It returns whether the run uses a certain key."""

OF_FINE_TUNING = {"batch_size", "optimizer", "weight_decay"}
"""The keys of ``training`` that fine-tuning after the last round uses."""

SELECTION = "selection"

OF_POOLED = {"batch_size": 0, "local_epochs": 1}
"""For each key of ``training``, a value that is allowed under ``privacy.mode: pooled`` even if the key has no
effect."""


def check(runs: Iterable[tuple[Config, Strategy]]) -> None:
    """Raise ``ConfigError`` for the first key that is not at its default and has no effect in any run.

    The key ``selection`` is not checked. ``runs`` has the complete configuration and the strategy of each run.
    """
    runs = list(runs)
    for key, uses in USED.items():
        given = [value for config, _ in runs if _is_set(key, value := _at(config, key))]
        if given and key != SELECTION and not any(uses(*run) for run in runs):
            raise ConfigError(
                f"{key}: {_as_text(given[0])} has no effect with {_names(runs)}{_under(runs, key)}; remove the key, or "
                f"set its default {_as_text(_default(key))}"
            )
    _check_settings(runs)


def _check_settings(runs: Sequence[tuple[Config, Strategy]]) -> None:
    """Raise ``ConfigError`` for a strategy's setting that has no effect in any run because it needs another setting."""
    for label in dict.fromkeys(plugins.label(config.strategy) for config, _ in runs):
        labelled = [run for run in runs if plugins.label(run[0].strategy) == label]
        strategy = labelled[0][1]
        for name, by in _unused(*labelled[0]).items():
            if all(name in _unused(*run) for run in labelled):
                value, default = getattr(strategy, name), _defaults_of(strategy)[name]
                raise ConfigError(
                    f"strategy.{name}: {_as_text(value)} has no effect with {label} without {by}; remove the key, or "
                    f"set its default {_as_text(default)}"
                )


def _unused(config: Config, strategy: Strategy) -> Mapping[str, str]:
    """Return a strategy's settings that have no effect and are not at their defaults, each with the setting that would
    give it an effect."""
    unused, defaults = strategy.unused_settings(), _defaults_of(strategy)
    if _pools(config):
        unused = {**unused, **dict.fromkeys(strategy.unused_when_pooled() & defaults.keys(), "privacy.mode: local")}
    return {name: by for name, by in sorted(unused.items()) if getattr(strategy, name) != defaults[name]}


def _defaults_of(strategy: Any) -> Mapping[str, Any]:
    fields = dataclasses.fields(strategy)
    # A class that was sent to another process may have a copy of dataclasses.MISSING.
    made = {each.name: each.default_factory() for each in fields if callable(each.default_factory)}
    return {each.name: each.default for each in fields} | made


def _pools(config: Config) -> bool:
    return config.privacy is not None and config.privacy.effective_mode == "pooled"


def remarks(runs: Iterable[tuple[Config, Strategy]]) -> list[str]:
    """Return remarks on ``selection`` and ``privacy.audit`` if they have no effect."""
    runs, found = list(runs), []
    without = [run for run in runs if _is_set(SELECTION, run[0].selection) and not run[1].uses_selection()]
    if without:
        named = _names(without)
        found += [f"selection: {_as_text(without[0][0].selection)} is ignored: with {named} all hospitals take part"]
    if any(config.privacy is not None and config.privacy.audit is not None for config, _ in runs):
        found += ["privacy.audit: not used here; raysim audit uses it"]
    return found


def _names(runs: Sequence[tuple[Config, Strategy]]) -> str:
    return listed(list(dict.fromkeys(plugins.label(config.strategy) for config, _ in runs)), 3)


def check_comparison(config: Config) -> None:
    """Raise ``ConfigError`` for a comparison that sets ``model`` and also lists ``models``."""
    section, default = config.model, plugins.completed(Config(), ("model",)).model
    if config.models and section != default:
        raise ConfigError(
            f"model.name: '{section.name or section.class_path}' has no effect, because models lists the models to "
            "compare; remove model, or add it to models"
        )


def check_run(config: Config) -> list[str]:
    """Return a remark on the keys that ``raysim compare`` uses and ``raysim run`` does not; empty if there are none.

    Raises ``ConfigError`` for ``models``, ``recalibrate`` and ``tune``.
    """
    for key in ("models", "recalibrate", "tune"):
        if getattr(config, key) != getattr(Config(), key):
            raise ConfigError(
                f"{key}: has no effect in raysim run, which trains one model as configured; use raysim compare, or "
                "remove the key"
            )
    left_out = [key for key in ("strategies", "seeds", "reference") if key in config.model_fields_set]
    if not left_out:
        return []
    return [
        f"{listed(left_out)}: not used by raysim run, which trains '{plugins.label(config.strategy)}' with seed "
        f"{config.seed}; raysim compare uses them"
    ]


def without(config: Config, strategy: Strategy) -> Config:
    """Return the configuration in which the keys that the run does not use are reset to their defaults."""
    for key, uses in USED.items():
        if _is_set(key, _at(config, key)) and not uses(config, strategy):
            config = _with(config, key.split("."), _default(key))
    if idle := _unused(config, strategy):
        remaining = {name: value for name, value in config.strategy.options().items() if name not in idle}
        config = config.replaced(strategy=config.strategy.having(remaining))
    return config


def _trains_with(name: str) -> Uses:
    def uses(config: Config, strategy: Strategy) -> bool:
        if name == "stop":
            return strategy.stops_early() or strategy.stops_alone()
        unused = strategy.unused_training()
        if _pools(config):
            unused |= strategy.unused_when_pooled()
            if name in unused and getattr(config.training, name) == OF_POOLED.get(name):
                return True
        return name not in unused or (name in OF_FINE_TUNING and _fine_tunes(config))

    return uses


def _under(runs: Sequence[tuple[Config, Strategy]], key: str) -> str:
    """Return the end of an error message: the privacy mode in which ``key`` has no effect, or an empty text."""
    pooled = all(_pools(config) for config, _ in runs)
    return " under privacy.mode: pooled" if pooled and key.startswith("training.") else ""


def _fine_tunes(config: Config) -> bool:
    unseen = config.evaluation.unseen
    joins = unseen is not None and unseen.joining == "fine_tune"
    return joins or plugins.build_last_steps(config.strategy).fine_tuning is not None


def _prepares(config: Config, strategy: Strategy) -> bool:
    """Return whether features are standardised and encoded before training."""
    return not takes_raw(plugins.model_class(config.model))


def _has_rounds(config: Config, strategy: Strategy) -> bool:
    return strategy.asynchrony() is None


def _as_text(value: Any) -> str:
    name = getattr(value, "name", None) or getattr(value, "class_path", None)
    return as_yaml(to_jsonable_python(value if name is None else name))


def _may_wait(config: Config, strategy: Strategy) -> bool:
    """Return whether a round can have fewer hospitals than configured."""
    system = config.system
    if system is None or strategy.asynchrony() is not None:
        return False
    lost = (system.availability, system.dropout, system.trace, system.table, system.rounds.deadline)
    everybody = plugins.build_selection(config.selection).rate() == 1
    return not everybody or bool(system.hospitals) or any(each is not None for each in lost)


def _at(config: Config, key: str) -> Any:
    """Return the value of a dotted key, such as ``training.rounds``; None if the key or its section is missing."""
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name, None)
    return value


@cache
def _defaults() -> Config:
    """Return the default configuration, with the optional sections that have keys in :data:`USED`."""
    config = Config(system=SystemSection(), compression=CompressionSection(), secure=SecureSection())
    return plugins.completed(config, ("selection",))


def _default(key: str) -> Any:
    return _at(_defaults(), key)


def _is_set(key: str, value: Any) -> bool:
    """Return whether ``value`` differs from the default of ``key``.

    False for None, and for ``training.rounds: 0``.
    """
    return value is not None and value != _default(key) and (key, value) != ("training.rounds", 0)


def _with(section: Any, path: Sequence[str], value: Any) -> Any:
    """Return a copy of ``section`` in which the key at the nested ``path`` has the ``value``."""
    below = value if len(path) == 1 else _with(getattr(section, path[0]), path[1:], value)
    return section.model_copy(update={path[0]: below})


USED: Mapping[str, Uses] = {
    **{f"training.{name}": _trains_with(name) for name in TrainingSection.model_fields},
    SELECTION: lambda config, strategy: strategy.uses_selection(),
    "data.preprocessing": lambda config, strategy: (
        config.data.preprocessing == "declared" or _prepares(config, strategy)
    ),
    "data.missing_flags": _prepares,
    "model.init": _prepares,
    "secure.small_clusters": lambda config, strategy: strategy.needs.kind == "clusters",
    "compression.name": lambda config, strategy: not strategy.alone,
    **{f"system.rounds.{name}": _has_rounds for name in RoundsSection.model_fields},
    "system.wait": _may_wait,
    "system.rounds.retries": _may_wait,
}
"""For each dotted key, the function that returns whether a run uses it."""
