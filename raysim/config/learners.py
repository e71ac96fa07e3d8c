"""Combines a comparison's strategies with the models in ``models``.

Models are ordered by simplicity: first linear models, whose coefficients can be interpreted, then all others. In a tie
the simpler model is recommended.
"""

from __future__ import annotations

from collections.abc import Sequence

from raysim.config.plugins import label
from raysim.config.schema import Config
from raysim.config.sections.plugin_sections import ModelSection, short_enough
from raysim.core.errors import ConfigError
from raysim.training.models import find_family


def crossed(config: Config, configs: Sequence[Config]) -> tuple[Config, ...]:
    """Combine the complete configuration of each strategy with each model in ``config.models``.

    The label of each strategy then ends with the model's name. If no models are listed, ``configs`` are returned
    unchanged. Raises ``ConfigError`` for models with the same name, and for a strategy with the key
    ``from``, which brings its own model.
    """
    models = config.models
    if not models:
        return tuple(configs)
    names = [section.learner for section in models]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ConfigError(f"models.{i}.label: '{name}' is the label of two models; give one of them another label")
    for i, section in enumerate(config.strategies):
        if section.from_path is not None:
            raise ConfigError(
                f"strategies.{i}.from: has its own model, so it cannot be combined with models; give the strategy's "
                "own keys in place of from, or leave models out"
            )
    return tuple(_with(each, section) for section in simplest_first(models) for each in configs)


def labels(config: Config) -> list[str]:
    """Return a label for each strategy of ``config``; with ``models``, for each pair of a strategy and a model."""
    strategies = [label(section) for section in config.strategies]
    return (
        [_crossed(label, section) for section in config.models for label in strategies] if config.models else strategies
    )


def simplest_first(models: Sequence[ModelSection]) -> list[ModelSection]:
    """Return the models in order: linear models first, then all others."""
    return sorted(models, key=lambda section: not _is_linear(section))


def reference_among(config: Config, compared: Sequence[str]) -> str:
    """Return the reference strategy's label in ``compared``; with ``models``, its label with the simplest model.

    Raises ``ConfigError`` if the reference was not compared.
    """
    with_learners = [_crossed(config.reference, section) for section in simplest_first(config.models)]
    for name in (config.reference, *with_learners):
        if name in compared:
            return name
    raise ConfigError(
        f"reference: '{config.reference}' is not among the strategies compared; name one of {', '.join(compared)}"
    )


def _is_linear(section: ModelSection) -> bool:
    return bool(getattr(find_family(section.class_path or section.name or ""), "linear", False))


def _crossed(label: str, model: ModelSection) -> str:
    return f"{label}, {model.learner}"


def _with(config: Config, model: ModelSection) -> Config:
    try:
        name = short_enough(_crossed(label(config.strategy), model))
    except ValueError as error:
        raise ConfigError(f"models.label: {error}; shorten the label of the model or of the strategy") from None
    return config.replaced(model=model, strategy=config.strategy.model_copy(update={"label": name}))
