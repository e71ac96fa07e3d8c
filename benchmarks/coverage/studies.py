"""What is simulated: for every interval how often it holds the truth, for every test how often it is wrong or right.

A study has cells; a cell's function takes a generator and a number of draws and returns a tally of each measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.coverage.pairs import deciles, families, fronts, pairs
from benchmarks.coverage.predictions import calibrated, calibrations, curves, off
from benchmarks.coverage.service import ERRORS, errors, service, single
from benchmarks.coverage.tally import Tally
from benchmarks.coverage.truth import Effects
from raysim.report.panel import MANY_HOSPITALS
from raysim.statistics.differences.paired import FEW_HOSPITALS

Simulate = Callable[[np.random.Generator, int], Tally]


@dataclass(frozen=True)
class Cell:
    """One federation's truth: the ``study`` it belongs to, its ``name`` in the table, and how it is simulated."""

    study: str
    name: str
    simulate: Simulate


EFFECTS = {
    "none": (0.0, 0.0),
    "hospital": (0.0, 0.15),
    "seed": (0.05, 0.0),
    "seed and hospital": (0.05, 0.15),
}
"""Standard deviations over seeds and hospitals; an AUROC of .8 moves by .01 and .03 with them."""


def cells(hospitals: list[int]) -> Iterator[Cell]:
    """All cells for these numbers of hospitals, the quick ones first."""
    for m, n in ((1, 16), (3, 30), (5, 50), (10, 100), (20, 200), (50, 500)):
        for law in ("equal", "unequal", "exponential"):
            yield Cell("single", f"{m} and {n} rows, {law}", partial(single, m, n, law))
    for n, prevalence in ((100, 0.2), (300, 0.1), (1000, 0.1)):
        yield Cell("calibrated", f"{n} rows, {prevalence:.0%} events", partial(calibrated, n, prevalence))
    yield Cell("curves", "61 losses", curves)
    for h in hospitals:
        for tau in (0.0, 0.3, 0.6):
            yield Cell("off", f"{h}, spread {tau}", partial(off, h, tau))
        yield Cell("chosen", f"{h}", partial(calibrations, h))
        for seeds in (1, 2, 3, 5):
            for name, (seed, hospital) in EFFECTS.items():
                if (seeds == 1) != (name in ("none", "hospital")) and (seeds == 1 or name == "hospital"):
                    continue  # one seed says nothing of seeds, and its interval says so
                for advantage in (0.0, 0.3):
                    effects = Effects(seed, hospital, advantage)
                    label = f"{h}, {seeds} seeds, {name}, {'equal' if not advantage else 'different'}"
                    yield Cell("pairs", label, partial(pairs, h, seeds, effects))
        for seeds in (1, 2, 3, 5):
            for name, advantage in (("none", 0.0), ("seed and hospital", 0.0), ("seed and hospital", 0.3)):
                effects = Effects(*EFFECTS[name], advantage)
                label = f"{h}, {seeds} seeds, {name}, {'equal' if not advantage else 'one different'}"
                yield Cell("families", label, partial(families, h, seeds, effects))
                if h >= FEW_HOSPITALS:
                    yield Cell("deciles", label, partial(deciles, h, seeds, effects))
                if h >= MANY_HOSPITALS and seeds > 1:
                    yield Cell("fronts", label, partial(fronts, h, seeds, effects))
        for law in ERRORS:
            for tau in (0.0, 0.1, 0.3):
                yield Cell("errors", f"{h}, {law}, spread {tau}", partial(errors, h, law, tau))
        for law in ("equal", "unequal", "exponential"):
            for tau in (0.0, 0.3, 0.6) if law != "exponential" else (0.0,):
                yield Cell("service", f"{h}, {law}, spread {tau}", partial(service, h, law, tau))
