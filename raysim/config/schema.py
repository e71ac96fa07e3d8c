"""The configuration of a run or comparison: YAML, checked before anything starts.

Unknown keys are refused with the nearest known name. What belongs to a plug-in (a strategy's hyper-parameters, a
source's keys) is checked by the plug-in's own class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from raysim.config.adversary import AdversarySection
from raysim.config.aggregation import AggregationSection
from raysim.config.checking import validated
from raysim.config.compression import CompressionSection
from raysim.config.nodes import parse_nodes
from raysim.config.privacy import PrivacySection
from raysim.config.secure import SecureSection
from raysim.config.system import SystemSection
from raysim.config.written import made, place_of, section_of
from raysim.core.defaults import default, table
from raysim.core.errors import ConfigError, nearest
from raysim.core.section import Section, Seed
from raysim.data.split import Split
from raysim.strategies.base import Strategy

LONGEST_NAME = 100
"""Characters of the name of an experiment and of the label of a strategy, which become names of folders."""

LONGEST_WAIT = 1e6
"""Seconds, eleven days: the clocks that wait take no number at will."""

COMPARED = ("strategies", "seeds", "reference", "tune")
"""The keys that are for ``compare`` alone."""


def short_enough(name: str) -> str:
    """``name``. Raises ``ValueError`` for one that is too long for the folders that are called after it."""
    if len(name) > LONGEST_NAME or len(name.encode(errors="replace")) > 2 * LONGEST_NAME:
        raise ValueError(f"'{name}' has {len(name)} characters; {LONGEST_NAME} are the most")
    return name


class OpenSection(BaseModel):
    """A part whose further keys belong to the plug-in that it names."""

    model_config = ConfigDict(extra="allow", frozen=True)

    def own(self) -> dict[str, Any]:
        """The keys that belong to the plug-in."""
        return dict(self.model_extra or {})

    def having(self, own: Mapping[str, Any]) -> Self:
        """This section with ``own`` in place of the keys that belong to the plug-in."""
        fields = {field.alias or name: getattr(self, name) for name, field in type(self).model_fields.items()}
        return type(self).model_validate({**fields, **own})

    def frozen(self) -> dict[str, Any]:
        """The section as plain YAML types, defaults included."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @model_serializer(mode="wrap")
    def _keep_unset_own_keys(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Unset, a plug-in's key need not be what it is by default.
        return {**write(self), **{key: None for key, value in self.own().items() if value is None}}


class DataSection(OpenSection):
    """``data``: the source and its keys, which hospitals are kept, how rows are split, and how features are prepared.

    Kept are hospitals with at least ``minimum`` rows, and of these the ``largest`` so many; None keeps all.
    """

    source: str = default("data.source")
    minimum: int | None = default("data.minimum", ge=1)
    largest: int | None = default("data.largest", ge=1)
    split: Split = Field(default_factory=Split)
    preprocessing: Literal["standard", "median", "none"] = default("data.preprocessing")

    @model_validator(mode="before")
    @classmethod
    def _source_alone(cls, value: Any) -> Any:
        return {"source": value} if isinstance(value, str) else value


class PlugIn(OpenSection):
    """A part that names a plug-in by ``name``, or by import path as ``class: my_module.Mine``."""

    name: str | None
    class_path: str | None

    @model_validator(mode="before")
    @classmethod
    def _one_plug_in(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if not isinstance(value, Mapping):
            return value
        name, path = value.get("name"), value.get("class")
        if name is not None and path is not None:
            raise ValueError(f"'{path}' as class stands beside the name '{name}'; keep one of them")
        if path is not None or value.get("from") is not None:
            return {"name": None, **value}  # else the name would be the default one
        return {key: entry for key, entry in value.items() if key != "name" or entry is not None}


class ModelSection(PlugIn):
    """``model``: which model, its options, and how it starts."""

    name: str | None = default("model.name")
    class_path: str | None = default("model.class", alias="class")
    init: Literal["default", "zeros"] = default("model.init")


class StopSection(Section):
    """``training.stop``: a run ends before its last round where the loss on validation rows falls no more.

    It ends after ``patience`` rounds in a row without a fall by more than ``tolerance`` times the loss before training;
    the models of the round with the least loss serve. See :mod:`raysim.engine.stopping`.
    """

    patience: int = default("training.stop.patience", ge=1)
    tolerance: float = default("training.stop.tolerance", ge=0, allow_inf_nan=False)


class TrainingSection(Section):
    """``training``: LocalSGD of a round. ``batch_size`` 0 is the full batch; ``rounds`` 0 only sets the strategy up.

    With ``stop`` (an empty section takes its defaults) ``rounds`` is how many are played at most.
    """

    rounds: int = default("training.rounds", ge=0)
    local_epochs: int = default("training.local_epochs", ge=1)
    batch_size: int = default("training.batch_size", ge=0)
    optimizer: Literal["sgd", "momentum", "adam"] = default("training.optimizer")
    learning_rate: float = default("training.learning_rate", gt=0, allow_inf_nan=False)
    weight_decay: float = default("training.weight_decay", ge=0, allow_inf_nan=False)
    class_weights: Literal["none", "balanced"] | tuple[float, ...] = default("training.class_weights")
    precision: Literal["float32", "float64"] = default("training.precision")
    stop: StopSection | None = default("training.stop")

    @field_validator("class_weights", mode="before")
    @classmethod
    def _weights(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            if value not in ("none", "balanced"):
                raise ValueError(f"{value!r} is not none, balanced or a list with a weight for each class")
            return value
        for weight in value:
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
                raise ValueError(f"{weight!r} is no number of at least 0")
        return value


class TuneSection(BaseModel):
    """``tune``: keys of ``training`` by dotted name, each with the values that a comparison tries first.

    Every strategy is tried with every combination, and judged on validation rows. ``per`` says whether each strategy
    takes its own best combination, or all take the one that is best for them together.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    per: Literal["strategy", "comparison"] = default("tune.per")

    @property
    def grid(self) -> dict[str, list[Any]]:
        """The values by the name of their key in ``training``."""
        return {key.removeprefix("training."): values for key, values in (self.model_extra or {}).items()}

    @model_validator(mode="before")
    @classmethod
    def _dotted(cls, value: Any) -> Any:
        # ``--set tune.training.learning_rate=[...]`` makes a section of it.
        if isinstance(value, Mapping) and isinstance(value.get("training"), Mapping):
            below = {f"training.{key}": values for key, values in value["training"].items()}
            return {key: values for key, values in value.items() if key != "training"} | below
        return value

    @model_validator(mode="after")
    def _values_of_training(self) -> TuneSection:
        known = [f"training.{name}" for name in TrainingSection.model_fields if name != "stop"]
        if not self.model_extra:
            raise ConfigError("tune: names no key; write for example training.learning_rate: [0.03, 0.1, 0.3]")
        for key, values in self.model_extra.items():
            if key not in known:
                raise ConfigError(f"tune.{key}: is no key of training to tune; {nearest(key, known)}")
            if not isinstance(values, list) or not values or any(values.count(value) > 1 for value in values):
                raise ConfigError(f"tune.{key}: {values!r} is not a list of values, each once; name some to try")
            for value in values:
                validated(TrainingSection, {key.removeprefix("training."): value}, "tune.training")
        return self


class SelectionSection(PlugIn):
    """``selection``: who takes part in a round."""

    name: str | None = default("selection.name")
    class_path: str | None = default("selection.class", alias="class")


class StrategySection(PlugIn):
    """``strategy``: a way of federating, its hyper-parameters, and a label for tables.

    In a comparison, ``from`` takes the strategy from another configuration, with its training, selection and model:
    what a sweep recommends. In Python a strategy, or its class, may stand in place of the section.
    """

    name: str | None = default("strategy.name")
    class_path: str | None = default("strategy.class", alias="class")
    label: str | None = default("strategy.label")
    from_path: Path | None = default("strategy.from", alias="from")
    _given: Strategy | None = PrivateAttr(None)

    @property
    def given(self) -> Strategy | None:
        """The strategy itself, where Python has given it in place of a section; the keys say what it is."""
        return self._given

    @model_validator(mode="wrap")
    @classmethod
    def _from_python(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        whole = isinstance(value, Strategy)
        if not whole and not (isinstance(value, type) and issubclass(value, Strategy)):
            return handler(value)
        given = value if whole else made(value)
        written = section_of(given)
        # A class leaves its fields to what else is said of them.
        section = handler(written if whole else place_of(value))
        section._given = given
        return section

    def having(self, own: Mapping[str, Any]) -> Self:
        section = super().having(own)
        section._given = self._given
        return section

    @field_validator("label")
    @classmethod
    def _names_a_folder(cls, value: str | None) -> str | None:
        return value if value is None else short_enough(value)


class ClinicalSection(Section):
    """``evaluation.clinical``: figures that a clinician asks for, from counts that hospitals send after the last round.

    ``thresholds`` are the probabilities from which on a row is called. Sensitivity is reported at ``specificity``, and
    specificity at ``sensitivity``, of one threshold for all hospitals. ``bins`` are those of the calibration error.
    """

    thresholds: tuple[float, ...] = default("evaluation.clinical.thresholds")
    specificity: float = default("evaluation.clinical.specificity", gt=0, lt=1)
    sensitivity: float = default("evaluation.clinical.sensitivity", gt=0, lt=1)
    bins: int = default("evaluation.clinical.bins", ge=2, le=100)

    @field_validator("thresholds")
    @classmethod
    def _ascending_chances(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if any(not low < high for low, high in pairwise((0.0, *value, 1.0))):
            raise ValueError(f"{list(value)} are not ascending probabilities above 0 and below 1")
        return value


class EvaluationSection(Section):
    """``evaluation``: every how many rounds all hospitals are evaluated (0: after the last only), on which part.

    After the last round also by patient group: ``groups`` are attributes of patients (None: all that the data knows, an
    empty list none), ``age_bands`` the ages in years at which bands begin. With ``predictions`` what every model served
    says of every row, of all parts, is written too; it is in the egress ledger. A hospital may be named the lowest from
    ``minimum_events`` events in its rows on; the tests of spread use every judged hospital. ``clinical`` are the
    figures of calibration and of decisions; None: none.
    """

    every: int = default("evaluation.every", ge=0)
    part: Literal["validation", "test"] = default("evaluation.part")
    groups: tuple[str, ...] | None = default("evaluation.groups")
    age_bands: tuple[FiniteFloat, ...] = default("evaluation.age_bands")
    predictions: bool = default("evaluation.predictions")
    minimum_events: int = default("evaluation.minimum_events", ge=1)
    clinical: ClinicalSection | None = Field(default_factory=ClinicalSection)

    @field_validator("age_bands")
    @classmethod
    def _ascending(cls, value: tuple[FiniteFloat, ...]) -> tuple[FiniteFloat, ...]:
        if any(not low < high for low, high in pairwise(value)):
            raise ValueError(f"{list(value)} are not ascending ages")
        return value


class OwnActor(Section):
    """What the actor of a hospital in ``resources.per_hospital`` holds; None is what the others' actors hold.

    It computes with as many threads as it holds whole CPUs.
    """

    cpus: float | None = default("resources.per_hospital.*.cpus", gt=0, allow_inf_nan=False)
    gpus: float | None = default("resources.per_hospital.*.gpus", ge=0, allow_inf_nan=False)


class ResourcesSection(Section):
    """``resources``: how hospitals are packed into actors, and what each actor holds.

    ``hospitals_per_actor`` ``auto`` starts as many actors as can run at once. ``cpus_per_actor`` None shares the
    cluster's CPUs evenly. ``device`` ``auto`` computes on the GPU share of the actor where torch sees it. An actor that
    has not answered after ``timeout`` seconds is started anew, once; the second time it is an error.
    ``per_hospital`` gives hospitals, by name, an actor of their own that holds other CPUs and GPUs. ``data`` says how
    rows reach other nodes: from a ``shared`` folder, ``shipped``, or ``auto``, which ships where it cannot be read.
    ``autoscale`` describes nodes that an autoscaler may start where those that stand cannot run an actor.
    ``dashboard`` starts a Ray of one's own with its dashboard.
    """

    hospitals_per_actor: Literal["auto"] | int = default("resources.hospitals_per_actor")
    cpus_per_actor: float | None = default("resources.cpus_per_actor", gt=0, allow_inf_nan=False)
    gpus_per_actor: float = default("resources.gpus_per_actor", ge=0, allow_inf_nan=False)
    device: Literal["auto", "cpu", "cuda"] = default("resources.device")
    timeout: float = default("resources.timeout", gt=0, le=LONGEST_WAIT, allow_inf_nan=False)
    per_hospital: dict[str, OwnActor] = default("resources.per_hospital")
    data: Literal["auto", "shared", "shipped"] = default("resources.data")
    autoscale: str | None = default("resources.autoscale")
    dashboard: bool = default("resources.dashboard")

    @field_validator("hospitals_per_actor")
    @classmethod
    def _at_least_one(cls, value: str | int) -> str | int:
        if value != "auto" and int(value) < 1:
            raise ValueError(f"{value} is not auto or at least 1")
        return value

    @field_validator("autoscale")
    @classmethod
    def _describes_nodes(cls, value: str | None) -> str | None:
        if value is not None:
            parse_nodes(value)
        return value


class TrackingSection(Section):
    """``tracking``: where MLflow records; ``uri: none`` records nowhere."""

    uri: str = default("tracking.uri")
    experiment: str = default("tracking.experiment", min_length=1, max_length=250)


class CheckpointSection(Section):
    """``checkpoint``: what is kept, so that a run which was stopped goes on where it was.

    One after ``every`` so many rounds (0: none), or ``auto``: after every ten seconds, if it costs at most 5 % of them.
    The last ``keep`` stay. ``path`` is a folder or any URI that pyarrow knows; None is the run's own folder.
    """

    every: Literal["auto"] | int = default("checkpoint.every")
    keep: int = default("checkpoint.keep", ge=1)
    path: str | None = default("checkpoint.path")

    @field_validator("every")
    @classmethod
    def _not_negative(cls, value: str | int) -> str | int:
        if value != "auto" and int(value) < 0:
            raise ValueError(f"{value} is not auto or at least 0")
        return value


class Config(Section):
    """Everything that a run or comparison needs; what is left out has the default of ``raysim/config/defaults.yaml``.

    ``strategies`` (an empty list stands for the default ones), ``seeds`` and ``reference`` (the label that others are
    compared with) are for ``compare``.
    """

    name: str = default("name")
    seed: Seed = default("seed")
    seeds: tuple[Seed, ...] = default("seeds")
    data: DataSection = Field(default_factory=DataSection)
    model: ModelSection = Field(default_factory=ModelSection)
    training: TrainingSection = Field(default_factory=TrainingSection)
    selection: SelectionSection = Field(default_factory=SelectionSection)
    strategy: StrategySection = Field(default_factory=StrategySection)
    strategies: tuple[StrategySection, ...] = default("strategies")
    reference: str = default("reference")
    tune: TuneSection | None = default("tune")
    evaluation: EvaluationSection = Field(default_factory=EvaluationSection)
    resources: ResourcesSection = Field(default_factory=ResourcesSection)
    tracking: TrackingSection = Field(default_factory=TrackingSection)
    checkpoint: CheckpointSection = Field(default_factory=CheckpointSection)
    system: SystemSection | None = default("system")
    adversary: AdversarySection | None = None
    aggregation: AggregationSection | None = None
    compression: CompressionSection | None = None
    privacy: PrivacySection | None = default("privacy")
    secure: SecureSection | None = None

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not value or "/" in value or value.startswith(".") or not value.isprintable():
            raise ValueError(f"'{value}' cannot name a folder; use letters, digits, - and _")
        return short_enough(value)

    @field_validator("strategies", mode="before")
    @classmethod
    def _at_least_one_strategy(cls, value: Any) -> Any:
        return table()["strategies"] if value in ([], ()) else value

    @model_validator(mode="after")
    def _fitting_seeds(self) -> Config:
        split = self.data.split
        if split.folds is not None and self.seeds:
            drawn = {(split.effective_seed(seed), split.fold(seed)) for seed in self.seeds}
            if len(drawn) != len(self.seeds) or len(drawn) != split.folds * len({seed for seed, _ in drawn}):
                raise ConfigError(
                    f"seeds: {list(self.seeds)} do not test once on each of {split.folds} folds, of which a run with "
                    f"seed s tests on fold s mod {split.folds}; use {list(range(split.folds))}"
                )
        if len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds: {list(self.seeds)} repeats a seed; name each once")
        return self

    def replaced(self, **parts: Any) -> Config:
        """This configuration with other parts, checked already; what the user has set stays known as that."""
        changed = self.model_copy(update=parts)
        changed.model_fields_set.intersection_update(self.model_fields_set)
        return changed

    def of_run(self, seed: int) -> Config:
        """The configuration of the run with this seed: what is for ``compare`` alone is as if it were left out."""
        default = Config()
        return self.replaced(seed=seed, **{key: getattr(default, key) for key in COMPARED})

    def frozen(self) -> dict[str, Any]:
        """The complete configuration as plain YAML types, defaults included; reading it again gives an equal one."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def frozen_run(self) -> dict[str, Any]:
        """The same of a single run's configuration, without what is for ``compare`` alone."""
        return {key: value for key, value in self.frozen().items() if key not in COMPARED}
