"""Makes the tables ``unseen.csv``, ``unseen_summary.csv`` and ``unseen_difference.csv``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.config.sections.evaluation import ClinicalSection
from raysim.core.levels import Z
from raysim.core.streams import stream
from raysim.data.federation import Federation
from raysim.engine.job import Result
from raysim.experiment.scores import MODEL as SCORE
from raysim.experiment.unseen.measured import Unseen
from raysim.experiment.unseen.rows import AllRows, Judged
from raysim.metrics.labels import CLASSIFICATION, REGRESSION, TaskKind
from raysim.report.tables import KEYS, baseline_of
from raysim.statistics.clinical.calibration import ENOUGH, Groups
from raysim.statistics.clinical.clinical_figures import figures as clinical_figures
from raysim.statistics.clinical.curves import unless_broken
from raysim.statistics.clinical.thresholds import gained
from raysim.statistics.differences.paired import Paired, paired
from raysim.statistics.discrimination.auroc import delong_of_sums, pair_sums, placements
from raysim.statistics.discrimination.common_curve import common_curve
from raysim.statistics.discrimination.sketches import patient_part, sketches
from raysim.statistics.intervals import auroc_interval
from raysim.statistics.meta_analysis.between_hospitals import WIDEST, WIDEST_UNBOUNDED, Pooled, pooled

AUROC, RATIO, GAINED = "auroc", "observed_over_expected", "net_benefit_gained"
IN_THE_LARGE = "calibration_in_the_large"
ERROR = REGRESSION.headline

SKILL = "log_loss_skill"
"""A metric: 1 minus a ratio, the model's log loss divided by the log loss of a constant prediction. The constant is the
share of events among the participants' training rows."""

FEWEST_ROWS = 10
"""Smallest number of rows for which the variance of a hospital's log loss is computed."""

FEWEST_DECISIONS = 30
"""Hospitals with fewer rows than this are left out of the mean gain in net benefit."""

MOST_LACKING = 0.1
"""If more than this share of hospitals has too few events or other rows, two means over hospitals are undefined: the
ratio of observed to expected events, and calibration in the large. See :func:`_many_lack`."""


def by_hospital(unseen: Sequence[Unseen], task: TaskKind, clinical: ClinicalSection | None) -> pd.DataFrame:
    """Make ``unseen.csv``: one row per strategy, model, seed, left-out hospital and ``k``, the number of the hospital's
    labelled rows that adapt the model.
    """
    return pd.concat([_by_hospital(each, task, clinical) for each in unseen], ignore_index=True)


def _by_hospital(each: Unseen, task: TaskKind, clinical: ClinicalSection | None) -> pd.DataFrame:
    columns = dict(zip(task.figures, each.figures.T, strict=True))
    n = columns.pop("n")
    events = columns.pop(task.counts[0]) if task.counts else np.full(len(n), np.nan)
    head: dict[str, object] = {
        "strategy": each.strategy,
        "model": each.model,
        "seed": each.seed,
        "fold": each.fold,
        "hospital": each.hospitals,
        "k": each.k,
        "rows": n.astype(np.int64),
        "events": events,
        "non_events": n - events,
        "served_by": each.served_by,
    }
    if each.pairs is not None:
        auroc, variance = delong_of_sums(each.pairs)
        interval = auroc_interval(auroc, variance, each.pairs.events, each.pairs.non_events)
        defined = np.isfinite(columns[AUROC])
        limits = {"auroc_low": interval.low, "auroc_high": interval.high}
        head |= {AUROC: columns.pop(AUROC)} | {name: np.where(defined, end, np.nan) for name, end in limits.items()}
    if each.scored is not None and np.isfinite(each.prevalence).any():
        columns[SKILL] = _skill(each)[0]
    if each.scores is not None and clinical is not None:
        rng = stream(0, f"unseen/{each.model}")
        for figure in clinical_figures(each.scores, clinical.counted_at, (), clinical.bins, rng, each.scored):
            name = figure.name if np.isnan(figure.at) else f"{figure.name}_{figure.at:g}"
            columns |= {name: figure.value, f"{name}_low": figure.low, f"{name}_high": figure.high}
    return pd.DataFrame(head | columns)


def summary(unseen: Sequence[Unseen], table: pd.DataFrame, clinical: ClinicalSection | None) -> pd.DataFrame:
    """Make ``unseen_summary.csv``: means over hospitals by strategy, model, metric and ``k``.

    ``k`` is the number of labelled rows that adapt the model. ``table`` is the result of :func:`by_hospital`.
    ``unseen_summary.csv`` is empty for a label of more than two classes.
    """
    rows = []
    for strategy, model, k in dict.fromkeys((each.strategy, each.model, each.k) for each in unseen):
        of = [each for each in unseen if (each.strategy, each.model, each.k) == (strategy, model, k)]
        part = table[(table["strategy"] == strategy) & (table["model"] == model) & (table["k"] == k)]
        for figure, found in _pooled_figures(of, part, () if clinical is None else clinical.counted_at).items():
            rows.append({"strategy": strategy, "model": model, "figure": figure, "k": k} | found._asdict())
    return pd.DataFrame(rows, columns=["strategy", "model", "figure", "k", *Pooled._fields])


def _pooled_figures(of: Sequence[Unseen], part: pd.DataFrame, thresholds: Sequence[float]) -> dict[str, Pooled]:
    found: dict[str, Pooled] = {}
    pairs = [each.pairs for each in of if each.pairs is not None]
    if len(pairs) == len(of):
        curves = [common_curve(sums) for sums in pairs]
        auroc = np.mean([each.figures[:, CLASSIFICATION.figures.index(AUROC)] for each in of], axis=0)
        found[AUROC] = _within(pooled(auroc, np.mean([curve.variance for curve in curves], axis=0), WIDEST), 1.0)
    means = part.groupby("hospital", sort=False).mean(numeric_only=True)
    scored = [each.scored for each in of if each.scored is not None]
    if len(scored) == len(of):
        n, variances = means["rows"].to_numpy(), np.mean([_loss_variances(each) for each in scored], axis=0)
        found["log_loss"] = pooled(means["log_loss"].to_numpy(), _smoothed(variances, n), WIDEST_UNBOUNDED)
        if SKILL in means:
            skill, variances = np.mean([_skill(each) for each in of], axis=0)
            found[SKILL] = pooled(skill, _smoothed(variances, n), WIDEST_UNBOUNDED)
    n, events = means["rows"].to_numpy(), means["events"].to_numpy()
    if RATIO in means:
        found[RATIO] = _pooled_ratio(means[RATIO].to_numpy(), n, events)
    for name in (IN_THE_LARGE, "calibration_slope"):
        if name in means:
            value, se = means[name].to_numpy(), (means[f"{name}_high"] - means[f"{name}_low"]).to_numpy() / (2 * Z)
            # Of hospitals with few events, those that reach the needed number by chance have high intercepts.
            if name == IN_THE_LARGE and _many_lack(n, np.minimum(events, n - events) < ENOUGH):
                value = np.full_like(value, np.nan)
            found[name] = pooled(value, se**2, WIDEST_UNBOUNDED)
    if ERROR in means:
        found[ERROR] = _pooled_errors(*(means[name].to_numpy() for name in (ERROR, "rmse", "rows")))
    return found | _benefits(of, thresholds)


def _within(found: Pooled, most: float) -> Pooled:
    """Cut both intervals of a metric to its possible values, from 0 to ``most``."""
    ends = ("low", "high", "next_low", "next_high")
    cut: dict[str, Any] = {end: float(np.clip(getattr(found, end), 0.0, most)) for end in ends}
    return found._replace(**cut)


def _many_lack(n: NDArray[Any], lacking: NDArray[Any]) -> bool:
    """Return whether too many hospitals lack the rows that a metric needs: more than the share :data:`MOST_LACKING` of
    all hospitals with rows.

    ``lacking [H]`` marks these hospitals. A mean over the other hospitals would be biased.
    """
    return bool(lacking[n > 0].sum() > MOST_LACKING * (n > 0).sum())


def _pooled_ratio(ratio: NDArray[Any], n: NDArray[Any], events: NDArray[Any]) -> Pooled:
    """Pool the logarithms of hospitals' ratios of observed to expected events. The result has ratios, but ``tau`` is
    the standard deviation of the logarithms. Hospitals without events are left out; if they are too many, the result is
    NaN.
    """
    if _many_lack(n, events < 1):
        ratio = np.full_like(ratio, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = events / ratio
        known = np.isfinite(expected)
        # The variance is for one ratio at all hospitals: from a hospital's own events it would be correlated with the
        # ratio, and hospitals with many events by chance would weigh more.
        share = np.clip(events[known].sum() / expected[known].sum() * expected / n, 0.5 / n, 1 - 0.5 / n)
        # The logarithm of a small count is too low on average; part of an event is added to correct this.
        logs = pooled(np.log((events + (1 - share) / 2) / expected), (1 - share) / (n * share), WIDEST_UNBOUNDED)
    ends = ("estimate", "low", "high", "next_low", "next_high")
    ratios: dict[str, Any] = {name: float(np.exp(getattr(logs, name))) for name in ends}
    return logs._replace(**ratios)


def _pooled_errors(mae: NDArray[Any], rmse: NDArray[Any], rows: NDArray[Any]) -> Pooled:
    """Pool hospitals' mean absolute errors. The standard deviation between hospitals is at most
    :data:`WIDEST_UNBOUNDED` times the mean of these errors.
    """
    known = np.isfinite(mae) & np.isfinite(rmse)
    unit = float(mae[known].mean()) if known.any() else 1.0
    mae, rmse = np.where(known, [mae, rmse], np.nan)
    variance = _smoothed(np.maximum(rmse**2 - mae**2, 0.0) / np.maximum(rows, 1), rows)
    found = _within(pooled(mae / unit, variance / unit**2, WIDEST_UNBOUNDED), np.inf)
    return found._replace(**{name: unit * getattr(found, name) for name in Pooled._fields[:-1]})


def _benefits(of: Sequence[Unseen], thresholds: Sequence[float]) -> dict[str, Pooled]:
    """Return, for each threshold, the pooled difference of net benefit between the model and the better default.

    The defaults are to act on everyone and to act on no one. The result is NaN if no decision of the model differs from
    the better default.
    """
    counts = [each.scores for each in of if each.scores is not None]
    found: dict[str, Pooled] = {}
    for t, at in enumerate(thresholds if len(counts) == len(of) else ()):
        each = [
            gained(c.at_least[:, t, 0], c.at_least[:, t, 1], c.events, unless_broken(c, c.rows), at) for c in counts
        ]
        value, variance = (np.mean([one[i] for one in each], axis=0) for i in range(2))
        enough = np.isfinite(value) & (counts[0].rows >= FEWEST_DECISIONS)
        variance = _smoothed(np.where(enough, variance, np.nan), counts[0].rows)
        found[f"{GAINED}_{at:g}"] = pooled(value, variance, WIDEST)
    return found


def _smoothed(variance: NDArray[np.float64], rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return the sampling variance of each hospital's mean over its ``rows [H]``, if a single row has the same variance
    at all hospitals.

    ``variance [H]`` are the variances computed from each hospital's own rows.

    A hospital's own variance is correlated with its mean: by chance, few events make both the log loss and its variance
    small. Weights from such variances would therefore bias the mean over hospitals.
    """
    known = np.isfinite(variance) & (rows > 1)
    if not known.any():
        return variance
    of_row = np.average((variance * rows)[known], weights=rows[known] - 1)
    return np.where(known, of_row / np.maximum(rows, 1), np.nan)


def _loss_variances(scored: Sequence[Groups]) -> NDArray[np.float64]:
    """Return the sampling variance of each hospital's mean log loss.

    NaN for hospitals with fewer rows than :data:`FEWEST_ROWS`, or with a prediction that is not finite.
    """
    found = np.full(len(scored), np.nan)
    for h, (logit, _, events) in enumerate(scored):
        if len(logit) >= FEWEST_ROWS and np.isfinite(logit).all():
            found[h] = np.logaddexp(0, np.where(events > 0, -logit, logit)).var(ddof=1) / len(logit)
    return found


def _skill(each: Unseen) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each hospital's skill (see :data:`SKILL`), and the sampling variance of this skill.

    Both are NaN for hospitals with fewer rows than :data:`FEWEST_ROWS`, or with a prediction that is not finite.
    """
    found = np.full((2, len(each.hospitals)), np.nan)
    for h, ((logit, _, events), prevalence) in enumerate(zip(each.scored or (), each.prevalence, strict=True)):
        if len(logit) >= FEWEST_ROWS and np.isfinite(logit).all():
            loss = np.logaddexp(0, np.where(events > 0, -logit, logit))
            constant = -np.log(np.where(events > 0, prevalence, 1 - prevalence))
            ratio = loss.mean() / constant.mean()
            found[:, h] = 1 - ratio, (loss - ratio * constant).var(ddof=1) / len(loss) / constant.mean() ** 2
    return found[0], found[1]


def differences(
    unseen: Sequence[Unseen],
    results: Sequence[Result],
    left_out: Sequence[Judged],
    reference: str,
    on_rows_of: Callable[[str, Unseen], Unseen],
) -> pd.DataFrame:
    """Make ``unseen_difference.csv``: differences of AUROC per strategy and model; empty unless the label has two
    classes.

    One row has the AUROC at hospitals that take part in training, minus the AUROC at the same hospitals when left out.
    Another row has the AUROC at left-out hospitals minus the AUROC of the reference at the same hospitals. The
    reference is the model of the strategy ``reference`` that :func:`~raysim.report.tables.baseline_of` returns. In this
    second row, models are adapted with the smallest configured number of labelled rows.
    """
    at_once = [each for each in unseen if each.k == unseen[0].k and each.pairs is not None]
    models = list(dict.fromkeys((each.strategy, each.model) for each in at_once))
    against, rows = baseline_of(pd.DataFrame(models, columns=KEYS), reference), []
    for strategy, model in models:
        ours = {each.seed: each for each in at_once if (each.strategy, each.model) == (strategy, model)}
        taking_part = _seen_less_unseen(results, left_out, strategy, model)
        if taking_part is not None:
            rows.append(_row(strategy, model, "seen less unseen", taking_part))
        theirs = {each.seed: each for each in at_once if (each.strategy, each.model) == against}
        if model == SCORE:
            theirs = {seed: on_rows_of(strategy, each) for seed, each in theirs.items()}
        if (strategy, model) != against and theirs.keys() == ours.keys():
            rows.append(_row(strategy, model, f"less {reference}", _between(ours, theirs)))
    columns = ["strategy", "model", "comparison", "figure", "difference", "low", "high", "hospitals", "seeds"]
    return pd.DataFrame(rows, columns=columns)


def _row(strategy: str, model: str, comparison: str, pair: Paired) -> dict[str, object]:
    interval = pair.population()
    return {
        "strategy": strategy,
        "model": model,
        "comparison": comparison,
        "figure": AUROC,
        "difference": pair.difference,
        "low": interval.low,
        "high": interval.high,
        "hospitals": pair.hospitals,
        "seeds": pair.seeds,
    }


def _between(ours: Mapping[int, Unseen], theirs: Mapping[int, Unseen]) -> Paired:
    at = CLASSIFICATION.figures.index(AUROC)
    a, b = (np.stack([of[seed].figures[:, at] for seed in sorted(of)]) for of in (ours, theirs))
    n = np.stack([np.diff(ours[seed].offsets) for seed in sorted(ours)]).astype(float)
    counted = np.where(np.isfinite(a - b), n, 0.0)
    return paired(a, b, n, patients=patient_part(_sums(ours), _sums(theirs), counted))


def _sums(of: Mapping[int, Unseen]) -> list[NDArray[np.float32]]:
    """Return what hospitals sent to estimate the covariance of AUROC between models, one array per seed."""
    return [each.sketched.sums for _, each in sorted(of.items()) if each.sketched is not None]


def _seen_less_unseen(
    results: Sequence[Result], left_out: Sequence[Judged], strategy: str, model: str
) -> Paired | None:
    """Return hospitals' AUROC when they take part in training minus their AUROC when left out, paired on the same test
    rows.

    Returns None if a run is missing or has no data on the covariance of AUROC.
    """
    with_hospital = {
        result.seed: result for result in results if result.label == strategy and model in result.outcome.figures
    }
    seeds = sorted(with_hospital)
    names = list(dict.fromkeys(name for each in left_out for name in each.fold.held))
    a, b, n = (np.full((len(seeds), len(names)), np.nan) for _ in range(3))
    ours, theirs = [], []
    at = CLASSIFICATION.figures.index(AUROC)
    for s, seed in enumerate(seeds):
        of_seed, blocks = with_hospital[seed], []
        runs = [each for each in left_out if (each.strategy, each.seed) == (strategy, seed)]
        home = {name: run for run in runs for name in run.fold.held}
        if model not in of_seed.outcome.sketches or set(home) != set(names):
            return None
        ids = [of_seed.federation.hospitals.index(name) for name in names]
        for h, name in zip(ids, names, strict=True):
            blocks.append(_without(of_seed.federation, h, home[name].everything[name], model))
        offsets = np.concatenate([[0], np.cumsum([len(block[0]) for block in blocks])]).astype(np.int64)
        margins, y, patients = (np.concatenate([block[i] for block in blocks]) for i in range(3))
        b[s] = delong_of_sums(pair_sums(margins, y, offsets))[0]
        a[s] = of_seed.outcome.figures[model][ids, at]
        n[s] = np.diff(offsets)
        ours.append(of_seed.outcome.sketches[model][ids])
        theirs.append(sketches(placements(margins, y, offsets), np.array(ids), patients))
    counted = np.where(np.isfinite(a - b), n, 0.0)
    return paired(a, b, n, patients=patient_part(ours, theirs, counted)) if seeds else None


def _without(federation: Federation, h: int, without: AllRows, model: str) -> tuple[NDArray[Any], ...]:
    """Return log-odds, labels and patient ids of hospital ``h``'s test rows in ``federation``. The log-odds are from
    the run that left out the hospital.
    """
    tested = federation.rows(h, "test")
    position = {row: i for i, row in enumerate(without.source_rows.tolist())}
    at = [position[row] for row in federation.source_rows[tested].tolist()]
    return without.margins[model][at], federation.y[tested], federation.identities[tested]
