"""Seconds and gaps of the coalition program of CS-RCFL, on matrices of the losses that its synthetic sets give.

    python -m benchmarks.coalitions [--hospitals 20 208] [--coalitions 3 5 10] [--seconds 300]

``regression`` and ``classification`` are the paper's sets with three true weights, its radii, plainly trained models
and κ = 1; ``random`` losses have no structure, the hardest there is. ``search`` is the time of the local search alone;
the rest proves.
"""

from __future__ import annotations

import argparse
import time
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from raysim.data.sources.coalition_sets import coalition_sets
from raysim.strategies.coalitions.robust.loss import l1_losses, logistic_losses, signs
from raysim.strategies.coalitions.robust.training import train_l1, train_logistic
from raysim.strategies.coalitions.solver.search import search_coalitions
from raysim.strategies.coalitions.solver.solve import find_coalitions

Kind = Literal["regression", "classification", "random"]
KINDS: tuple[Kind, ...] = ("regression", "classification", "random")


def loss_matrix(kind: Kind, hospitals: int) -> NDArray[np.float64]:
    """``L [N, N]``: the loss of hospital j's model at hospital i."""
    rng = np.random.default_rng(0)
    if kind == "random":
        return rng.uniform(size=(hospitals, hospitals))
    sets = coalition_sets(rng, kind, hospitals=hospitals, tests=0).train
    if kind == "regression":
        models = np.array([train_l1(X, y, 0.0).theta for X, y in sets])
        return np.array([l1_losses(X, y, models, 1.0 if len(y) > 100 else 2.0) for X, y in sets])
    models = np.array([train_logistic(X, signs(y), 0.0).theta for X, y in sets])
    return np.array([logistic_losses(X, signs(y), models, 0.5 if len(y) > 150 else 1.0) for X, y in sets])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hospitals", type=int, nargs="+", default=[20, 208])
    parser.add_argument("--coalitions", type=int, nargs="+", default=[3, 5, 10])
    parser.add_argument("--kinds", choices=KINDS, nargs="+", default=list(KINDS))
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--tolerance", type=float, default=1e-6, help="the relative gap at which to stop")
    arguments = parser.parse_args()
    print(f"{'losses':>15} {'N':>4} {'K':>3} {'search s':>9} {'total s':>8} {'value':>12} {'gap':>9}")
    for hospitals in arguments.hospitals:
        for kind in arguments.kinds:
            losses = loss_matrix(kind, hospitals)
            for coalitions in arguments.coalitions:
                start = time.perf_counter()
                search_coalitions(losses, coalitions, np.random.default_rng(0))
                search = time.perf_counter() - start
                best = find_coalitions(
                    losses,
                    coalitions,
                    np.random.default_rng(0),
                    seconds=arguments.seconds,
                    tolerance=arguments.tolerance,
                )
                line = f"{kind:>15} {hospitals:4} {coalitions:3} {search:9.2f} {best.seconds:8.1f} {best.value:12.4f}"
                line += f" {best.gap:9.2e} {'proven' if best.proven else ''}"
                print(line, flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
