"""Accuracy, AD and SDAD in a comparison, and the distribution of local accuracy."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from raysim.report.sections.accuracy import accuracy_rows, local_accuracy


@pytest.fixture
def hospitals() -> pd.DataFrame:
    """Three hospitals under two strategies and two seeds; the last has no test row."""
    rows = [
        {
            "strategy": strategy,
            "model": "global",
            "seed": seed,
            "hospital": name,
            "n_test": n,
            "accuracy": value + shift + seed / 10,
        }
        for strategy, shift in (("fedavg", 0.0), ("other", 0.25))
        for seed in (0, 1)
        for name, n, value in (("a", 5, 0.5), ("b", 9, 0.25), ("c", 0, np.nan))
    ]
    return pd.DataFrame(rows)


def test_local_accuracy_is_the_mean_over_seeds_of_hospitals_with_test_rows(hospitals):
    means = local_accuracy(hospitals)
    assert means["hospital"].tolist() == ["a", "b", "a", "b"]
    assert means["accuracy"].to_numpy() == pytest.approx([0.55, 0.3, 0.8, 0.55])


def test_rows_have_means_and_deviations_over_seeds_and_mark_the_best():
    per_seed = pd.DataFrame(
        {
            "strategy": ["fedavg", "fedavg", "other", "other", "bound", "bound"],
            "model": "global",
            "seed": [0, 1] * 3,
            "yardstick": [False] * 4 + [True] * 2,
            "accuracy": [0.8, 0.9, 0.7, 0.7, 1.0, 1.0],
            "ad": [0.3, 0.3, 0.2, 0.2, 0.0, 0.0],
            "sdad": [0.1, 0.1, 0.1, np.nan, 0.0, 0.0],
        }
    )
    rows = accuracy_rows(per_seed, ["fedavg", "other", "bound *"])
    assert [row.name for row in rows] == ["fedavg", "other", "bound *"]
    cells = [[(cell.mean, cell.std, cell.best) for cell in row.cells] for row in rows]
    assert cells == [
        [("0.850", "0.071", True), ("0.300", "0.000", False), ("0.100", "0.000", True)],
        [("0.700", "0.000", False), ("0.200", "0.000", True), ("0.100", "", True)],
        [("1.000", "0.000", False), ("0.000", "0.000", False), ("0.000", "0.000", False)],
    ]
    assert accuracy_rows(per_seed.drop(columns="sdad"), ["fedavg", "other", "bound *"]) == []
