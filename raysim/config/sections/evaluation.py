"""The settings of evaluation: which rows and which metrics."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

from pydantic import (
    Field,
    FiniteFloat,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from raysim.core.defaults import default
from raysim.core.errors import ConfigError
from raysim.core.section import Section


class ClinicalSection(Section):
    """The section ``evaluation.clinical``: clinical metrics, from numbers of rows that hospitals send after the last
    round.

    At each of the ``thresholds``, rows with at least this probability count as positive. Sensitivity is reported at the
    specificity ``specificity``, and specificity at the sensitivity ``sensitivity``, with one threshold for all
    hospitals. ``bins`` is the number of bins of the calibration error. The net benefit of acting on the model is
    reported at the threshold ``act_at``.
    """

    thresholds: tuple[float, ...] = default("evaluation.clinical.thresholds")
    specificity: float = default("evaluation.clinical.specificity", gt=0, lt=1)
    sensitivity: float = default("evaluation.clinical.sensitivity", gt=0, lt=1)
    bins: int = default("evaluation.clinical.bins", ge=2, le=100)
    act_at: float = default("evaluation.clinical.act_at", gt=0, lt=1)

    @property
    def counted_at(self) -> tuple[float, ...]:
        """Return the probability thresholds at which hospitals count rows, ascending."""
        return tuple(sorted({*self.thresholds, self.act_at}))

    @field_validator("thresholds")
    @classmethod
    def _ascending_chances(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if any(not low < high for low, high in pairwise((0.0, *value, 1.0))):
            raise ValueError(f"{list(value)} is wrong; give ascending probabilities above 0 and below 1")
        return value


class UnseenSection(Section):
    """The section ``evaluation.unseen``: hospitals are evaluated in turn with models trained without them.

    - ``folds``: ``leave_one_out``, a number of folds, or lists of hospitals that are left out together. None:
      ``leave_one_out`` for up to 20 hospitals, else 10 folds.
    - ``onboarding``: the numbers of labelled rows with which a left-out hospital joins; each number is evaluated.
    - ``held``: the share of a left-out hospital's rows that are used only for testing.
    - ``trained_on``: the rows on which the participating hospitals of a fold train. ``train``: their training rows.
      ``all``: their test rows as well.
    - ``joining``: what a left-out hospital does with its labelled rows: ``recalibrate``, ``fine_tune``, or only choose
      a ``cluster``.
    """

    folds: Literal["leave_one_out"] | int | tuple[str | tuple[str, ...], ...] | None = default(
        "evaluation.unseen.folds"
    )
    onboarding: tuple[int | Literal["all"], ...] = default("evaluation.unseen.onboarding")
    held: float = default("evaluation.unseen.held", gt=0, lt=1)
    joining: Literal["recalibrate", "fine_tune", "cluster"] = default("evaluation.unseen.joining")
    trained_on: Literal["train", "all"] = default("evaluation.unseen.trained_on")

    @model_validator(mode="after")
    def _used_by_onboarding(self) -> UnseenSection:
        if self.onboarding == (0,):
            for key, usual in (("held", 0.5), ("joining", "recalibrate")):
                if (value := getattr(self, key)) != usual:
                    raise ConfigError(
                        f"evaluation.unseen.{key}: {value} needs labelled rows of new hospitals, but "
                        "evaluation.unseen.onboarding is [0]; add numbers of rows there, or remove this key"
                    )
        return self

    @field_validator("folds")
    @classmethod
    def _folds_that_leave_some(cls, value: Any) -> Any:
        if isinstance(value, int) and value < 2:
            raise ValueError(
                f"{value} folds leave no hospital to train on; give two or more, leave_one_out, or lists of hospitals"
            )
        if isinstance(value, tuple):
            names = [name for fold in value for name in ((fold,) if isinstance(fold, str) else fold)]
            repeated = next((name for name in names if names.count(name) > 1), None)
            if repeated is not None or not names or () in value:
                which = f"'{repeated}' occurs twice" if repeated is not None else "a fold names no hospital"
                raise ValueError(f"{which}; write lists in which each hospital occurs once")
        return value

    @field_validator("onboarding")
    @classmethod
    def _ascending_rows(cls, value: tuple[int | str, ...]) -> tuple[int | str, ...]:
        numbers = [each for each in value if isinstance(each, int)]
        ordered = all(low < high for low, high in pairwise((-1, *numbers))) and "all" not in value[:-1]
        if not value or not ordered:
            raise ValueError(f"{list(value)} is not a list of ascending numbers of rows; `all` may only come last")
        return value


class EvaluationSection(Section):
    """The section ``evaluation``: when, on which rows and by which metrics models are evaluated.

    - ``every``: the number of rounds between two evaluations of all hospitals (0: only after the last round).
    - ``part``: the part of the rows on which models are evaluated.
    - ``loss_points``: the loss over all training rows is measured after at least this many rounds of a run, or after
      every round if the run has fewer (0: never).
    - ``groups``: the attributes by which patients are grouped after the last round. None: all attributes in the data;
      an empty list: none.
    - ``age_bands``: the ages in years at which age bands begin.
    - ``predictions``: whether each model's outputs are written, for every row of all parts.
    - ``importance``: how often each column is permuted within hospitals, to measure the column's effect on the headline
      model (0: never).
    - ``minimum_events``: the smallest number of rows of the rarer class with which a hospital may be reported as the
      worst.
    - ``clinical``: metrics of calibration and of decisions; None: no such metrics.
    - ``unseen``: how a comparison leaves hospitals out; None: no hospital is left out.
    """

    every: int = default("evaluation.every", ge=0)
    loss_points: int = default("evaluation.loss_points", ge=0)
    part: Literal["validation", "test"] = default("evaluation.part")
    groups: tuple[str, ...] | None = default("evaluation.groups")
    age_bands: tuple[FiniteFloat, ...] = default("evaluation.age_bands")
    predictions: bool = default("evaluation.predictions")
    importance: int = default("evaluation.importance", ge=0, le=1000)
    minimum_events: int = default("evaluation.minimum_events", ge=1)
    clinical: ClinicalSection | None = Field(default_factory=ClinicalSection)
    unseen: UnseenSection | None = None

    @field_validator("unseen", mode="before")
    @classmethod
    def _true_is_all_defaults(cls, value: Any) -> Any:
        return {} if value is True else None if value is False else value

    @model_serializer(mode="wrap")
    def _keep_none_that_is_no_default(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        without = {key: value for key, value in written.items() if key != "unseen" or value is not None}
        return without | ({"clinical": None} if self.clinical is None else {})

    @model_validator(mode="after")
    def _of_ages(self) -> EvaluationSection:
        if self.groups is not None and "age" not in self.groups and self.age_bands != type(self)().age_bands:
            raise ConfigError(
                f"evaluation.age_bands: {list(self.age_bands)} divide the attribute age, which evaluation.groups does "
                "not name; add age there, or remove the bands"
            )
        return self

    @field_validator("age_bands")
    @classmethod
    def _ascending(cls, value: tuple[FiniteFloat, ...]) -> tuple[FiniteFloat, ...]:
        if any(not low < high for low, high in pairwise(value)):
            raise ValueError(f"{list(value)} is not in order; give ascending ages")
        return value
