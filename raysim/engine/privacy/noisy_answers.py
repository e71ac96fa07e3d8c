"""A hospital's answers and figures with noise that hides each patient's part in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import ConfigError
from raysim.data.contribution import Contribution
from raysim.data.federation import Federation
from raysim.engine.measuring.measurement import FigureNoise, StatisticNoise
from raysim.engine.measuring.scoring import PartRows
from raysim.engine.privacy.contributions import Contributions
from raysim.privacy.noisy_sums import Bounds, noisy_sum
from raysim.strategies.base import Floats, HospitalRows, Question, Summed


def noisy_answer(
    question: Question, rows: HospitalRows, contribution: Contribution, noise: StatisticNoise, seed: int, *key: int
) -> Floats:
    """Return the answer to ``question`` from a noisy sum over the units of ``rows``; ``contribution``: the rows that
    count."""
    if not isinstance(question, Summed):
        raise ConfigError(f"privacy.statistics.{question.kind}: the answer is not a sum over rows; take it out")
    nobody = without_rows(rows)
    try:
        bounds = Bounds(*question.bounds(nobody))
    except ValueError as error:
        raise ConfigError(f"privacy.statistics.{question.kind}: {error}") from None
    sums = noisy_sum(
        question.added(rows), contribution.patient, noise.mechanism, bounds, seed, f"dp {question.kind}", *key
    )
    return question.from_sums(sums, nobody)


def without_rows(rows: HospitalRows) -> HospitalRows:
    """Return the same hospital without rows."""
    return replace(
        rows,
        X=rows.X[:0],
        y=rows.y[:0],
        observed=rows.observed[:0],
        losses=rows.losses[:, :0],
        outputs=[output[:0] for output in rows.outputs],
        patients=dict,
    )


def noisy_figures(
    federation: Federation,
    contributions: Contributions,
    hospitals: Sequence[int],
    part: str,
    seed: int,
    asked: FigureNoise,
    outputs: NDArray[Any],
    rows: PartRows,
) -> Floats:
    """Return the noisy sums ``[h, width]`` from which figures are computed.

    ``outputs`` are a model's outputs for the evaluated ``rows`` of ``hospitals``.
    """
    noise, bounds = asked.noise, Bounds(asked.sums.absolute, asked.sums.euclidean)
    sums = []
    for i, hospital in enumerate(hospitals):
        contribution = contributions.of(federation, hospital, noise.unit, noise.rows, seed, part)
        # One hospital at a time, because each row may add a long vector.
        theirs = rows.offsets[i] + contribution.rows
        added, key = asked.sums.added(outputs[theirs], rows.y[theirs]), (noise.turn, hospital)
        sums.append(noisy_sum(added, contribution.patient, noise.mechanism, bounds, seed, "dp metrics", *key))
    return np.array(sums)
