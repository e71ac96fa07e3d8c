"""What is evaluated, on which rows, and the figures that a clinician asks for."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

from pydantic import Field, FiniteFloat, SerializerFunctionWrapHandler, field_validator, model_serializer

from raysim.core.defaults import default
from raysim.core.section import Section


class ClinicalSection(Section):
    """``evaluation.clinical``: figures that a clinician asks for, from counts that hospitals send after the last round.

    ``thresholds`` are the probabilities from which on a row is called. Sensitivity is reported at ``specificity``, and
    specificity at ``sensitivity``, of one threshold for all hospitals. ``bins`` are those of the calibration error.
    Whether acting on the model is worth it is judged at the threshold ``act_at``.
    """

    thresholds: tuple[float, ...] = default("evaluation.clinical.thresholds")
    specificity: float = default("evaluation.clinical.specificity", gt=0, lt=1)
    sensitivity: float = default("evaluation.clinical.sensitivity", gt=0, lt=1)
    bins: int = default("evaluation.clinical.bins", ge=2, le=100)
    act_at: float = default("evaluation.clinical.act_at", gt=0, lt=1)

    @property
    def counted_at(self) -> tuple[float, ...]:
        """The probabilities from which on hospitals count rows: ``thresholds`` and ``act_at``, ascending."""
        return tuple(sorted({*self.thresholds, self.act_at}))

    @field_validator("thresholds")
    @classmethod
    def _ascending_chances(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if any(not low < high for low, high in pairwise((0.0, *value, 1.0))):
            raise ValueError(f"{list(value)} are not ascending probabilities above 0 and below 1")
        return value


class EvaluationSection(Section):
    """``evaluation``: every how many rounds all hospitals are evaluated (0: after the last only), on which part.

    The loss over all training rows is taken before training and at ``loss_points`` rounds or more (0: never).
    After the last round also by patient group: ``groups`` are attributes of patients (None: all that the data knows, an
    empty list none), ``age_bands`` the ages in years at which bands begin. With ``predictions`` what every model served
    says of every row, of all parts, is written too; it is in the egress ledger. A hospital may be named the lowest from
    ``minimum_events`` rows of the rarer class on (events or others, whichever are fewer); the tests of spread use every
    judged hospital. ``clinical`` are the figures of calibration and of decisions; None: none.
    """

    every: int = default("evaluation.every", ge=0)
    loss_points: int = default("evaluation.loss_points", ge=0)
    part: Literal["validation", "test"] = default("evaluation.part")
    groups: tuple[str, ...] | None = default("evaluation.groups")
    age_bands: tuple[FiniteFloat, ...] = default("evaluation.age_bands")
    predictions: bool = default("evaluation.predictions")
    minimum_events: int = default("evaluation.minimum_events", ge=1)
    clinical: ClinicalSection | None = Field(default_factory=ClinicalSection)

    @model_serializer(mode="wrap")
    def _keep_none_that_is_no_default(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        return written | ({"clinical": None} if self.clinical is None else {})

    @field_validator("age_bands")
    @classmethod
    def _ascending(cls, value: tuple[FiniteFloat, ...]) -> tuple[FiniteFloat, ...]:
        if any(not low < high for low, high in pairwise(value)):
            raise ValueError(f"{list(value)} are not ascending ages")
        return value
