"""What robust rules take: seconds for the updates of 208 hospitals with 60,000 scalars each, on one core.

``python -m benchmarks.rules`` prints the least of three for each rule, with a fifth of the updates assumed to be wrong.
"""

from __future__ import annotations

import time

import numpy as np
from threadpoolctl import threadpool_limits

from raysim.robust.aggregation import Aggregation

HOSPITALS, SIZE, ASSUMED = 208, 60_000, 0.2
WEIGHTED = "median", "trimmed_mean", "geometric_median"
RULES = *WEIGHTED, "multi_krum", "bulyan", "centred_clipping"


def main() -> None:
    """Print a line for each rule, with NNM before some, and with weights."""
    rng = np.random.default_rng(0)
    updates = 0.01 * rng.normal(size=(HOSPITALS, SIZE)) + 0.02 * rng.normal(size=SIZE)
    updates[: int(ASSUMED * HOSPITALS)] *= -3
    weights = rng.uniform(1, 50, HOSPITALS)
    ways = {name: (Aggregation(name, ASSUMED), None) for name in RULES}
    ways |= {f"NNM, {name}": (Aggregation(name, ASSUMED, "nnm"), None) for name in ("mean", "median")}
    ways |= {f"{name}, weights": (Aggregation(name, ASSUMED), weights) for name in WEIGHTED}
    with threadpool_limits(1):
        for way, (rule, given) in ways.items():
            seconds = []
            for _ in range(3):
                began = time.perf_counter()
                rule.aggregate(updates, weights=given)
                seconds.append(time.perf_counter() - began)
            print(f"{way:26} {min(seconds):6.2f} s", flush=True)


if __name__ == "__main__":
    main()
