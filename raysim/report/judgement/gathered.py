"""Collect the numbers behind the lines of a decision card from results and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.config.sections.evaluation import ClinicalSection
from raysim.core.levels import ALPHA
from raysim.data.federation import PARTS, Federation
from raysim.engine.job import Outcome, Result
from raysim.metrics.labels import TaskKind, reporting
from raysim.metrics.measures import hanley_mcneil
from raysim.metrics.score_counts import ScoreCounts
from raysim.metrics.segments import ranges
from raysim.report import possible
from raysim.report.judgement.card import Line
from raysim.report.judgement.evidence import Evidence
from raysim.report.judgement.facts.calibration import Calibration
from raysim.report.judgement.facts.harmed import harmed
from raysim.report.judgement.facts.limits import Data, unseen
from raysim.report.judgement.facts.wording import CHANCE
from raysim.report.judgement.judged import rarer
from raysim.report.naming import Key
from raysim.report.panel import Panel, sent
from raysim.report.tables import read_csv
from raysim.statistics.clinical.by_hospital import calibration_by_hospital, calibration_over_seeds
from raysim.statistics.clinical.usefulness import Usefulness, usefulness
from raysim.statistics.differences.harm import harm
from raysim.statistics.differences.one_hospital import Sent
from raysim.statistics.differences.paired import Limits, Paired
from raysim.statistics.differences.simultaneous import tests
from raysim.statistics.intervals import score_interval
from raysim.statistics.over_seeds import over_seeds
from raysim.storage.clinical_tables import EQUITY


@dataclass(frozen=True)
class Asked:
    """The settings of the configuration that a decision card needs."""

    predicts: str
    """The predicted outcome, such as ``death in hospital``."""
    part: str
    """The evaluated part of the rows, such as ``test``."""
    clinical: ClinicalSection | None
    """The settings of the clinical metrics; None if they are not computed."""
    counted: bool
    """Whether numbers of rows are public."""
    trains: bool = True
    """Whether raysim trains the models; False for predictions of other programs."""


def data_of(results: Sequence[Result], hospitals: pd.DataFrame, asked: Asked, key: Key | None) -> Data:
    """Describe the data on which the model ``key`` was evaluated: numbers of hospitals, rows and events.

    If ``key`` is None, the main metric counts as undefined at every hospital.
    """
    kind, rows, events = reporting(hospitals), None, None
    if results and asked.counted:
        federation = results[0].federation
        rows = int(federation.totals.sum())
        events = int(np.count_nonzero(federation.y)) if len(federation.classes) == 2 else None
    table = hospitals
    if key is not None:
        table = hospitals[(hospitals["strategy"] == key[0]) & (hospitals["model"] == key[1])]
    tested = table["n_test"].to_numpy(float)
    defined = (key is not None) & np.isfinite(table[kind.headline].to_numpy(float)) & (tested > 0)
    by_hospital = pd.DataFrame({"rarer": [], "tested": []})
    if "events_test" in table and table["events_test"].notna().any():
        by_row = {"rarer": rarer(table["events_test"].to_numpy(float, na_value=np.nan), tested), "tested": tested}
        by_hospital = pd.DataFrame(by_row).groupby(table["hospital"].to_numpy()).mean()
    return Data(
        asked.predicts,
        table["hospital"].nunique(),
        rows,
        events,
        asked.part,
        table["hospital"][defined].nunique(),
        float(tested[defined].sum() / tested.sum()) if tested.sum() else 0.0,
        tuple(by_hospital["rarer"]),
        tuple(by_hospital["tested"]),
        _outside(table) if asked.counted else (),
        not results or any(_trained(result) for result in results),
        asked.trains,
        per_patient(results[0].federation, asked.part) if results and asked.counted else 1.0,
    )


def per_patient(federation: Federation, part: str) -> float:
    """Return the mean number of rows per patient in one ``part`` of the data, such as ``test``."""
    rows = ranges(federation.bounds[:, PARTS.index(part)], federation.sizes(part))
    # Sorting takes a hundredth of the time of np.unique, whose hashes of consecutive numbers collide.
    patients = np.sort(federation.identities[rows])
    return len(rows) / (1 + int(np.count_nonzero(np.diff(patients))))


def _outside(table: pd.DataFrame) -> tuple[str, ...]:
    if not {"n_train", "n_validation"} <= set(table):
        return ()
    rows = table.groupby("hospital", sort=False)[["n_train", "n_validation", "n_test"]].sum()
    outside = (rows["n_train"] + rows["n_validation"] == 0) & (rows["n_test"] > 0)
    return () if outside.all() else tuple(map(str, rows.index[outside]))


def _trained(result: Result) -> bool:
    return not result.outcome.models.size or any(row.round > 0 for row in result.outcome.rounds)


def unseen_of(results: Sequence[Result], hospitals: pd.DataFrame, key: Key, data: Data, kind: TaskKind) -> Line:
    """Write the decision card's line on the model ``key`` at hospitals outside its training."""
    level = Panel.of(hospitals[hospitals["hospital"].isin(data.outside)], sent(results)).level(key)
    return unseen(kind, data, level, level_interval(kind, level)[0])


def _outcomes(results: Sequence[Result], key: Key) -> dict[int, Outcome]:
    return {
        result.seed: result.outcome for result in results if result.label == key[0] and key[1] in result.outcome.figures
    }


def _scores(results: Sequence[Result], key: Key) -> list[ScoreCounts]:
    return [outcome.scores[key[1]] for outcome in _outcomes(results, key).values() if key[1] in outcome.scores]


def useful_of(results: Sequence[Result], key: Key, clinical: ClinicalSection | None) -> Usefulness | None:
    """Measure whether acting on a model has a net benefit; None without clinical metrics or counts of rows by risk."""
    counts = _scores(results, key)
    return None if clinical is None or not counts else usefulness(counts, clinical.counted_at, clinical.act_at)


def calibration_of(results: Sequence[Result], key: Key) -> Calibration | None:
    """Return the calibration of a model, averaged over seeds; None if no run has counts of rows by risk."""
    counts = _scores(results, key)
    if not counts:
        return None
    together = [calibration_by_hospital(each.together()) for each in counts]
    ratio, low, high, rows, expected = (
        np.array([getattr(each, name) for each in together]) for name in ("ratio", "low", "high", "rows", "expected")
    )
    most = float(np.mean(rows / np.where(expected > 0, expected, np.nan)))  # the ratio if every row were an event
    pooled = over_seeds(ratio, low, high, within=(0.0, most if np.isfinite(most) else np.inf), ratio=True)
    folders = [r.folder for r in results if r.label == key[0] and key[1] in r.outcome.scores]
    chances = [
        _between_hospitals(read_csv(folder / EQUITY), key[1]) for folder in folders if (folder / EQUITY).is_file()
    ]
    known = [p for p in chances if np.isfinite(p)]
    return Calibration(
        float(pooled.value[0]),
        Limits(float(pooled.low[0]), float(pooled.high[0])),
        most_seeds(known),
        calibration_over_seeds([calibration_by_hospital(each) for each in counts]),
    )


def most_seeds(p: Sequence[float]) -> float:
    """Combine the p-values that one test has under several seeds; NaN if there are none.

    Seeds share test rows, so p-values are dependent. The result is twice the (upper) median, at most 1, and is valid
    under any dependence (N. Meinshausen, L. Meier, P. Bühlmann: *p-Values for High-Dimensional Regression*, JASA 104,
    2009). Of one or two p-values, the result is the larger one.
    """
    if len(p) < 3:
        return max(p, default=float("nan"))
    return min(1.0, 2 * sorted(p)[len(p) // 2])


def _between_hospitals(equity: pd.DataFrame, model: str) -> float:
    """Return the p-value of the hypothesis that calibration in the large is equal at all hospitals."""
    of = equity[(equity["model"].astype(str) == model) & (equity["figure"] == "calibration_in_the_large")]
    return float(of["p"].iloc[0]) if len(of) else float("nan")


def harm_of(results: Sequence[Result], key: Key, against: Key, name: str) -> tuple[dict[str, Any] | None, Line | None]:
    """Find the hospitals at which the model ``key`` is demonstrably worse than the model ``against``, called ``name``.

    Returns the content of ``harmed`` in ``answer.json`` and the decision card's line. Both are None if the models are
    the same, or if the label does not have two classes.
    """
    ours, theirs = _outcomes(results, key), _outcomes(results, against)
    seeds = [seed for seed in ours if seed in theirs]
    sides = []
    for of, model in ((ours, key[1]), (theirs, against[1])):
        sides.append([Sent(of[s].pairs[model], of[s].sketches[model]) for s in seeds if model in of[s].sketches])
    if key == against or not sides[0] or len(sides[0]) != len(sides[1]):
        return None, None
    return harmed(harm(*sides), results[0].federation.hospitals, name)


def level_interval(kind: TaskKind, level: Paired, data: Data | None = None) -> tuple[Limits, bool]:
    """Return the interval of a model's mean main metric, and whether it covers other hospitals of the same kind.

    If an interval that covers other hospitals includes an AUROC of 0.5, and the narrower interval for these hospitals
    and trained models lies above 0.5, the narrower one is returned: a wide interval from few hospitals or seeds is no
    evidence against the model.
    """
    if kind.larger and level.difference in (0.0, 1.0) and data is not None:
        return _without_spread(level.difference, data), True
    interval = level.population() if level.hospitals > 1 and level.variance > 0 else level.fixed()
    like_these = possible.level(interval, kind.larger)
    if kind.larger and level.hospitals > 1 and not like_these.low > CHANCE:
        these = possible.level(replace(level, seed_variance=0.0).fixed(), kind.larger)
        if these.low > CHANCE:
            return these, False
    return like_these, level.hospitals > 1


def _without_spread(auroc: float, data: Data) -> Limits:
    """Return the score interval of a mean AUROC of exactly 0 or 1, whose estimated variance is 0.

    The variance of each hospital's AUROC is from :func:`hanley_mcneil`.
    """
    tested, events = np.array(data.tested), np.array(data.rarer)
    judged = events > 0
    share = tested[judged] / tested[judged].sum()
    m, n = events[judged], tested[judged] - events[judged]

    def variance(t: NDArray[np.float64], *_: object) -> NDArray[np.float64]:
        return np.asarray(np.square(share) @ hanley_mcneil(t, m, n))

    low, high = score_interval(auroc, 1, 1, variance)
    return possible.level(Limits(float(low), float(high)), larger=True)


def visible_sizes(evidence: Evidence) -> list[float]:
    """Return the smallest differences from the recommended method that this comparison detects with 80 % power.

    The list has one difference for each method that does not demonstrably differ from the recommended one; it is empty
    with a single seed. A difference that the AUROC cannot reach is infinite.
    """
    if evidence.one_seed:
        return []
    others = (i for i in range(len(evidence.entries)) if i != evidence.best)
    # Claims hold jointly for all pairs of methods: a single difference is found at the first step of Holm's procedure.
    alpha = ALPHA / max(len(tests(tuple(evidence.differences.values()))), 1)
    open_ = [i for i in others if not evidence.between(i, evidence.best)[1].shows]
    sizes = [evidence.pair(i, evidence.best).visible(alpha) for i in open_]
    return _possible(sizes, evidence, evidence.levels[evidence.best])


def visible_from_alone(evidence: Evidence) -> list[float]:
    """Return the smallest difference of the recommended method from training alone that is detected with 80 % power.

    The list is empty if the difference is demonstrated, if training alone was not run, or with a single seed. A
    difference that the AUROC cannot reach is infinite.
    """
    if evidence.alone is None or evidence.over_alone_intervals[evidence.best].shows:
        return []
    pair = evidence.over_alone[evidence.best]
    sizes = [pair.visible(ALPHA / max(evidence.over_alone_tests, 1))] if pair.of_training else []
    return _possible(sizes, evidence, evidence.references[evidence.alone].level.difference)


def _possible(sizes: Sequence[float], evidence: Evidence, level: float) -> list[float]:
    return [size if possible.visible(size, evidence.kind.larger, level) else np.inf for size in sizes if size == size]
