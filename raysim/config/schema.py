"""The schema of the configuration of a run or comparison.

Unknown keys are refused with the nearest known name. The keys of a plug-in are checked by the plug-in's class.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from raysim.config.sections.adversary import AdversarySection
from raysim.config.sections.aggregation import AggregationSection
from raysim.config.sections.compression import CompressionSection
from raysim.config.sections.evaluation import EvaluationSection
from raysim.config.sections.plugin_sections import (
    DataSection,
    ModelSection,
    SelectionSection,
    StrategySection,
    short_enough,
)
from raysim.config.sections.privacy import PREPROCESSING, PrivacySection
from raysim.config.sections.resources import ResourcesSection
from raysim.config.sections.secure import SecureSection
from raysim.config.sections.system import SystemSection
from raysim.config.sections.training import TrainingSection, TuneSection
from raysim.core.defaults import default, table
from raysim.core.errors import ConfigError
from raysim.core.section import Section, Seed, auto_or_from

COMPARED = ("strategies", "models", "seeds", "reference", "recalibrate", "tune")
"""The configuration keys that a single run does not use."""


class TrackingSection(Section):
    """The section ``tracking``: where MLflow records. ``uri: none`` switches recording off."""

    uri: str = default("tracking.uri")
    experiment: str = default("tracking.experiment", min_length=1, max_length=250)


class CheckpointSection(Section):
    """The section ``checkpoint``: what is stored so that a stopped run can be resumed.

    A checkpoint is stored after every ``every`` rounds (0: none). With ``auto``, the time between two checkpoints is
    ten seconds or, if that is longer, 20 times the time to write one. Only the last ``keep`` checkpoints are retained.
    ``path`` is a folder or a URI that pyarrow knows; None is the run's own folder.
    """

    every: Annotated[Literal["auto"] | int, auto_or_from(0)] = default("checkpoint.every")
    keep: int = default("checkpoint.keep", ge=1)
    path: str | None = default("checkpoint.path")


class Config(Section):
    """Everything that a run or comparison needs. Missing keys have the defaults of ``raysim/config/defaults.yaml``.

    A single run ignores the following keys. ``compare`` uses all of them, and ``sweep`` uses ``seeds``:

    - ``strategies``: the compared strategies; an empty list means the default strategies.
    - ``models``: the models with which strategies are combined.
    - ``seeds``: the seeds of the runs.
    - ``reference``: the label of the strategy with which the others are compared.
    - ``recalibrate``: whether every strategy is reported with and without recalibration.
    - ``tune``: the values of keys that are tried before the runs.
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
    models: tuple[ModelSection, ...] = default("models")
    reference: str = default("reference")
    recalibrate: Literal["both"] | None = default("recalibrate")
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
    def _fitting(self) -> Config:
        split = self.data.split
        if split.folds is not None and self.seeds:
            divisions = {(split.effective_seed(seed), split.fold(seed)) for seed in self.seeds}
            if len(divisions) != len(self.seeds) or len(divisions) != split.folds * len(
                {seed for seed, _ in divisions}
            ):
                raise ConfigError(
                    f"seeds: {list(self.seeds)} do not test once on each of {split.folds} folds: a run with "
                    f"seed s tests on fold s mod {split.folds}; use {list(range(split.folds))}"
                )
        if split.independent is False and self.hides_rows and self.privacy is not None:
            raise ConfigError(
                "data.split.independent: is false, so that the removal of a row changes the whole split, and "
                f"privacy.unit: {self.privacy.unit} cannot be guaranteed; leave independent out"
            )
        self._check_ranges()
        for key in ("minimum", "largest"):
            value = getattr(self.data, key)
            if value is not None and self.hides_sizes:
                raise ConfigError(
                    f"data.{key}: {value} leaves out hospitals by their number of rows, which privacy.sizes: noisy "
                    "hides; leave one of the two out"
                )
        if len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds: {list(self.seeds)} repeats a seed; name each once")
        return self

    def _check_ranges(self) -> None:
        """Raise ``ConfigError`` if ``data.ranges`` is needed but missing, or set but not used."""
        data = self.data
        noisy = self.privacy is not None and self.privacy.noise_of(PREPROCESSING) is not None
        if noisy and data.preprocessing != "standard":
            raise ConfigError(
                f"privacy.statistics.preprocessing: adds noise to means and deviations, but data.preprocessing: "
                f"{data.preprocessing} sends none; set data.preprocessing: standard, or remove "
                "privacy.statistics.preprocessing"
            )
        if data.ranges is None and (noisy or data.preprocessing == "declared"):
            why = "privacy.statistics.preprocessing" if noisy else "data.preprocessing: declared"
            raise ConfigError(
                f"data.ranges: {why} needs the limits or the categories of each feature; declare them, for example "
                "{age: [0, 100], sex: [female, male, null]}"
            )
        if data.ranges is not None and not noisy and data.preprocessing != "declared":
            raise ConfigError(
                "data.ranges: have an effect only with data.preprocessing: declared or with "
                f"privacy.statistics.preprocessing, not with data.preprocessing: {data.preprocessing} alone; set one "
                "of these, or remove the key"
            )

    @property
    def hides_sizes(self) -> bool:
        """Whether hospitals' numbers of rows are released only with noise."""
        return self.privacy is not None and self.privacy.hides_sizes

    @property
    def hides_rows(self) -> bool:
        """Whether the privacy unit is a patient or a row. If so, the split must assign each unit independently of the
        others.
        """
        return self.privacy is not None and self.privacy.unit != "hospital"

    def replaced(self, **parts: Any) -> Config:
        """Return a copy in which ``parts`` replace the sections or keys of the same names. ``parts`` must be valid.

        The copy still knows which keys the user has set.
        """
        changed = self.model_copy(update=parts)
        changed.model_fields_set.intersection_update(self.model_fields_set)
        return changed

    def of_run(self, seed: int) -> Config:
        """Return the configuration of the run with ``seed``. The keys in :data:`COMPARED` have their defaults."""
        default = Config()
        return self.replaced(seed=seed, **{key: getattr(default, key) for key in COMPARED})

    def frozen(self) -> dict[str, Any]:
        """Return the configuration as plain YAML types, with all defaults. It can be read again."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def frozen_run(self) -> dict[str, Any]:
        """Return the configuration as plain YAML types, without the keys that a single run does not use."""
        return {key: value for key, value in self.frozen().items() if key not in COMPARED}
