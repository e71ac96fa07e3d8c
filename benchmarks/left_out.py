"""Whether intervals hold for hospitals left out in turn, and after a search, as in docs/statistics.md.

``python -m benchmarks.left_out`` simulates federations whose truth is known and judges them by the product's own
functions; two Markdown tables are printed.

- Left out: logistic truth in six normal features, intercepts that differ between hospitals by .5 and coefficients by
  ``spread``, log-normal sizes (median 150), 70 % of rows for training. Regressions are fitted to the training rows of
  the other hospitals. The true AUROC of a fitted model at a hospital is computed by quadrature.
- Search: ``models`` that are all as good as the reference, with hospital effects of .008 and patients' errors of
  .02 to .03 at each hospital. The best is judged as if it alone had been tried, and by what was tried.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.special import expit, ndtri

from raysim.core.streams import stream
from raysim.statistics.differences.paired import paired
from raysim.statistics.differences.search import adjusted_for, searched
from raysim.statistics.discrimination.auroc import pair_sums, placements
from raysim.statistics.discrimination.common_curve import common_curve
from raysim.statistics.discrimination.sketches import patient_part, sketches
from raysim.statistics.meta_analysis.between_hospitals import WIDEST, pooled

WEIGHTS = np.array([1.0, 0.6, 0.4, 0.3, 0.2, 0.0])
POINTS = ndtri((np.arange(400) + 0.5) / 400)
INNER, INNER_WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
INNER_WEIGHTS = INNER_WEIGHTS / INNER_WEIGHTS.sum()
NEWCOMERS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    draws = parser.parse_args().draws
    print("| hospitals, spread, folds | true AUROC | mean: of all, of these | next hospital | taking part |")
    print("|---|---|---|---|---|")
    for hospitals, spread, folds in ((8, 0.2, 8), (20, 0.2, 20), (20, 0.0, 20), (20, 0.2, 5)):
        print(left_out(hospitals, spread, folds, draws), flush=True)
    print("\n| hospitals, models | gain | corrected | false alarms: alone, as tried | coverage: alone, as tried |")
    print("|---|---|---|---|---|")
    for hospitals, models in ((20, 5), (20, 20), (20, 100), (100, 20)):
        print(search(hospitals, models, draws), flush=True)


def left_out(hospitals: int, spread: float, folds: int, draws: int) -> str:
    """The row of one design."""
    federations = [federation(stream(seed, "hospitals left out"), hospitals, spread, folds) for seed in range(draws)]
    truths = np.array([each["truth"] for each in federations])
    intervals = np.array([each["mean"] for each in federations])
    parts, part_truths = (np.array([each[name] for each in federations]) for name in ("part", "part_truth"))
    everywhere, here = truths.mean(), truths.mean(axis=1)
    cells = (
        f"{everywhere:.3f}",
        f"{held(intervals, everywhere)}, {held(intervals, here)}",
        f"{np.mean([each['next'] for each in federations]):.3f}",
        held(parts, part_truths),
    )
    return f"| {hospitals}, {spread:g}, {folds} | " + " | ".join(cells) + " |"


def held(intervals: np.ndarray, truth: np.ndarray | float) -> str:
    return f"{((intervals[:, 0] <= truth) & (truth <= intervals[:, 1])).mean():.3f}"


def federation(rng: np.random.Generator, hospitals: int, spread: float, folds: int) -> dict[str, object]:
    """One federation: intervals, and whether they hold."""
    sizes = np.maximum(40, np.round(150 * np.exp(0.8 * rng.standard_normal(hospitals)))).astype(int)
    slopes, intercepts = hospitals_drawn(rng, hospitals, spread)
    X = [rng.standard_normal((n, len(WEIGHTS))) for n in sizes]
    y = [(rng.random(len(x)) < expit(a + x @ b)).astype(int) for x, a, b in zip(X, intercepts, slopes, strict=True)]
    cut = np.round(0.7 * sizes).astype(int)
    fold = np.arange(hospitals) if folds == hospitals else rng.permutation(hospitals) % folds
    train = [(x[:k], labels[:k]) for x, labels, k in zip(X, y, cut, strict=True)]
    without = {f: fitted([train[h] for h in range(hospitals) if fold[h] != f]) for f in np.unique(fold)}
    everybody = fitted(train)
    own = [without[f] for f in fold]
    truth = np.array([true_auroc(own[h], slopes[h], intercepts[h]) for h in range(hospitals)])
    margins = [x @ w[1:] + w[0] for x, w in zip(X, own, strict=True)]
    curve = common_curve(pair_sums(np.concatenate(margins), np.concatenate(y), ends(sizes)))
    found = pooled(curve.auroc, curve.variance, WIDEST)
    newcomers = zip(*hospitals_drawn(rng, NEWCOMERS, spread), strict=True)
    further = np.array([true_auroc(everybody, b, a) for b, a in newcomers])
    tested = [labels[k:] for labels, k in zip(y, cut, strict=True)]
    seen = [x[k:] @ everybody[1:] + everybody[0] for x, k in zip(X, cut, strict=True)]
    pair = difference(seen, [m[k:] for m, k in zip(margins, cut, strict=True)], tested)
    n = np.array([len(each) for each in tested])
    gains = np.array([true_auroc(everybody, slopes[h], intercepts[h]) for h in range(hospitals)]) - truth
    return {
        "truth": truth,
        "mean": (found.low, found.high),
        "next": ((found.next_low <= further) & (further <= found.next_high)).mean(),
        "part": pair,
        "part_truth": float(gains @ n / n.sum()),
    }


def hospitals_drawn(rng: np.random.Generator, hospitals: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """True coefficients ``[H, 6]`` and intercepts ``[H]``."""
    slopes = WEIGHTS + spread * rng.standard_normal((hospitals, len(WEIGHTS)))
    return slopes, -1.2 + 0.5 * rng.standard_normal(hospitals)


def fitted(rows: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Maximum likelihood, intercept first; a ridge of .01 keeps separated draws finite."""
    X = np.column_stack([np.ones(sum(len(x) for x, _ in rows)), np.concatenate([x for x, _ in rows])])
    y, w = np.concatenate([labels for _, labels in rows]), np.zeros(X.shape[1])
    for _ in range(7):
        p = expit(X @ w)
        w = w + np.linalg.solve((X * (p * (1 - p))[:, None]).T @ X + 0.01 * np.eye(len(w)), X.T @ (y - p) - 0.01 * w)
    return w


def true_auroc(model: np.ndarray, slopes: np.ndarray, intercept: float) -> float:
    """The AUROC of a fitted model in a hospital's population: its score and the true logit are jointly normal."""
    length = np.linalg.norm(model[1:])
    along = float(model[1:] @ slopes / length)
    across = np.sqrt(max(slopes @ slopes - along**2, 0.0))
    risk = expit(intercept + along * POINTS[:, None] + across * INNER) @ INNER_WEIGHTS
    events, others = risk / risk.sum(), (1 - risk) / (1 - risk).sum()
    below = np.cumsum(others) - others / 2
    return float(events @ below)


def ends(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def difference(first: list[np.ndarray], second: list[np.ndarray], y: list[np.ndarray]) -> tuple[float, float]:
    """The interval of the difference that a comparison gives, one seed."""
    n = np.array([len(each) for each in y])
    offsets, labels = ends(n), np.concatenate(y)
    ids, people = np.arange(len(n)), np.arange(n.sum())
    sums, figures = [], []
    for margins in (np.concatenate(first), np.concatenate(second)):
        sums.append([sketches(placements(margins, labels, offsets), ids, people)])
        figures.append(common_curve(pair_sums(margins, labels, offsets)).auroc[None])
    counted = np.where(np.isfinite(figures[0] - figures[1]), n[None], 0.0)
    found = paired(*figures, n[None].astype(float), patients=patient_part(sums[0], sums[1], counted))
    return found.population()


def search(hospitals: int, models: int, draws: int) -> str:
    """The row of one design: models that are all as good as the reference."""
    best, corrected, excluded, covers = [], [], np.zeros(2), np.zeros(2)
    rows = np.full((2, hospitals), 200.0)
    for seed in range(draws):
        rng = stream(seed, f"search of {models} models")
        patients = rng.uniform(0.02, 0.03, hospitals)
        truth = 0.008 * rng.standard_normal((models, hospitals))
        noise = patients * rng.standard_normal((models, hospitals))
        seeds = 0.001 * rng.standard_normal((models, 2, hospitals))
        figures = (truth + noise)[:, None] + seeds
        sums = (rows.sum(axis=0) * patients) ** 2
        pairs = [paired(each, np.zeros_like(each), rows, patients=sums) for each in figures]
        found = searched(pairs, figures.mean(axis=1), rows[0], models)
        best.append(found.estimate)
        corrected.append(found.corrected)
        for i, limits in enumerate((adjusted_for([pairs[found.best]], 1)[0], found.limits[found.best])):
            excluded[i] += limits.low > 0 or limits.high < 0
            covers[i] += limits.low <= 0 <= limits.high
    shares = [f"{each[0] / draws:.3f}, {each[1] / draws:.3f}" for each in (excluded, covers)]
    return f"| {hospitals}, {models} | {np.mean(best):+.4f} | {np.mean(corrected):+.4f} | {shares[0]} | {shares[1]} |"


if __name__ == "__main__":
    main()
