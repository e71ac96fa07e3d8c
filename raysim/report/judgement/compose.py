"""Makes the decision card of a comparison or a run from its results: gathers figures, and puts the lines in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from raysim.config.sections.evaluation import ClinicalSection
from raysim.core.words import counted
from raysim.data.leaks import unusually_high
from raysim.engine.job import Outcome, Result
from raysim.metrics.labels import TaskKind, reporting
from raysim.metrics.score_counts import ScoreCounts
from raysim.report import possible
from raysim.report.judgement import recalibrating
from raysim.report.judgement.card import FACTS, Card, Federate, Line, Way
from raysim.report.judgement.evidence import Evidence
from raysim.report.judgement.facts import calibration as calibrating
from raysim.report.judgement.facts import federate as federating
from raysim.report.judgement.facts import limits as limiting
from raysim.report.judgement.facts.calibration import Calibration
from raysim.report.judgement.facts.fairness import NOT_TESTED, fairness
from raysim.report.judgement.facts.harmed import harmed
from raysim.report.judgement.facts.headline import Verdict, headline, use_of
from raysim.report.judgement.facts.limits import Data
from raysim.report.judgement.facts.quality import CHANCE, quality
from raysim.report.judgement.facts.which import NONE, stands, ways, which
from raysim.report.judgement.facts.wording import percent, plain
from raysim.report.judgement.noise import Noise
from raysim.report.naming import Key
from raysim.report.panel import Panel, sent
from raysim.report.tables import read_csv
from raysim.statistics.clinical.by_hospital import calibration_by_hospital, calibration_over_seeds
from raysim.statistics.clinical.usefulness import Usefulness, usefulness
from raysim.statistics.differences.harm import harm
from raysim.statistics.differences.one_hospital import Sent
from raysim.statistics.differences.paired import Limits, Paired
from raysim.statistics.over_seeds import over_seeds
from raysim.storage.clinical_tables import EQUITY
from raysim.strategies.shared.personalization import RECALIBRATED


@dataclass(frozen=True)
class Asked:
    """What the configuration says that a card needs."""

    predicts: str
    """What is predicted."""
    part: str
    """The part of the rows that is evaluated."""
    clinical: ClinicalSection | None
    """The clinical figures; None: there are none."""
    counted: bool
    """Whether rows may be counted."""


@dataclass(frozen=True)
class Remarks:
    """What other parts of a report have found that belongs on the card."""

    training: Line | None = None
    """Whether models are trained to the end."""
    leaks: tuple[Line, ...] = ()
    """Features that may give the label away."""
    cautions: tuple[str, ...] = ()
    """Clauses that limit the headline, such as a rate at the edge of what was tried."""


NO_REMARKS = Remarks()


def comparison_card(
    shown: Evidence | None,
    results: Sequence[Result],
    hospitals: pd.DataFrame,
    asked: Asked,
    *,
    names: Mapping[Key, str],
    noise: Mapping[Key, Noise],
    remarks: Remarks = NO_REMARKS,
) -> Card:
    """The card of a comparison.

    ``shown`` is its evidence, with labels as names; None where no headline figure is defined. Without ``results``
    nothing is known of calibration, net benefit and harm. ``hospitals`` as in :mod:`raysim.report.tables`; ``names``
    are what people call the models, and ``noise`` that of the first seed.
    """
    if shown is None:
        data, kind = _data(results, hospitals, asked, None), reporting(hospitals)
        undefined = quality(kind, float("nan"), NONE, 0, None)
        nothing = Line("limits", "warn", f"No {kind.title} is defined at any hospital.", None, "more events", True)
        lines = (limiting.predicts(data), undefined, nothing)
        return Card(
            _what(data, results, hospitals), nothing.text, lines, (), "none", "not tested", None, "", asked.predicts
        )
    called = shown.renamed(names)
    verdict, federate_line, alone = _federate(called)
    taken, reference = shown.entries[shown.best], None if shown.alone is None else shown.references[shown.alone]
    own = _calibration(results, taken.key)
    other = None if reference is None else _calibration(results, reference.key)
    # Where both rank alike, the one whose risks are not off is taken.
    right_alone = other is not None and own is not None and other.state != "warn" and own.state == "warn"
    to_alone = reference is not None and (verdict == "no" or (verdict == "equal" and right_alone))
    if to_alone and reference is not None:
        taken, own, other = reference, other, own
    against = taken.key if reference is None else reference.key
    if to_alone:
        against = shown.entries[shown.best].key
    elif reference is None and shown.base is not None:
        against = shown.entries[shown.base].key
    data = _data(results, hospitals, asked, taken.key)
    harm_numbers, harm_line = _harm(results, taken.key, against, plain(names[against]))
    pair = next(iter(called.over_alone[shown.best : shown.best + 1]), None) or _first_pair(shown)
    return _composed(
        data,
        _what(data, results, hospitals),
        shown.kind,
        own_names=_hospitals(results),
        useful=_useful(results, taken.key, asked.clinical),
        name=plain(names[taken.key]),
        level=taken.level,
        compared=True,
        recommended=plain(taken.name),
        federate=verdict,
        between=(federate_line, which(called)),
        harm=(harm_numbers, harm_line),
        own=own,
        runs=(results, taken.key),
        others=[] if other is None else [(alone if not to_alone else plain(names[against]), other)],
        groups=_fairness(noise, taken.key),
        limits=limiting.limits(data, pair, _visible(shown)),
        rows=ways(called, alone_taken=to_alone),
        remarks=remarks,
        one_seed=shown.one_seed or not all(each.of_training for each in shown.of_references),
        alone_taken=to_alone,
        stood=stands(shown),
    )


def run_card(
    result: Result,
    hospitals: pd.DataFrame,
    asked: Asked,
    *,
    noise: Mapping[Key, Noise] | None,
    remarks: Remarks = NO_REMARKS,
) -> Card:
    """The card of one run, which is about its headline model; ``hospitals`` as for :func:`comparison_card`.

    ``noise`` is None where groups of patients were not tested for this run by itself.
    """
    key = (result.label, list(result.outcome.figures)[-1])
    level, name = Panel.of(hospitals, sent([result])).level(key), result.title or result.label
    data = _data([result], hospitals, asked, key)
    row = Way(name, key, "taken", level.difference)
    return _composed(
        data,
        _what(data, [result], hospitals),
        result.federation.task,
        own_names=_hospitals([result]),
        useful=_useful([result], key, asked.clinical),
        name=name,
        level=level,
        compared=False,
        recommended=None,
        federate="not tested",
        between=(federating.NOT_TESTED,),
        harm=(None, None),
        own=_calibration([result], key),
        runs=([result], key),
        others=[],
        groups=NOT_TESTED if noise is None else _fairness(noise, key),
        limits=limiting.limits(data, None),
        rows=(row,),
        remarks=remarks,
        one_seed=True,
        alone_taken=False,
    )


def _composed(
    data: Data,
    what: str,
    kind: TaskKind,
    *,
    own_names: Sequence[str],
    useful: Usefulness | None,
    name: str,
    level: Paired,
    compared: bool,
    recommended: str | None,
    federate: Federate,
    between: Sequence[Line],
    harm: tuple[dict[str, Any] | None, Line | None],
    own: Calibration | None,
    runs: tuple[Sequence[Result], Key],
    others: Sequence[tuple[str, Calibration]],
    groups: Line,
    limits: Line,
    rows: tuple[Way, ...],
    remarks: Remarks,
    one_seed: bool,
    alone_taken: bool,
    stood: str = "",
) -> Card:
    """The card, its lines in order and its headline last."""
    numbers, calibration_line = None, calibrating.NOT_MEASURED
    if own is not None:
        numbers, calibration_line = calibrating.calibration(own, own_names, others)
        calibration_line = recalibrating.beside(calibration_line, *runs, own.p)
    limits_of_level, elsewhere = _level(kind, level)
    quality_line = quality(kind, level.difference, limits_of_level, level.hospitals, useful, elsewhere=elsewhere)
    lines = [
        limiting.predicts(data),
        quality_line,
        *between,
        *([] if harm[1] is None else [harm[1]]),
        calibration_line,
        groups,
        *([] if remarks.training is None else [_trained(remarks.training, name, *runs)]),
        limiting.UNSEEN,
        limits,
        *remarks.leaks,
        *_too_good(kind, level),
    ]
    lines.sort(key=lambda line: FACTS.index(line.fact))
    recommends = data.recommends
    use = use_of(quality_line, calibration_line, recommends)
    verdict = Verdict(
        taken=name,
        compared=compared,
        federate=federate,
        one_seed=one_seed,
        alone_taken=alone_taken,
        act_at="" if useful is None else percent(useful.at),
        cautions=remarks.cautions,
        recalibrated=runs[1][1] == RECALIBRATED,
        stands=stood,
    )
    return Card(
        what,
        headline(verdict, use, lines),
        tuple(lines),
        rows,
        use,
        federate,
        recommended if recommends else None,
        name,
        data.predicts,
        numbers,
        harm[0],
    )


def _level(kind: TaskKind, level: Paired) -> tuple[Limits, bool]:
    """The interval of a model's mean headline figure, and whether it is for hospitals like these.

    That for hospitals like these, unless it holds the AUROC of a coin, and the interval for these hospitals and trained
    models does not: a few unlike hospitals, or two seeds, do not make a model that ranks well one that does not.
    """
    interval = level.population() if level.hospitals > 1 and level.variance > 0 else level.fixed()
    like_these = possible.level(interval, kind.larger)
    if kind.larger and level.hospitals > 1 and not like_these.low > CHANCE:
        these = possible.level(replace(level, seed_variance=0.0).fixed(), kind.larger)
        if these.low > CHANCE:
            return these, False
    return like_these, True


def _what(data: Data, results: Sequence[Result], hospitals: pd.DataFrame) -> str:
    labels, seeds = hospitals["strategy"].nunique(), hospitals["seed"].nunique()
    if labels == 1 and seeds == 1 and results:
        return f"{data.in_short}, {results[0].title or results[0].label}, seed {results[0].seed}"
    return f"{data.in_short}, {counted(labels, 'method')} x {counted(seeds, 'seed')}"


def _hospitals(results: Sequence[Result]) -> Sequence[str]:
    return results[0].federation.hospitals if results else ()


def _data(results: Sequence[Result], hospitals: pd.DataFrame, asked: Asked, key: Key | None) -> Data:
    """What the figures of the model ``key`` are of; of no model, that none is judged."""
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
    rarer: tuple[float, ...] = ()
    if "events_test" in table and table["events_test"].notna().any():
        of_event = table["events_test"].to_numpy(float, na_value=np.nan)
        means = pd.Series(np.minimum(of_event, tested - of_event)).groupby(table["hospital"].to_numpy()).mean()
        rarer = tuple(means.tolist())
    return Data(
        asked.predicts,
        table["hospital"].nunique(),
        rows,
        events,
        asked.part,
        table["hospital"][defined].nunique(),
        float(tested[defined].sum() / tested.sum()) if tested.sum() else 0.0,
        rarer,
    )


def _federate(called: Evidence) -> tuple[Federate, Line, str]:
    if called.alone is None:
        return "not tested", federating.NOT_TESTED, ""
    alone = plain(called.references[called.alone].name)
    verdict, line = federating.federate(
        called.kind,
        called.entries[called.best].name,
        alone,
        called.over_alone[called.best],
        called.over_alone_intervals[called.best],
        called.over_alone_small,
        called.references[called.alone].level.difference,
        called.over_alone_two_classes,
        called.entries[called.best].level.hospitals,
    )
    return verdict, line, alone


def _first_pair(shown: Evidence) -> Paired | None:
    """A difference of the method that is taken, for what limits it."""
    others = [i for i in range(len(shown.entries)) if i != shown.best]
    return _pair(shown, others[0]) if others else next(iter(shown.of_references), None)


def _visible(shown: Evidence) -> list[float]:
    """The smallest differences from the method taken that four of five such comparisons would show; infinite where no
    difference that is possible is as large."""
    if shown.one_seed:
        return []
    others = (i for i in range(len(shown.entries)) if i != shown.best)
    sizes = [_pair(shown, i).visible for i in others if not shown.between(i, shown.best)[1].shows]
    level = shown.levels[shown.best]
    return [size if possible.visible(size, shown.kind.larger, level) else np.inf for size in sizes if size == size]


def _pair(shown: Evidence, i: int) -> Paired:
    return shown.differences[min(i, shown.best), max(i, shown.best)]


def _outcomes(results: Sequence[Result], key: Key) -> dict[int, Outcome]:
    """By seed, the runs that have the model."""
    return {
        result.seed: result.outcome for result in results if result.label == key[0] and key[1] in result.outcome.figures
    }


def _scores(results: Sequence[Result], key: Key) -> list[ScoreCounts]:
    return [outcome.scores[key[1]] for outcome in _outcomes(results, key).values() if key[1] in outcome.scores]


def _useful(results: Sequence[Result], key: Key, clinical: ClinicalSection | None) -> Usefulness | None:
    """Whether acting on a model is worth it; None where scores were not counted."""
    counts = _scores(results, key)
    return None if clinical is None or not counts else usefulness(counts, clinical.counted_at, clinical.act_at)


def _calibration(results: Sequence[Result], key: Key) -> Calibration | None:
    """The calibration of a model, the mean over seeds; None where scores were not counted."""
    counts = _scores(results, key)
    if not counts:
        return None
    together = [calibration_by_hospital(each.together()) for each in counts]
    ratio, low, high, rows, expected = (
        np.array([getattr(each, name) for each in together]) for name in ("ratio", "low", "high", "rows", "expected")
    )
    most = float(np.mean(rows / np.where(expected > 0, expected, np.nan)))  # where every row is an event
    pooled = over_seeds(ratio, low, high, within=(0.0, most if np.isfinite(most) else np.inf))
    folders = [r.folder for r in results if r.label == key[0] and key[1] in r.outcome.scores]
    chances = [
        _between_hospitals(read_csv(folder / EQUITY), key[1]) for folder in folders if (folder / EQUITY).is_file()
    ]
    known = [p for p in chances if np.isfinite(p)]
    return Calibration(
        float(pooled.value[0]),
        Limits(float(pooled.low[0]), float(pooled.high[0])),
        _most_seeds(known),
        calibration_over_seeds([calibration_by_hospital(each) for each in counts]),
    )


def _most_seeds(p: Sequence[float]) -> float:
    """The p-value of several seeds' models together, which test many of the same rows; NaN without any.

    Twice the median, the upper of two, which holds whatever the seeds share (Meinshausen, Meier and Buehlmann 2009). Of
    two seeds the larger.
    """
    if len(p) < 3:
        return max(p, default=float("nan"))
    return min(1.0, 2 * sorted(p)[len(p) // 2])


def _between_hospitals(equity: pd.DataFrame, model: str) -> float:
    """How often hospitals that are calibrated alike in the large differ as much."""
    of = equity[(equity["model"].astype(str) == model) & (equity["figure"] == "calibration_in_the_large")]
    return float(of["p"].iloc[0]) if len(of) else float("nan")


def _harm(results: Sequence[Result], key: Key, against: Key, name: str) -> tuple[dict[str, Any] | None, Line | None]:
    """Whom the model harms; nothing where there is no other model, or for other labels than two classes."""
    ours, theirs = _outcomes(results, key), _outcomes(results, against)
    seeds = [seed for seed in ours if seed in theirs]
    sides = []
    for of, model in ((ours, key[1]), (theirs, against[1])):
        sides.append([Sent(of[s].pairs[model], of[s].sketches[model]) for s in seeds if model in of[s].sketches])
    if key == against or not sides[0] or len(sides[0]) != len(sides[1]):
        return None, None
    return harmed(harm(*sides), results[0].federation.hospitals, name)


def _trained(line: Line, name: str, results: Sequence[Result], key: Key) -> Line:
    """The line on training, which forbids use where it is the model taken that diverged."""
    diverged = () if line.figure is None else line.figure["diverged"]
    titles = {result.title or result.label for result in results if result.label == key[0]}
    if titles.isdisjoint(diverged):
        return line
    return replace(line, forbids=True, short=f"training of {name} diverged")


def _too_good(kind: TaskKind, level: Paired) -> list[Line]:
    """A line on a model that ranks better than models do, unless a feature gives the label away."""
    text = unusually_high(level.difference) if kind.larger else ""
    return [Line("leaks", "warn", text, {"auroc": level.difference}, short=text.rstrip("."))] if text else []


def _fairness(noise: Mapping[Key, Noise], key: Key) -> Line:
    of = noise.get(key)
    return fairness([] if of is None else list(of.gaps.values()))
