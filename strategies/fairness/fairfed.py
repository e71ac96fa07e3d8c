"""FairFed: a hospital's weight grows if the model is about as fair at this hospital as over all hospitals.

Y. H. Ezzeldin, S. Yan, C. He, E. Ferrara, A. S. Avestimehr: *FairFed: Enabling Group Fairness in Federated Learning*,
AAAI 2023, Algorithm 1, with equal opportunity as the measure of fairness.

In a round, each hospital classifies its training rows with the model that it received, and counts them by patient
group. From the counts the server computes the hospital's accuracy ``Acc_i`` and its gap of true positive rates
``F_i = TPR(others) - TPR(privileged)``. From the sums of the counts it computes the accuracy ``Acc`` and the gap ``F``
over all hospitals. Let ``d_i = |F - F_i|``, or ``|Acc - Acc_i|`` if F_i is undefined because a group has no positive
rows. The hospital's weight ω_i changes to ``omega_i - beta (d_i - mean d)``. The initial weight is the hospital's share
of rows. The next model is the mean of hospitals' models, weighted by ω.

Choices: ω is clipped at 0. If all participants have weight 0, they are weighted by rows. Patients whose attribute is
unknown count only for accuracy. With more than two classes, the class ``positive`` is compared with all other classes
together.

All available hospitals take part in every round, whatever selection is configured.

Traffic in a round: the server sends the model's P scalars to each hospital, which sends back six counts, its update of
P scalars, and the number of its training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import (
    Context,
    FederationView,
    Floats,
    Ids,
    LocalProblem,
    Needs,
    NonNegativeFloat,
    NonNegativeInt,
    State,
    Statistic,
    Strategy,
    Training,
    Update,
    Upload,
    own_state,
    shares,
    statistics_of,
)


@dataclass(frozen=True)
class GroupCounts(Statistic):
    """Six counts of a hospital's training rows and of the received model's predictions for them, ``[6]``:

    - all rows, and how many are predicted correctly
    - rows of the class ``positive`` of patients who are not privileged, and how many are predicted ``positive``
    - rows of the class ``positive`` of privileged patients, and how many are predicted ``positive``
    """

    name = "group_counts"
    shape = (6,)
    attribute: Attribute
    privileged: Privileged
    """The attribute's value, or the range of ages, in the privileged group."""
    positive: int
    """The class that is treated as the positive outcome."""

    def value(self, at: Context) -> Floats:
        rows, (model,) = at.rows, at.received["models"]
        outputs = at.model.outputs(model)
        predicted = (outputs > 0).astype(np.int64) if outputs.ndim == 1 else outputs.argmax(axis=1)
        group = patient_groups(rows.patients(), self.attribute, self.privileged)
        positive = rows.y == self.positive
        counts = [len(rows.y), np.count_nonzero(predicted == rows.y)]
        for which in (OTHERS, PRIVILEGED):
            inside = positive & (group == which)
            counts += [np.count_nonzero(inside), np.count_nonzero(inside & (predicted == self.positive))]
        return np.array(counts, dtype=np.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class FairState(State):
    """The state of FairFed. ``omega [N]`` are the weights of hospitals, which need not sum to 1. They are 0 for
    hospitals without training rows."""

    omega: Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class FairProblem(LocalProblem):
    """The local problem in a round of FairFed, with the new weights ``omega [N]`` of all N hospitals."""

    omega: Floats


@dataclass(frozen=True)
class FairFed(Strategy):
    """Weights of hospitals by the fairness of the model (FairFed); the fields are its settings.

    With ``attribute: age``, ``privileged`` is a range of ages, ``[from, below]``.
    """

    needs: ClassVar[Needs] = Needs.more("weights hospitals by their own figures")

    attribute: Attribute = "sex"
    """The attribute that divides patients into groups."""
    privileged: Privileged = "Male"
    """The value of the attribute, or the range of ages, in the privileged group."""
    beta: NonNegativeFloat = 1.0
    """β: how fast a hospital's weight falls if the model's fairness at this hospital differs from its fairness over all
    hospitals."""
    positive: NonNegativeInt = 1
    """The class whose true positive rate is compared."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_group(self.attribute, self.privileged)

    def check_training(self, training: Training) -> None:
        if not training.classes:
            raise ValueError(
                "strategy.name: fairfed compares true positive rates, but this label is a number; choose another "
                "strategy"
            )
        if self.positive >= training.classes:
            raise ValueError(
                f"strategy.positive: {self.positive} must be below {training.classes}, the number of classes; give the "
                "number of a class, from 0"
            )
        try:
            check_patients(training.patients(), self.attribute, self.privileged)
        except ValueError as error:
            raise ValueError(f"strategy.{error}") from None

    def setup(self, view: FederationView) -> FairState:
        return FairState(models=view.initial[None, :].copy(), omega=shares(view.sizes))

    def uses_selection(self) -> bool:
        return False

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        return view.present

    def problem(self, view: FederationView, state: State, ids: Ids) -> FairProblem:
        program = GroupCounts(self.attribute, self.privileged, self.positive)
        omega = own_state(state, FairState).omega.copy()
        counts = statistics_of(view, program, ids, state.models)
        omega[ids] = renewed_weights(omega[ids], counts, self.beta)
        present = omega[ids].sum()
        weight = omega[ids] / present if present > 0 else shares(view.sizes[ids])
        return FairProblem(start=np.zeros_like(ids), upload=Upload(weight), omega=omega)

    def aggregate(self, view: FederationView, state: State, update: Update) -> FairState:
        if not isinstance(update.problem, FairProblem):
            raise TypeError("update.problem: is not a FairProblem; pass an update of a problem that this strategy made")
        return replace(own_state(state, FairState), models=state.models + update.sums, omega=update.problem.omega)


def renewed_weights(omega: Floats, counts: Floats, beta: float) -> Floats:
    """Return the new weights ``[H]`` of H hospitals, from their weights so far and ``counts [H, 6]``
    (:class:`GroupCounts`)."""
    accuracy, gap = _measures(counts)
    accuracy_of_all, gap_of_all = _measures(counts.sum(axis=0))
    apart = np.where(np.isnan(gap), np.abs(accuracy_of_all - accuracy), np.abs(gap_of_all - gap))
    return np.asarray(np.maximum(omega - beta * (apart - apart.mean()), 0.0))


def _measures(counts: Floats) -> tuple[Floats, Floats]:
    n, right, others, right_others, privileged, right_privileged = np.moveaxis(counts, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return right / n, right_others / others - right_privileged / privileged


Attribute = Literal["sex", "ethnicity", "age"]
Privileged = str | tuple[float, float]
"""The privileged group: a sex or ethnicity, or ages from the first number to below the second."""

OTHERS, PRIVILEGED, UNKNOWN = 0, 1, -1
"""The indices of the groups of patients; ``UNKNOWN``: the attribute was not recorded."""


def check_group(attribute: str, privileged: Privileged) -> None:
    """Raise ``ValueError`` unless ``privileged`` is a range for ``age``, or a text for any other attribute."""
    if attribute != "age":
        if not isinstance(privileged, str):
            raise ValueError(
                f"privileged: {privileged} is a range of ages, but the attribute is {attribute}; give one of its values"
            )
    elif isinstance(privileged, str) or not privileged[0] < privileged[1]:
        raise ValueError(
            f"privileged: '{privileged}' is not a range of ages with the lower end first; write for example [18, 65]"
        )


def patient_groups(
    patients: Mapping[str, NDArray[Any]], attribute: Attribute, privileged: Privileged
) -> NDArray[np.int64]:
    """Return the group of each row's patient, ``[n]``: ``PRIVILEGED``, ``OTHERS`` or ``UNKNOWN``.

    Raises ``ValueError`` if the data lack the attribute.
    """
    if attribute not in patients:
        attributes = f"use one of {', '.join(patients)}" if patients else "use data with patients' attributes"
        raise ValueError(f"attribute: the data hold no patients' {attribute}; {attributes}")
    values = patients[attribute]
    if isinstance(privileged, str):
        inside, unknown = values == privileged, np.isin(np.char.lower(values.astype(str)), ("", "unknown"))
    else:
        inside, unknown = (values >= privileged[0]) & (values < privileged[1]), np.isnan(values)
    return np.where(inside, PRIVILEGED, np.where(unknown, UNKNOWN, OTHERS))


def check_patients(patients: Mapping[str, NDArray[Any]], attribute: Attribute, privileged: Privileged) -> None:
    """Raise ``ValueError`` if the data lack the attribute, or if the privileged or the other group is empty."""
    groups = patient_groups(patients, attribute, privileged)
    if not (groups == PRIVILEGED).any():
        values = patients[attribute]
        values_there = ", ".join(np.unique(values).tolist()) if isinstance(privileged, str) else _range(values)
        raise ValueError(f"privileged: no patient's {attribute} is '{privileged}'; the data have {values_there}")
    if not (groups == OTHERS).any():
        raise ValueError(
            f"privileged: every patient whose {attribute} is known is in the group '{privileged}', so there is no "
            "group to compare it with; choose another value or attribute"
        )


def _range(ages: NDArray[Any]) -> str:
    recorded = ages[~np.isnan(ages)]
    return f"ages {recorded.min():g} to {recorded.max():g}" if len(recorded) else "no ages"
