"""How accuracy is spread over hospitals: accuracy, AD and SDAD (Clust-PSI-PFL), and the figures behind them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from raysim.core.words import capitalised
from raysim.metrics.declared import ADDED, SCORES
from raysim.report.pages.contents import Cell, Row
from raysim.report.tables import KEYS

COLUMNS = (
    *(("accuracy", "Accuracy", True), ("ad", "AD", False), ("sdad", "SDAD", False)),
    *((each.name, capitalised(each.unit.partition(",")[0]), each.larger) for each in SCORES if each.name in ADDED),
)
"""Figure, heading, and whether more is better (None: neither); the last are those that other packages register."""


def accuracy_rows(per_seed: pd.DataFrame, names: Sequence[str]) -> list[Row]:
    """Rows of the table of accuracy: mean and deviation over seeds, the best of each column marked as displayed.

    ``per_seed`` has a row a strategy, model and seed, ``names`` are those of the strategies and models in the order in
    which they first appear. No rows where accuracy is not measured.
    """
    if not {figure for figure, *_ in COLUMNS} <= set(per_seed):
        return []
    groups = per_seed.assign(model=per_seed.get("model", "global")).groupby(KEYS, sort=False)
    rated = ~groups["yardstick"].first().to_numpy(bool) if "yardstick" in per_seed else np.ones(len(names), dtype=bool)
    cells = []
    for figure, _, larger in COLUMNS:
        means, stds = (
            np.round(column.to_numpy(np.float64), 3) for column in (groups[figure].mean(), groups[figure].std())
        )
        candidates = means[rated & np.isfinite(means)]
        rankable = larger is not None and len(candidates) and len(means) > 1
        top = (candidates.max() if larger else candidates.min()) if rankable else None
        cells.append(
            [
                Cell(
                    f"{mean:.3f}" if np.isfinite(mean) else "undefined",
                    f"{std:.3f}" if np.isfinite(std) else "",
                    bool(among and mean == top),
                )
                for mean, std, among in zip(means, stds, rated, strict=True)
            ]
        )
    return [Row(name, line) for name, *line in zip(names, *cells, strict=True)]


def local_accuracy(hospitals: pd.DataFrame) -> pd.DataFrame:
    """``strategy, model, hospital, accuracy``: means over seeds, of hospitals with test rows.

    ``hospitals`` has these columns, ``n_test`` and optionally ``seed``; no rows where accuracy is not measured.
    """
    if "accuracy" not in hospitals:
        return pd.DataFrame(columns=[*KEYS, "hospital", "accuracy"])
    tested = hospitals[(hospitals["n_test"] > 0) & hospitals["accuracy"].notna()]
    return tested.groupby([*KEYS, "hospital"], sort=False)["accuracy"].mean().reset_index()
