"""Compose the decision card of a comparison or a run from its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import pandas as pd

from raysim.core.words import counted
from raysim.data.checks.leaks import unusually_high
from raysim.engine.job import Result
from raysim.metrics.labels import TaskKind, reporting
from raysim.report.judgement import recalibrating
from raysim.report.judgement.card import FACTS, Card, Federate, Line, MethodRow
from raysim.report.judgement.evidence import Evidence
from raysim.report.judgement.facts import calibration as calibrating
from raysim.report.judgement.facts import federate as federating
from raysim.report.judgement.facts import limits as limiting
from raysim.report.judgement.facts.calibration import Calibration
from raysim.report.judgement.facts.fairness import NOT_TESTED, SEVERAL_CLASSES, fairness
from raysim.report.judgement.facts.headline import Verdict, headline, use_of
from raysim.report.judgement.facts.learners import learners
from raysim.report.judgement.facts.limits import Data
from raysim.report.judgement.facts.quality import quality
from raysim.report.judgement.facts.which import NONE, method_rows, stands, which
from raysim.report.judgement.facts.wording import percent, plain
from raysim.report.judgement.gathered import (
    Asked,
    calibration_of,
    data_of,
    harm_of,
    level_interval,
    unseen_of,
    useful_of,
    visible_from_alone,
    visible_sizes,
)
from raysim.report.judgement.noise import Noise
from raysim.report.naming import Key
from raysim.report.panel import Panel, sent
from raysim.statistics.clinical.usefulness import Usefulness
from raysim.statistics.differences.paired import Paired
from raysim.strategies.shared.personalization import RECALIBRATED


@dataclass(frozen=True)
class Remarks:
    """Findings of other parts of a report that belong on the decision card."""

    training: Line | None = None
    """The line on whether models were trained to convergence; None without this line."""
    leaks: tuple[Line, ...] = ()
    """The lines on features that may give the label away."""
    cautions: tuple[str, ...] = ()
    """Clauses for the headline that limit the recommendation."""
    unseen: Mapping[Key, Line] = field(default_factory=dict)
    """Each model's line on its performance at hospitals that were left out of training in turn."""


NO_REMARKS = Remarks()


def comparison_card(
    evidence: Evidence | None,
    results: Sequence[Result],
    hospitals: pd.DataFrame,
    asked: Asked,
    *,
    names: Mapping[Key, str],
    noise: Mapping[Key, Noise],
    remarks: Remarks = NO_REMARKS,
    compared: bool = True,
) -> Card:
    """Compose the decision card of a comparison.

    - ``evidence``: the paired differences between strategies, which are named by their labels; None if the main metric
      (AUROC or MAE) is undefined at every hospital.
    - ``results``: the runs; may be empty.
    - ``hospitals``: the metrics of each hospital, as described in :mod:`raysim.report.tables`.
    - ``names``: display names of the models.
    - ``noise``: by model, the differences between hospitals compared with chance.
    - ``compared``: whether methods were compared; if not, no method is recommended.
    """
    if evidence is None:
        data, kind = data_of(results, hospitals, asked, None), reporting(hospitals)
        undefined = quality(kind, float("nan"), NONE, 0, None)
        undefined_at_all = f"No {kind.title} is defined at any hospital"
        text = f"{undefined_at_all}: {data.lacking}." if data.lacking else f"{undefined_at_all}."
        nothing = replace(limiting.limits(data, None), text=text)
        lines = (limiting.predicts(data), undefined, nothing)
        return Card(
            _what(data, results, hospitals), nothing.text, lines, (), "none", "not tested", None, "", asked.predicts
        )
    named = evidence.renamed(names)
    federates, federate_line = _federate(named)
    method, alone = (
        evidence.entries[evidence.best],
        None if evidence.alone is None else evidence.references[evidence.alone],
    )
    own = calibration_of(results, method.key)
    other = None if alone is None else calibration_of(results, alone.key)
    taken, to_alone = method, False
    against = method if evidence.base is None else evidence.entries[evidence.base]
    if alone is not None:
        against, to_alone = alone, alone_is_taken(federates, own, other)
        if to_alone:
            taken, against, own, other = alone, method, other, own
    data, against_name = data_of(results, hospitals, asked, taken.key), plain(names[against.key])
    useful = useful_of(results, taken.key, asked.clinical)
    pair = evidence.over_alone[evidence.best] if evidence.over_alone else _first_pair(evidence)
    name = named.entries[evidence.best].name
    visible = {f"between {name} and other methods": visible_sizes(evidence)}
    if alone is not None:
        visible[f"between {name} and {plain(names[alone.key])}"] = visible_from_alone(evidence)
    return _composed(
        data,
        _what(data, results, hospitals),
        evidence.kind,
        Verdict(
            taken=plain(names[taken.key]),
            compared=compared,
            federate=federates,
            one_seed=evidence.one_seed or not all(each.of_training for each in evidence.of_references),
            alone_taken=to_alone,
            act_at=_act_at(useful),
            cautions=remarks.cautions,
            recalibrated=taken.key[1] == RECALIBRATED,
            larger=evidence.kind.larger,
            stands=stands(evidence),
            models=learners(evidence).short,
        ),
        runs=(results, taken.key),
        level=taken.level,
        useful=useful,
        own=own,
        others=[] if other is None else [(against_name, other)],
        between=(federate_line, which(named)),
        harm=harm_of(results, taken.key, against.key, against_name),
        groups=_fairness(noise, taken.key),
        limits=(
            remarks.unseen.get(taken.key) or unseen_of(results, hospitals, taken.key, data, evidence.kind),
            limiting.limits(data, pair, visible, evidence.kind.decimals([*chain(*visible.values())])),
        ),
        rows=method_rows(named, alone_taken=to_alone),
        remarks=remarks,
        recommended=plain(taken.name) if compared else None,
    )


def alone_is_taken(federates: Federate, own: Calibration | None, alone: Calibration | None) -> bool:
    """Return whether training alone is recommended.

    It is recommended if it is demonstrably better, or if it is equivalent and only the federated method's risks are
    wrong. ``own`` is the calibration of the federated method, ``alone`` that of training alone; None if not measured.
    """
    right_alone = alone is not None and own is not None and alone.state != "warn" and own.state == "warn"
    return federates == "no" or (federates == "equal" and right_alone)


def run_card(
    result: Result,
    hospitals: pd.DataFrame,
    asked: Asked,
    *,
    noise: Mapping[Key, Noise] | None,
    remarks: Remarks = NO_REMARKS,
) -> Card:
    """Compose the decision card of one run, which is about the run's main model.

    ``hospitals`` has the metrics of each hospital. ``noise`` is None if differences between hospitals were not compared
    with chance.
    """
    key = (result.label, list(result.outcome.figures)[-1])
    level, name = Panel.of(hospitals, sent([result])).level(key), result.title or result.label
    data, useful = data_of([result], hospitals, asked, key), useful_of([result], key, asked.clinical)
    return _composed(
        data,
        _what(data, [result], hospitals),
        result.federation.task,
        Verdict(
            taken=name,
            compared=False,
            federate="not tested",
            one_seed=True,
            alone_taken=False,
            act_at=_act_at(useful),
            cautions=remarks.cautions,
            recalibrated=key[1] == RECALIBRATED,
        ),
        runs=([result], key),
        level=level,
        useful=useful,
        own=calibration_of([result], key),
        others=[],
        between=(federating.NOT_TESTED,),
        harm=(None, None),
        groups=NOT_TESTED if noise is None else _fairness(noise, key),
        limits=(unseen_of([result], hospitals, key, data, result.federation.task), limiting.limits(data, None)),
        rows=(MethodRow(name, key, "taken", level.difference),),
        remarks=remarks,
        recommended=None,
    )


def _composed(
    data: Data,
    what: str,
    kind: TaskKind,
    verdict: Verdict,
    *,
    runs: tuple[Sequence[Result], Key],
    level: Paired,
    useful: Usefulness | None,
    own: Calibration | None,
    others: Sequence[tuple[str, Calibration]],
    between: Sequence[Line],
    harm: tuple[dict[str, Any] | None, Line | None],
    groups: Line,
    limits: Sequence[Line],
    rows: tuple[MethodRow, ...],
    remarks: Remarks,
    recommended: str | None,
) -> Card:
    """Write the lines of a decision card, then its headline; ``runs`` has all results and the card's model."""
    numbers, calibration_line = None, calibrating.NOT_MEASURED
    if own is not None:
        numbers, calibration_line = calibrating.calibration(own, runs[0][0].federation.hospitals, others)
        calibration_line = recalibrating.with_recalibration(calibration_line, *runs, own.p, trains=data.trains)
        numbers["state"] = calibration_line.state
    limits_of_level, elsewhere = level_interval(kind, level, data)
    quality_line = quality(kind, level.difference, limits_of_level, level.hospitals, useful, elsewhere=elsewhere)
    lines = [
        limiting.predicts(data),
        quality_line,
        *between,
        *([] if harm[1] is None else [harm[1]]),
        calibration_line,
        groups,
        *([] if remarks.training is None else [_trained(remarks.training, verdict.taken, *runs)]),
        *limits,
        *remarks.leaks,
        *_too_good(kind, level),
    ]
    lines.sort(key=lambda line: FACTS.index(line.fact))
    use = use_of(kind, lines, data.recommends)
    return Card(
        what,
        headline(verdict, use, lines),
        tuple(lines),
        rows,
        use,
        verdict.federate,
        None if use == "none" else recommended,
        verdict.taken,
        data.predicts,
        numbers,
        harm[0],
    )


def _what(data: Data, results: Sequence[Result], hospitals: pd.DataFrame) -> str:
    labels, seeds = hospitals["strategy"].nunique(), hospitals["seed"].nunique()
    if labels == 1 and seeds == 1 and results:
        return f"{data.in_short}, {results[0].title or results[0].label}, seed {results[0].seed}"
    served = len(hospitals[["strategy", "model"]].drop_duplicates())
    models = f" ({counted(served, 'model')})" if served > labels else ""
    return f"{data.in_short}, {counted(labels, 'method')}{models} x {counted(seeds, 'seed')}"


def _act_at(useful: Usefulness | None) -> str:
    return "" if useful is None else percent(useful.at)


def _federate(evidence: Evidence) -> tuple[Federate, Line]:
    if evidence.alone is None:
        return "not tested", federating.NOT_TESTED
    taken, alone = evidence.entries[evidence.best], evidence.references[evidence.alone]
    return federating.federate(
        evidence.kind,
        taken.name,
        plain(alone.name),
        evidence.over_alone[evidence.best],
        evidence.over_alone_intervals[evidence.best],
        evidence.over_alone_small,
        alone.level.difference,
        evidence.over_alone_two_classes,
        taken.level.hospitals,
    )


def _first_pair(evidence: Evidence) -> Paired | None:
    others = [i for i in range(len(evidence.entries)) if i != evidence.best]
    return evidence.pair(others[0], evidence.best) if others else next(iter(evidence.of_references), None)


def _trained(line: Line, name: str, results: Sequence[Result], key: Key) -> Line:
    """Return the line on training; the line forbids a use if the card's model ``name`` diverged."""
    diverged = () if line.figure is None else line.figure["diverged"]
    titles = {result.title or result.label for result in results if result.label == key[0]}
    if titles.isdisjoint(diverged):
        return line
    return replace(line, forbids=True, short=f"training of {name} diverged")


def _too_good(kind: TaskKind, level: Paired) -> list[Line]:
    """Return a warning if the AUROC is implausibly high: a feature may give the label away."""
    text = unusually_high(level.difference) if kind.larger else ""
    return [Line("leaks", "warn", text, {"auroc": level.difference}, short=text.rstrip("."))] if text else []


def _fairness(noise: Mapping[Key, Noise], key: Key) -> Line:
    # Only labels of several classes leave a model without noise.
    return fairness(list(noise[key].gaps.values())) if key in noise else SEVERAL_CLASSES
