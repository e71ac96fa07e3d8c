"""Noisy Newton steps beside random trees under the same guarantee for patients, on two invented populations.

    python -m benchmarks.private_trees [--seed 0] [--rows 2000 20000] [--epsilons 4 1]

The log-odds are a sum of ten columns, or have products and squares too. Five hospitals train; the AUROC is of 20,000
further rows. Newton takes four steps with clip 4, and there are 60 trees of depth 3 at rate .3 (``delta`` 1e-5). Prints
a line for each population and size, and the AUROC of the true risks.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

import raysim

COLUMNS, HOSPITALS, TESTED = 10, 5, 20_000
WAYS = {
    "newton": {"strategy": "newton", "training": {"rounds": 4}, "secure": {}},
    "random_trees": {
        "strategy": "random_trees",
        "model": {"name": "boosted_trees", "trees": 60, "depth": 3, "rate": 0.3},
    },
}


def made(rows: int, acts: str, seed: int) -> tuple[pd.DataFrame, pd.DataFrame, float]:
    """Return rows to train on, test rows, and the AUROC of the true risks on these."""
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=COLUMNS)
    X = rng.uniform(-2, 2, (rows + TESTED, COLUMNS)).round(3)
    score = X @ weight / 2 if acts == "sum" else X @ weight / 6 + X[:, 0] * X[:, 1] + X[:, 2] ** 2 - X[:, 3] * X[:, 4]
    score = score - np.quantile(score, 0.7)
    y = (score + rng.logistic(size=len(X)) > 0).astype(int)
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(COLUMNS)]).assign(event=y)
    table["hospital"] = [f"h{r % HOSPITALS}" for r in range(len(X))]
    return table[:rows], table[rows:], float(roc_auc_score(y[rows:], score[rows:]))


def auroc(way: str, train: pd.DataFrame, test: pd.DataFrame, epsilon: float, seed: int) -> float:
    """Return the AUROC on test rows of a run under the guarantee."""
    privacy = {"unit": "patient", "mode": "pooled", "epsilon": epsilon, "delta": 1e-5}
    privacy |= {"declared_public": ["sizes", "metrics", "preprocessing"]} | ({"clip": 4} if way == "newton" else {})
    data = {"source": "table", "silo": "hospital", "label": "event", "preprocessing": "declared"}
    data |= {"ranges": {f"x{j}": [-2, 2] for j in range(COLUMNS)}}
    data |= {"split": {"train": 0.98, "validation": 0, "test": 0.02}}
    config = {"name": way, "seed": seed, "data": data, "privacy": privacy, "tracking": {"uri": "none"}} | WAYS[way]
    with tempfile.TemporaryDirectory() as folder:
        run = raysim.run(config, data=train, out=Path(folder) / "run", in_process=True)
        scored = run.predict(test.drop(columns="event"))
    return float(roc_auc_score(test["event"], np.asarray(scored)))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000, 20_000])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[4, 1])
    options = parser.parse_args()
    for acts in ("sum", "products"):
        for rows in options.rows:
            train, test, best = made(rows, acts, options.seed)
            found = [
                f"{way}, epsilon {each:g}: {auroc(way, train, test, each, options.seed):.3f}"
                for way in WAYS
                for each in options.epsilons
            ]
            print(f"{acts}, {rows:,} rows, true risks {best:.3f}: {', '.join(found)}", flush=True)


if __name__ == "__main__":
    main()
