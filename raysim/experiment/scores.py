"""Existing scores of the rows, such as APACHE IV, as references of a comparison.

A score is not trained, so its results differ between seeds only if the test rows differ. Rows without a value of a
score are excluded if a model is compared with this score.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.config.schema import Config
from raysim.config.sections.evaluation import EvaluationSection
from raysim.core.errors import ConfigError, DataError
from raysim.core.words import counted, listed
from raysim.data.derived.excerpt import excerpt
from raysim.data.federation import Federation
from raysim.engine.job import Result
from raysim.experiment.entries import folder_of
from raysim.experiment.judging.results import only_ranks, outcome_of
from raysim.metrics.segments import ranges
from raysim.report.panel import Alike, Key, Sent, Sketched, sent
from raysim.statistics.discrimination.auroc import delong_of_sums, pair_sums, placements
from raysim.statistics.discrimination.sketches import sketches

MODEL = "score"
"""The name of existing scores in the column ``model`` of tables."""


@dataclass(frozen=True, eq=False)
class Scores:
    """The results of existing scores, such as APACHE, in a comparison."""

    results: Sequence[Result]
    """One result per score and seed, on the test rows that have a value of the score."""
    sent: Sent
    """The sums that hospitals send to evaluate the scores, and to evaluate the strategies' models on the rows with a
    score."""
    notes: Sequence[str]
    """One sentence on each score that lacks values in some rows."""


NONE = Scores((), {}, ())


def asked(config: Config) -> Config:
    """Return ``config``, changed to store the prediction of each row if the data have clinical scores to compare with.

    Raises ``ConfigError`` if scores cannot be compared.
    """
    if not config.data.scores:
        return config
    if config.privacy is not None:
        raise ConfigError("data.scores: are compared row by row, which privacy forbids; leave scores or privacy out")
    if config.evaluation.part != "test":
        raise ConfigError("data.scores: are judged on test rows; set evaluation.part: test")
    return config.replaced(evaluation=config.evaluation.model_copy(update={"predictions": True}))


def unread(config: Config, command: str) -> list[str]:
    """Return a remark that ``command`` does not evaluate the scores; empty if the data have no scores."""
    if not config.data.scores:
        return []
    named = listed([f"'{name}'" for name in config.data.scores])
    return [f"data.scores: {named} are not features; raysim {command} does not evaluate scores, raysim compare does"]


def check(federation: Federation, labels: Collection[str]) -> None:
    """Raise ``ConfigError`` or ``DataError`` if scores cannot be compared with strategies that have these
    ``labels``."""
    for name in federation.scores:
        if len(federation.classes) != 2:
            raise DataError(f"data.scores: '{name}' needs a label of two classes; leave scores out")
        if name in labels:
            raise ConfigError(f"data.scores: '{name}' is the label of a strategy too; give the strategy another label")


def is_probability(federation: Federation, name: str) -> bool:
    """Return whether a score is a probability: all its values are between 0 and 1."""
    values = federation.scores[name]
    known = values[np.isfinite(values)]
    if not len(known):
        raise DataError(f"data.scores: '{name}' has no value in any row; leave it out")
    return bool(known.min() >= 0 and known.max() <= 1)


def margins_of(values: NDArray[np.float64], probability: bool) -> NDArray[np.float64]:
    """Return the log-odds of a score's ``values [n]`` if the score is a ``probability``, else the values unchanged."""
    from scipy.special import logit  # imported late to start runs faster

    if not probability:
        return values
    with np.errstate(divide="ignore"):
        return np.asarray(logit(values))


def entered(results: Sequence[Result], section: EvaluationSection, folder: Path, scratch: Path) -> Scores:
    """Evaluate the existing scores for the comparison in ``folder``.

    The evaluated rows are written to ``scratch``, which must exist as long as the result.
    """
    federations = {result.seed: result.federation for result in results}
    names = tuple(results[0].federation.scores)
    found, known, notes = [], dict[tuple[str, str, int], Sketched](), []
    for name in names:
        lacking = tested = 0
        for seed, federation in federations.items():
            rows = ranges(federation.bounds[:, 2], federation.sizes("test"))
            probability = is_probability(federation, name)
            margins = margins_of(federation.scores[name], probability)
            scored = rows[~np.isnan(margins[rows])]
            lacking, tested = lacking + len(rows) - len(scored), tested + len(rows)
            part = excerpt(federation, scored, scratch / folder_of(name) / f"seed-{seed}")
            outcome = outcome_of(part, {MODEL: margins[scored]}, section, seed, tests_groups=False)
            if not probability:
                only_ranks(outcome, part)
            at = folder / "scores" / folder_of(name) / f"seed-{seed}"
            result = Result(name, True, seed, part, outcome, at)
            found.append(result)
            ((key, of),) = sent([result]).items()
            if len(scored) < len(rows):
                of_seed = [each for each in results if each.seed == seed]
                of = of._replace(on_same_rows=dict(_other_models(of_seed, part, scored)))
            known[key] = of
        if lacking:
            notes.append(
                f"{name} has no value in {lacking:,} of {tested:,} test rows: comparisons with it use only the other "
                "rows."
            )
    return Scores(found, known, notes) if names else NONE


def _other_models(results: Sequence[Result], part: Federation, rows: NDArray[np.int64]) -> Mapping[Key, Alike]:
    """Return the AUROC of every strategy's models on the rows that have a score, by strategy and model.

    ``rows`` are the indices of these rows in the strategy's federation; ``part`` is a federation of only these rows.
    """
    offsets = np.append(part.bounds[:, 2], len(rows))
    ids = np.arange(len(part.hospitals))
    found: dict[Key, Alike] = {}
    for result in results:
        for model, outputs in result.outcome.predictions.items():
            margins: NDArray[Any] = outputs[rows]
            auroc = delong_of_sums(pair_sums(margins, part.y, offsets))[0]
            untrained = result.outcome.untrained.get(model)
            if untrained is not None:
                auroc = np.where(untrained, np.nan, auroc)
            sums = sketches(placements(margins, part.y, offsets), ids, part.identities)
            found[result.label, model] = Alike(auroc, sums)
    return found


def lines(scores: Scores) -> list[str]:
    """Return sentences for the page on the existing scores."""
    names = list(dict.fromkeys(result.label for result in scores.results))
    if not names:
        return []
    return [f"{counted(len(names), 'existing score')} as references: {', '.join(names)}.", *scores.notes]
