"""The decision card (recommendation and facts on a page) of a comparison or a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from raysim.config import plugins
from raysim.config.schema import Config
from raysim.core.words import capitalised
from raysim.engine.job import Result
from raysim.report import tables
from raysim.report.judgement.card import Card, Line
from raysim.report.judgement.compose import Remarks, comparison_card, run_card
from raysim.report.judgement.evidence import Evidence
from raysim.report.judgement.facts.training import training
from raysim.report.judgement.facts.wording import some
from raysim.report.judgement.gathered import Asked
from raysim.report.judgement.noise import Noise
from raysim.report.naming import Key, distinct, names
from raysim.report.supplement.training import untrained

FILE = "answer.json"


def card_of_comparison(
    config: Config,
    results: Sequence[Result],
    frame: pd.DataFrame,
    hospitals: pd.DataFrame,
    evidence: Evidence | None,
    noise: Mapping[Key, Noise],
    edge: str = "",
    unseen: Mapping[Key, Line] | None = None,
) -> Card:
    """Return the decision card of a comparison.

    - ``frame``: one row per strategy, model and seed.
    - ``hospitals``: one row per strategy, model, seed and hospital.
    - ``noise``: for each strategy and model, the tests of differences between hospitals and between groups of patients.
    - ``edge``: a clause that warns of tuned values at the edge of the tuning grid, or an empty text.
    - ``unseen``: for each strategy and model, a line on performance at hospitals that took no part in training.
    """
    titles = {result.label: result.title for result in results if result.title}
    return comparison_card(
        evidence,
        results,
        hospitals,
        _asked(config),
        names=names(tables.comparison(frame), titles),
        noise=noise,
        remarks=replace(_remarks(config, results, (edge,) if edge else ()), unseen=unseen or {}),
    )


def card_of_run(config: Config, result: Result, hospitals: pd.DataFrame, noise: Mapping[Key, Noise] | None) -> Card:
    """Return the decision card of one run. Without ``noise``, the card says that fairness between groups of patients
    was not tested.
    """
    return run_card(result, hospitals, _asked(config), noise=noise, remarks=_remarks(config, [result]))


def _asked(config: Config) -> Asked:
    evaluation = config.evaluation
    return Asked(plugins.predicted(config.data), evaluation.part, evaluation.clinical, not config.hides_sizes)


def _remarks(config: Config, results: Sequence[Result], cautions: tuple[str, ...] = ()) -> Remarks:
    return Remarks(_training(config, results), () if config.privacy is not None else _leaks(results), cautions)


def _leaks(results: Sequence[Result]) -> tuple[Line, ...]:
    federations = {result.seed: result.federation for result in results}.values()
    found = {
        each.feature: each.text
        for federation in federations
        for each in federation.leaks.suspects
        if each.level == "warn"
    }
    if not found:
        return ()
    short = (
        f"{'feature' if len(found) == 1 else 'features'} {some([repr(name) for name in found])} may give the label away"
    )
    text = next(iter(found.values())) if len(found) == 1 else short
    text = f"{capitalised(text).rstrip('.')}."
    return (Line("leaks", "warn", text, {"features": list(found)}, "leave it out (data.drop)", True, short),)


def _training(config: Config, results: Sequence[Result]) -> Line:
    names = distinct(
        (result.label for result in results), {result.label: result.title for result in results if result.title}
    )
    verdicts = [(result.label, result.outcome.convergence) for result in results]
    diverged = dict.fromkeys(label for label, each in verdicts if each is not None and each.verdict == "diverged")
    falling = [(names[label], fall) for label, fall in untrained(results)]
    measured = any(each is not None for _, each in verdicts)
    by_steps = any(result.by_steps for result in results if result.label in diverged)
    named = [names[label] for label in diverged]
    return training(falling, named, measured, plugins.rounds(config), by_steps=by_steps)
