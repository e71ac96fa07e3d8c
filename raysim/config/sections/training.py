"""The settings of training: local training, early stopping, and the values that a comparison tries before its runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from raysim.config.checking import validated
from raysim.core.defaults import default
from raysim.core.errors import ConfigError, nearest
from raysim.core.section import Section, Seed
from raysim.core.words import as_yaml


class StopSection(Section):
    """The section ``training.stop``: early stopping when the loss on validation rows no longer falls.

    A fall is a decrease by more than ``tolerance`` times the loss before training. The run ends after ``patience``
    rounds in a row without a fall, and the models of the round with the smallest loss are used.
    """

    patience: int = default("training.stop.patience", ge=1)
    tolerance: float = default("training.stop.tolerance", ge=0, allow_inf_nan=False)


class TrainingSection(Section):
    """The section ``training``: local training of a round.

    ``batch_size: 0`` is the full batch, and ``rounds: 0`` only sets the strategy up. With ``stop``, ``rounds`` is the
    largest number of rounds.
    """

    rounds: int = default("training.rounds", ge=0)
    local_epochs: int = default("training.local_epochs", ge=1)
    batch_size: int = default("training.batch_size", ge=0)
    optimizer: Literal["sgd", "momentum", "adam"] = default("training.optimizer")
    learning_rate: float | None = default("training.learning_rate", gt=0, allow_inf_nan=False)
    weight_decay: float = default("training.weight_decay", ge=0, allow_inf_nan=False)
    class_weights: Literal["none", "balanced"] | tuple[float, ...] = default("training.class_weights")
    precision: Literal["float32", "float64"] = default("training.precision")
    stop: StopSection | None = default("training.stop")

    @field_validator("class_weights", mode="before")
    @classmethod
    def _weights(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            if value not in ("none", "balanced"):
                raise ValueError(f"{as_yaml(value)} is not none, balanced or a list with a weight for each class")
            return value
        for weight in value:
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
                raise ValueError(f"{as_yaml(weight)} is not a number of at least 0")
        return value


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


class TuneSection(BaseModel):
    """The section ``tune``: values of keys of ``training`` and ``model`` that a comparison tries before its runs.

    Every tuned strategy is tried with every combination, and evaluated on validation rows. Strategies without training
    steps are tuned only if keys of ``model`` are tried, or if ``models`` has the model.

    - ``models``: by model, other values of keys of ``model`` and ``training`` that replace the values of this section.
      The number of combinations must be the same.
    - ``per``: with ``strategy``, each strategy uses its own best combination; with ``comparison``, all strategies use
      the combination that is best for all together.
    - ``seeds``: which of the comparison's seeds the trials use: a number (so many, from the first), a list, or None
      (all).
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    per: Literal["strategy", "comparison"] = default("tune.per")
    seeds: int | tuple[Seed, ...] | None = default("tune.seeds")
    models: dict[str, dict[str, list[Any]]] = default("tune.models")

    def grid(self, learner: str) -> dict[str, list[Any]]:
        """Return the values that tuning tries for the model ``learner`` (its name in tables), by dotted key."""
        return self.models.get(learner, self.model_extra or {})

    def tries_models(self, learner: str) -> bool:
        """Whether tuning tries keys of the model, or has separate values for this model.

        If so, strategies without training steps are also tuned.
        """
        return learner in self.models or any(key.startswith("model.") for key in self.grid(learner))

    @model_validator(mode="before")
    @classmethod
    def _dotted(cls, value: Any) -> Any:
        # ``--set tune.training.learning_rate=[...]`` makes a section of it.
        for section in ("training", "model"):
            if isinstance(value, Mapping) and isinstance(value.get(section), Mapping):
                below = {f"{section}.{key}": values for key, values in value[section].items()}
                value = {key: values for key, values in value.items() if key != section} | below
        return value

    def of_seeds(self, seeds: Sequence[int]) -> tuple[int, ...]:
        """Return the seeds with which tuning's trials run.

        Raises ``ConfigError`` if the comparison's ``seeds`` are fewer than tuning asks for, or lack one that tuning
        lists.
        """
        if self.seeds is None:
            return tuple(seeds)
        named = ", ".join(map(str, seeds))
        if isinstance(self.seeds, int):
            if self.seeds > len(seeds):
                raise ConfigError(
                    f"tune.seeds: {self.seeds}, but the comparison has only seeds {named}; give at most {len(seeds)}"
                )
            return tuple(seeds[: self.seeds])
        for seed in self.seeds:
            if seed not in seeds:
                raise ConfigError(f"tune.seeds: {seed} is not a seed of the comparison; name some of {named}")
        return self.seeds

    @field_validator("seeds", mode="before")
    @classmethod
    def _some_seeds(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            if not value or not all(_whole(seed, 0) and value.count(seed) == 1 for seed in value):
                raise ValueError(f"{as_yaml(value)} is not a list of different whole numbers of at least 0")
        elif value is not None and not _whole(value, 1):
            raise ValueError(f"{as_yaml(value)} is neither a whole number of at least 1 nor a list of seeds")
        return value

    @model_validator(mode="after")
    def _values_of_training(self) -> TuneSection:
        keys = [f"training.{name}" for name in TrainingSection.model_fields if name != "stop"]
        if not self.model_extra:
            raise ConfigError("tune: names no key; write for example training.learning_rate: [0.03, 0.1, 0.3]")
        for key, values in self.model_extra.items():
            of_model = key.startswith("model.") and key != "model."
            if key not in keys and not of_model:
                raise ConfigError(f"tune.{key}: is not a key of training or model to tune; {nearest(key, keys)}")
            if not isinstance(values, list) or not values or any(values.count(value) > 1 for value in values):
                raise ConfigError(
                    f"tune.{key}: {as_yaml(values)} is not a list of different values; list the values to try"
                )
            for value in () if of_model else values:
                validated(TrainingSection, {key.removeprefix("training."): value}, "tune.training")
        if self.models and self.per == "comparison":
            raise ConfigError(
                "tune.per: comparison uses one setting for all models, but tune.models has several; "
                "write tune.per: strategy"
            )
        settings = math.prod(map(len, self.model_extra.values()))
        for learner, grid in self.models.items():
            for key, values in grid.items():
                if key not in keys and not (key.startswith("model.") and key != "model."):
                    raise ConfigError(
                        f"tune.models.{learner}.{key}: is not a key of model or training; {nearest(key, keys)}"
                    )
                if not values or any(values.count(value) > 1 for value in values):
                    raise ConfigError(
                        f"tune.models.{learner}.{key}: {as_yaml(values)} is not a list of different values; list the "
                        "values to try"
                    )
            if (here := math.prod(map(len, grid.values()))) != settings:
                raise ConfigError(
                    f"tune.models.{learner}: has {here} settings, but the other models have {settings}; "
                    "use the same number"
                )
        return self
