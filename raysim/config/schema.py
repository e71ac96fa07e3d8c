"""The configuration of a run or comparison: YAML, checked before anything starts.

Unknown keys are refused with the nearest known name. What belongs to a plug-in (a strategy's hyper-parameters, a
source's keys) is checked by the plug-in's own class.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, field_validator, model_validator

from raysim.config.nodes import parse_nodes
from raysim.config.system import SystemSection
from raysim.core.errors import ConfigError
from raysim.core.section import Section, Seed
from raysim.data.split import Split

PAPER_METHODS = ("fedavg", "fedprox", "fine_tuning", "hierarchical", "clustered", "chip", "local", "centralized")
"""What ``compare`` runs where the configuration lists no strategies: CHiP-FL's Table 2 and the two bounds."""


class OpenSection(BaseModel):
    """A part whose further keys belong to the plug-in that it names."""

    model_config = ConfigDict(extra="allow", frozen=True)

    def own(self) -> dict[str, Any]:
        """The keys that belong to the plug-in."""
        return dict(self.__pydantic_extra__ or {})


class DataSection(OpenSection):
    """``data``: the source and its keys, which hospitals are kept, how rows are split, and how features are prepared.

    Kept are hospitals with at least ``minimum`` rows, and of these the ``largest`` so many; None keeps all.
    """

    source: str = "synthetic"
    minimum: int | None = Field(None, ge=1)
    largest: int | None = Field(None, ge=1)
    split: Split = Field(default_factory=Split)
    preprocessing: Literal["standard", "median", "none"] = "standard"


class PlugIn(OpenSection):
    """A part that names a plug-in by ``name``, or by import path as ``class: my_module.Mine``."""

    default: ClassVar[str]
    name: str | None = None
    class_path: str | None = Field(None, alias="class")

    @model_validator(mode="before")
    @classmethod
    def _one_of_both(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if not isinstance(value, Mapping) or ("name" in value) != ("class" in value) or "from" in value:
            return value
        if "name" in value:
            raise ValueError(f"'{value['class']}' as class stands beside the name '{value['name']}'; keep one of them")
        return {**value, "name": cls.default}


class ModelSection(PlugIn):
    """``model``: which model, its options, and how it starts."""

    default = "logistic_regression"
    init: Literal["default", "zeros"] = "default"


class TrainingSection(Section):
    """``training``: LocalSGD of a round. ``batch_size`` 0 is the full batch; ``rounds`` 0 only sets the strategy up."""

    rounds: int = Field(20, ge=0)
    local_epochs: int = Field(1, ge=1)
    batch_size: int = Field(512, ge=0)
    optimizer: Literal["sgd", "momentum", "adam"] = "sgd"
    learning_rate: float = Field(0.05, gt=0, allow_inf_nan=False)
    precision: Literal["float32", "float64"] = "float32"


class SelectionSection(PlugIn):
    """``selection``: who takes part in a round."""

    default = "inverse_sqrt"


class StrategySection(PlugIn):
    """``strategy``: a way of federating, its hyper-parameters, and a label for tables.

    In a comparison, ``from`` takes the strategy from another configuration, with its training, selection and model:
    what a sweep recommends.
    """

    default = "chip"
    label: str | None = None
    from_path: Path | None = Field(None, alias="from")


class EvaluationSection(Section):
    """``evaluation``: every how many rounds all hospitals are evaluated (0: after the last only), on which part.

    After the last round also by patient group: ``groups`` are attributes of patients (None: all that the data knows, an
    empty list none), ``age_bands`` the ages in years at which bands begin.
    """

    every: int = Field(1, ge=0)
    part: Literal["validation", "test"] = "test"
    groups: tuple[str, ...] | None = None
    age_bands: tuple[FiniteFloat, ...] = (45.0, 65.0, 80.0)

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

    cpus: float | None = Field(None, gt=0)
    gpus: float | None = Field(None, ge=0)


class ResourcesSection(Section):
    """``resources``: how hospitals are packed into actors, and what each actor holds.

    ``hospitals_per_actor`` ``auto`` starts as many actors as can run at once. ``cpus_per_actor`` None shares the
    cluster's CPUs evenly. ``device`` ``auto`` computes on the GPU share of the actor where torch sees it. An actor that
    has not answered after ``timeout`` seconds is started anew, once; the second time it is an error.
    ``per_hospital`` gives hospitals, by name, an actor of their own that holds other CPUs and GPUs. ``data`` says how
    rows reach other nodes: from a ``shared`` folder, ``shipped``, or ``auto``, which ships where it cannot be read.
    ``autoscale`` describes nodes that an autoscaler may start where those that stand cannot run an actor.
    """

    hospitals_per_actor: Literal["auto"] | int = "auto"
    cpus_per_actor: float | None = Field(None, gt=0)
    gpus_per_actor: float = Field(0, ge=0)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    timeout: float = Field(1800.0, gt=0)
    per_hospital: dict[str, OwnActor] = Field(default_factory=dict)
    data: Literal["auto", "shared", "shipped"] = "auto"
    autoscale: str | None = None

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

    uri: str = "sqlite:///mlflow.db"
    experiment: str = "raysim"


class CheckpointSection(Section):
    """``checkpoint``: what is kept, so that a run which was stopped goes on where it was.

    One after ``every`` so many rounds (0: none), or ``auto``: after every ten seconds, if it costs at most 5 % of them.
    The last ``keep`` stay. ``path`` is a folder or any URI that pyarrow knows; None is the run's own folder.
    """

    every: Literal["auto"] | int = "auto"
    keep: int = Field(2, ge=1)
    path: str | None = None

    @field_validator("every")
    @classmethod
    def _not_negative(cls, value: str | int) -> str | int:
        if value != "auto" and int(value) < 0:
            raise ValueError(f"{value} is not auto or at least 0")
        return value


class Config(Section):
    """Everything a run needs. Defaults are CHiP-FL's job on a synthetic federation.

    ``strategies``, ``seeds`` and ``reference`` (the label that others are compared with) are for ``compare``.
    """

    name: str = "raysim"
    seed: Seed = 42
    seeds: tuple[Seed, ...] = ()
    data: DataSection = Field(default_factory=DataSection)
    model: ModelSection = Field(default_factory=lambda: ModelSection.model_validate({}))
    training: TrainingSection = Field(default_factory=TrainingSection)
    selection: SelectionSection = Field(default_factory=lambda: SelectionSection.model_validate({}))
    strategy: StrategySection = Field(default_factory=lambda: StrategySection.model_validate({}))
    strategies: tuple[StrategySection, ...] = ()
    reference: str = "fedavg"
    evaluation: EvaluationSection = Field(default_factory=EvaluationSection)
    resources: ResourcesSection = Field(default_factory=ResourcesSection)
    tracking: TrackingSection = Field(default_factory=TrackingSection)
    checkpoint: CheckpointSection = Field(default_factory=CheckpointSection)
    system: SystemSection | None = None

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not value or "/" in value or value.startswith("."):
            raise ValueError(f"'{value}' cannot name a folder; use letters, digits, - and _")
        return value

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

    def frozen(self) -> dict[str, Any]:
        """The complete configuration as plain YAML types, defaults included."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
