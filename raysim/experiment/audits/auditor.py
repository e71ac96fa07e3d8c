"""Train one job on variants of its federation, and try to infer training rows from its models, updates and sums."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.audit import inversion, one_run
from raysim.audit.inversion import rows_read
from raysim.audit.membership import FALSE_POSITIVES, confidence, detection, lira
from raysim.core.streams import stream
from raysim.data.derived.rearranged import Added, random_half, rearranged, trained_on
from raysim.data.federation import Federation
from raysim.engine.job import Job, Outcome
from raysim.experiment.session import Session
from raysim.statistics.discrimination.auroc import delong, placements
from raysim.statistics.intervals import auroc_interval
from raysim.statistics.meta_analysis.size_slope import size_slope
from raysim.statistics.meta_analysis.spread import paule_mandel
from raysim.training.base import Model, Optimizer, Task
from raysim.training.kernels.clipped import DenseLayers

Opened = Callable[[Federation], AbstractContextManager[Session]]
"""A function that opens a session with the hospitals of a federation."""

DELTA = 1e-5
"""The delta for which an audit bounds epsilon from below if the run has no privacy guarantee."""

CANARY = 3.0
"""Absolute value of every feature of a canary (an artificial training row), in standard deviations."""


@dataclass(frozen=True, eq=False)
class Audit:
    """The results of an audit's attacks."""

    membership: pd.DataFrame
    """One row per attack and hospital, and one row per attack for all hospitals together: see ``docs/audit.md``."""
    inverted: pd.DataFrame | None
    """One row per feature of one patient, and one for the label: the true and the reconstructed value. None if not all
    layers of the model are dense."""
    summary: dict[str, Any]
    """The results of each attack for the whole federation, as values for JSON."""


class Auditor:
    """Trains one job on variants of its data, and attacks the trained models."""

    def __init__(
        self, job: Job, federation: Federation, opened: Opened, folder: Path, say: Callable[[str], None]
    ) -> None:
        evaluation = job.evaluation.model_copy(update={"every": 0, "predictions": True, "groups": ()})
        # Recalibration uses validation rows, which are no members, and does not change the ranking of rows.
        last = replace(job.last, recalibration=None)
        self._job = replace(job, evaluation=evaluation, adversary=None, last=last)
        self._federation, self._opened, self._folder, self._say = federation, opened, folder, say

    def audit(self, shadows: int, canaries: int) -> Audit:
        """Run all attacks, with ``shadows`` shadow models and ``canaries`` canaries."""
        federation, none = self._federation, Added.none(self._federation)
        members = trained_on(federation)
        margins, labels, _ = self._trained(members, none, "target", self._job.work.seed)
        tables = [self._table("loss_threshold", confidence(margins, labels), members, self._tested(members))]
        summary: dict[str, Any] = {"rows": int(members.sum()), "shadows": shadows}
        if shadows:
            scores, inside = self._shadows(shadows)
            tables.append(self._table("lira", scores, inside, np.isfinite(scores)))
        if canaries:
            summary["one_run"] = self._canaries(canaries)
        membership = pd.concat(tables, ignore_index=True)
        for attack, rows in membership.groupby("attack", sort=False):
            summary[str(attack)] = _federation_figures(rows)
        if (of_sums := self._of_sums()) is not None:
            summary["sums"] = of_sums
        return Audit(membership, self._inverted(), summary)

    def _trained(
        self, trained: NDArray[np.bool_], added: Added, name: str, seed: int
    ) -> tuple[NDArray[Any], NDArray[Any], Outcome]:
        """Train on the rows marked in ``trained [N + k]``. The first ``N`` marks are for the federation's rows, the
        other ``k`` for the rows ``added``.

        Returns the headline model's outputs and the labels, both for all ``N + k`` rows, and the outcome of the
        training.
        """
        folder = self._folder / name
        folder.mkdir()
        federation = rearranged(self._federation, trained, added, folder)
        job = replace(self._job, work=replace(self._job.work, federation=str(folder), seed=seed))
        with self._opened(federation) as session:
            *_, outcome = session.run(job)
        if not isinstance(outcome, Outcome):
            raise AssertionError("the job ended without an outcome")
        predictions = list(outcome.predictions.values())[-1]
        outputs, labels = np.empty_like(predictions), np.empty_like(federation.y)
        outputs[federation.source_rows], labels[federation.source_rows] = predictions, federation.y
        return outputs, labels, outcome

    def _shadows(self, count: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Compute LiRA's score of every row under every shadow model, and whether the model was trained on the row.

        Both arrays are ``[count, N]``. The scores of validation rows are NaN.
        """
        federation, seed = self._federation, self._job.work.seed
        members = np.stack([random_half(federation, stream(seed, "shadow", j)) for j in range(count)])
        confidences = []
        for j, trained in enumerate(members):
            confidences.append(confidence(*self._trained(trained, Added.none(federation), f"shadow {j}", seed)[:2]))
            self._say(f"shadow {j + 1} of {count}")
        scores = np.stack([lira(np.stack(confidences), members, j) for j in range(count)])
        scores[:, ~self._tested(trained_on(self._federation))] = np.nan
        return scores, members

    def _tested(self, members: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a mask, ``[N]``, of the rows on which a membership attack is evaluated: the training rows, which
        ``members [N]`` marks, and the test rows.
        """
        judged = members.copy()
        for _, _, validation, stop in self._federation.bounds.tolist():
            judged[validation:stop] = True
        return judged

    def _canaries(self, count: int) -> dict[str, Any]:
        """Compute a lower bound of epsilon from ``count`` canaries, for an auditor who sees only the last model."""
        federation, seed = self._federation, self._job.work.seed
        rng = stream(seed, "canary")
        with_rows = np.flatnonzero(federation.sizes("train"))
        added = Added(
            X=(CANARY * rng.choice([-1.0, 1.0], (count, federation.X.shape[1]))).astype(np.float32),
            y=rng.integers(len(federation.classes), size=count).astype(federation.y.dtype),
            hospital=np.resize(with_rows, count).astype(np.int64),
        )
        coins = rng.random(count) < 0.5
        members = trained_on(federation)
        # The reference uses another seed: with the same seed, the noise of a private run would cancel.
        reference, labels, _ = self._trained(np.append(members, np.zeros(count, bool)), added, "without", seed + 1)
        margins, _, outcome = self._trained(np.append(members, coins), added, "canaries", seed)
        scores = (confidence(margins, labels) - confidence(reference, labels))[len(members) :]
        guesses = one_run.guessed(scores, coins)
        # With the last model alone, the canaries test only guarantees of single rows or patients.
        guaranteed = outcome.privacy if outcome.privacy is not None and outcome.privacy.unit != "hospital" else None
        delta = DELTA if guaranteed is None else guaranteed.delta
        return {
            "sees": "the last model",
            "against": "outsider",
            "unit": "example",
            **one_run.figures(guesses, delta),
            "epsilon_claimed": None if guaranteed is None else guaranteed.covered["outsider"],
        }

    def _table(
        self, attack: str, scores: NDArray[np.float64], members: NDArray[np.bool_], judged: NDArray[np.bool_]
    ) -> pd.DataFrame:
        """Evaluate how well ``scores [..., N]`` separate ``members`` from other rows. ``judged`` marks the rows that
        are evaluated.

        Returns one row per hospital, then one row for all hospitals together.
        """
        federation = self._federation
        rows = []
        stacked, inside, use = np.atleast_2d(scores), np.atleast_2d(members), np.atleast_2d(judged)
        for h, name in enumerate(federation.hospitals):
            cut = slice(int(federation.bounds[h, 0]), int(federation.bounds[h, 3]))
            judged_here = use[:, cut]
            rows.append(self._figures(attack, name, stacked[:, cut][judged_here], inside[:, cut][judged_here], h))
        rows.append(self._figures(attack, "", stacked[use], inside[use], None))
        return pd.DataFrame(rows)

    def _figures(
        self, attack: str, name: str, scores: NDArray[np.float64], members: NDArray[np.bool_], hospital: int | None
    ) -> dict[str, Any]:
        detected = detection(scores, members)
        placed = delong(placements(scores, members.astype(np.int64), np.array([0, len(scores)])))
        interval = auroc_interval(placed.auroc[0], placed.variance[0], placed.events, placed.non_events)
        sizes = self._federation.sizes("train")
        return {
            "attack": attack,
            "hospital": name or "(all)",
            "n_train": int(sizes.sum() if hospital is None else sizes[hospital]),
            "members": int(members.sum()),
            "others": int((~members).sum()),
            "auroc": detected.auroc,
            "auroc_low": float(interval.low[0]),
            "auroc_high": float(interval.high[0]),
            "variance": float(placed.variance[0, 0]),
        } | {f"found_at_{share:g}": caught for share, caught in detected.at.items()}

    def _of_sums(self) -> dict[str, Any] | None:
        """Count the training rows that can be reconstructed from the sums that hospitals send for a two-class
        regression. Returns None if hospitals send no such sums.
        """
        federation, strategy = self._federation, self._job.strategy
        clear = getattr(strategy, "sums", None) == "clear"
        if not (clear or strategy.hides_sums()) or len(federation.classes) != 2:
            return None
        columns, hospitals = federation.X.shape[1] + 1, np.flatnonzero(federation.sizes("train"))
        read = {}
        for hospital in hospitals.tolist():
            rows = federation.rows(hospital, "train")
            X, y = federation.X[rows].astype(np.float64), federation.y[rows].astype(np.float64)
            # This attack cannot reconstruct more rows than columns.
            read[hospital] = rows_read(X, y) if len(y) <= columns else 0
        return {
            "hospitals": len(hospitals),
            "read": sum(count > 0 for count in read.values()),
            "rows": sum(read.values()),
            "columns": columns,
            "fewest_rows": int(federation.sizes("train")[hospitals].min()),
            "protected": self._job.secure is not None or self._job.privacy is not None,
        }

    def _inverted(self) -> pd.DataFrame | None:
        """Reconstruct one patient's row from the update of a hospital that trains on this row alone.

        The training is by SGD without weight decay, whatever the run's optimizer. The result has one row per feature
        and one for the label. None if not all layers are dense.
        """
        work, federation = self._job.work, self._federation
        model: Model = work.model.bind(federation, "cpu", "float64")
        if not isinstance(model, DenseLayers):
            return None
        row = int(federation.bounds[np.flatnonzero(federation.sizes("train"))[0], 0])
        X, y = federation.X[row : row + 1].astype(np.float64), federation.y[row : row + 1]
        start = model.initial(stream(0, "inversion start"))
        task = Task(X, y, start, (), max(work.epochs, 1), 0.1, lambda epoch: stream(0, "inversion", epoch))
        change = model.train([task], Optimizer("sgd", 0.1, 0))[0] - start
        layers = list(model.layout.split(change).values())
        # The unit with the largest change has the smallest rounding error.
        unit = int(np.abs(layers[1]).argmax())
        read = inversion.invert_layer(layers[0], layers[1])[unit]
        label = inversion.invert_label(layers[-1])
        return pd.DataFrame(
            {
                "feature": [*federation.features, "(label)"],
                "patient": [*X[0], float(y[0])],
                "read_from_update": [*read, float(label)],
            }
        )


def _federation_figures(rows: pd.DataFrame) -> dict[str, Any]:
    """Return how well a membership attack succeeds over all rows, and how its AUROC depends on hospital size.

    The table ``rows`` has one row per hospital, then one row for all hospitals together.
    """
    everywhere, each = rows.iloc[-1], rows.iloc[:-1]
    # DeLong's variance shrinks as AUROC grows, which would bias the slope; under chance it depends on counts alone.
    chance = (each["members"] + each["others"] + 1.0) / (12.0 * each["members"] * each["others"])
    defined = each["auroc"].notna()
    spread = paule_mandel(each["auroc"][defined], chance[defined]) if defined.any() else 0.0
    slope = size_slope(each["auroc"], chance.where(defined), each["n_train"], spread if np.isfinite(spread) else 0.0)
    middle = float(np.log2(each["n_train"][defined & (each["n_train"] > 0)]).mean())
    return {
        "auroc": everywhere["auroc"],
        "auroc_low": everywhere["auroc_low"],
        "auroc_high": everywhere["auroc_high"],
        **{f"found_at_{share:g}": everywhere[f"found_at_{share:g}"] for share in FALSE_POSITIVES},
        "hospitals": int(each["auroc"].notna().sum()),
        "log2_middle": middle,
        "auroc_at_middle": slope.intercept + slope.doubling * middle,
        "slope_per_doubling": slope.doubling,
        "slope_low": slope.low * float(np.log(2.0)),
        "slope_high": slope.high * float(np.log(2.0)),
        "smaller_leak_more": bool(slope.high < 0),
        "larger_leak_more": bool(slope.low > 0),
    }
