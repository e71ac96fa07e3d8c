"""Whether the models of a page have converged: sentences, and the curves of their training losses."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from raysim.core.words import capitalised, listed
from raysim.engine.job import Result
from raysim.engine.measuring.stopping import Stopped
from raysim.report import svg
from raysim.report.figures.models import curves
from raysim.report.judgement.facts.training import SOLVED
from raysim.report.naming import distinct
from raysim.statistics.convergence import Convergence


def sentences(results: Sequence[Result]) -> tuple[str, ...]:
    """Return caveats on whether the strategies of these runs have converged, for the top of the page."""
    verdicts = _verdicts(results)
    return tuple(filter(None, (_diverged(results), _falling(results), _idle(verdicts))))


def untrained(results: Sequence[Result]) -> list[tuple[str, float]]:
    """Return the labels of strategies that have not converged, each with the recent fall of its training loss.

    A run counts as converged if early stopping ended it, or if its loss has converged in the sense of
    :attr:`~raysim.statistics.convergence.Convergence.trained`. The fall is a share of the initial loss, the largest
    over seeds; NaN if the loss was measured in too few rounds. Strategies with a diverged seed are left out.
    """
    ended = {(result.label, result.seed) for result in results if _stopped(result.outcome.stopped)}
    found = []
    for label, of_seed in _verdicts(results).items():
        if any(convergence.verdict == "diverged" for _, convergence in of_seed):
            continue
        falls = [
            convergence.fall for seed, convergence in of_seed if not convergence.trained and (label, seed) not in ended
        ]
        if falls:
            found.append((label, float(np.max(falls))))
    return found


def of_run(result: Result) -> str:
    """Return a sentence on whether one run has converged; empty if no loss was measured."""
    outcome = result.outcome
    return sentence(outcome.convergence, outcome.rounds_run, outcome.stopped, by_steps=result.by_steps)


def sentence(convergence: Convergence | None, rounds: int, how: Stopped | None, *, by_steps: bool = True) -> str:
    """Describe how the training loss changed, and whether it has converged; empty if no loss was measured.

    ``how`` says whether early stopping ended the run; ``by_steps`` says whether training used the configured learning
    rate.
    """
    if convergence is None:
        return ""
    rounds_text = f"{rounds} round{'' if rounds == 1 else 's'}"
    text = f"The training loss went from {convergence.before:.4g} to {convergence.last:.4g} in {rounds_text}"
    if convergence.verdict == "diverged":
        mends = "lower training.learning_rate, or scale the features" if by_steps else SOLVED
        return f"{text}: it diverged. {capitalised(mends)}."
    stopped = _stopped(how)
    if "few_points" in convergence.notes and not stopped:
        if convergence.last < convergence.before:
            return f"{text}: too few to judge convergence. More rounds may change the figures."
        other = " or another learning rate" * by_steps
        return f"{text}: it is not below its start. More rounds{other} may change the figures."
    if convergence.verdict == "falling" and not stopped:
        fall = f"by {_percent(convergence.fall)} of its start over the last measurements"
        if convergence.trained:
            return f"{text}. It still falls, but only {fall}: it counts as converged."
        larger = " or a larger learning rate" * by_steps
        return f"{text}: still falling ({fall}). More rounds{larger} may change the figures."
    if convergence.verdict == "falling":
        return f"{text}. {stopped}"
    still = f"{text}, and no longer changes." + (
        " It never fell below its start." if "no_progress" in convergence.notes else ""
    )
    return f"{still} {stopped}".rstrip()


def _stopped(how: Stopped | None) -> str:
    """Describe when early stopping ended a run, and which models are used; empty if all rounds were run."""
    if how is None or not how.early:
        return ""
    return (
        f"The validation loss no longer fell, so training ended after round {how.last}. The models of round "
        f"{how.served} are used (validation loss {how.loss:.4g})."
    )


def losses_by_round(results: Sequence[Result]) -> pd.DataFrame:
    """Return the training losses of all runs, one row per run and measured round.

    Columns are ``strategy, model, seed, round, training_loss``; round 0 is before training.
    """
    return pd.DataFrame(
        [
            (result.label, "", result.seed, round, loss)
            for result in results
            for round, loss in result.outcome.loss_curve.items()
        ],
        columns=["strategy", "model", "seed", "round", "training_loss"],
    )


def plots(results: Sequence[Result]) -> list[svg.Figure]:
    """Plot the training losses by round; empty if no run has measured its loss."""
    table = losses_by_round(results)
    finite = table[np.isfinite(table["training_loss"].astype(float))]
    if finite.empty:
        return []
    keys = [(str(label), "") for label in finite["strategy"].unique()]
    served = {result.label: next(iter(result.outcome.figures), "") for result in results}
    looks = svg.styles(list(served.items()))
    titles = distinct(
        (result.label for result in results), {result.label: result.title for result in results if result.title}
    )
    return curves(
        finite,
        {key: titles[key[0]] for key in keys},
        {key: looks[key[0], served[key[0]]] for key in keys},
        "training_loss",
        name="training-loss",
        title="Training loss by round",
        axis="mean training loss over rows",
        caption="The loss that training minimises, over all hospitals' training rows; round 0 is before training. "
        "A curve that still falls at its end has not converged.",
    )


def _verdicts(results: Sequence[Result]) -> dict[str, list[tuple[int, Convergence]]]:
    """Return, by strategy label, the seed and the convergence of each run whose training loss was measured."""
    verdicts: dict[str, list[tuple[int, Convergence]]] = {}
    for result in results:
        convergence = result.outcome.convergence
        if convergence is not None:
            verdicts.setdefault(result.label, []).append((result.seed, convergence))
    return verdicts


def _diverged(results: Sequence[Result]) -> str:
    """Describe the first diverged run of each strategy, with advice."""
    texts = []
    for by_steps, mends in ((True, "lower training.learning_rate"), (False, SOLVED)):
        parts = []
        for label, of_seed in _verdicts([result for result in results if result.by_steps == by_steps]).items():
            found = [(seed, each) for seed, each in of_seed if each.verdict == "diverged"]
            for seed, worst in found[:1]:
                where = f", seed {seed}" if len(of_seed) > 1 else ""
                parts.append(f"{label} (training loss {worst.before:.3g} to {worst.last:.3g}{where})")
        if parts:
            texts.append(f"Diverged, so figures are meaningless: {listed(parts)}. {capitalised(mends)}.")
    return " ".join(texts)


def _falling(results: Sequence[Result]) -> str:
    found = untrained(results)
    falling = [f"{label} {_percent(fall)}" for label, fall in found if not math.isnan(fall)]
    short = [label for label, fall in found if math.isnan(fall)]
    parts = []
    if falling:
        parts.append(
            f"Not trained to the end (fall of the training loss over the last measurements, relative to its start): "
            f"{listed(falling)}. More rounds or a larger learning rate may change which is best."
        )
    if short:
        parts.append(f"Too few rounds to judge convergence: {listed(short)}.")
    return " ".join(parts)


def _idle(verdicts: dict[str, list[tuple[int, Convergence]]]) -> str:
    idle = [
        label
        for label, of_seed in verdicts.items()
        if all(convergence.verdict == "converged" and "no_progress" in convergence.notes for _, convergence in of_seed)
    ]
    return f"The training loss never fell below its start: {listed(idle)}." if idle else ""


def _percent(fall: float) -> str:
    return f"{100 * fall:.2g} %"
