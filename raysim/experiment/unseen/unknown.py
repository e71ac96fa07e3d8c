"""Remarks on data that left-out hospitals record differently from participants."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from raysim.core.words import listed
from raysim.data.fitted import Categorical
from raysim.experiment.unseen.folds import LeftOut


def notes_of(run: LeftOut) -> Iterator[str]:
    """Return sentences on empty columns, and on categories that no participant has and that are therefore ignored."""
    federation = run.result.federation
    for name in run.fold.held:
        rows = federation.rows(federation.hospitals.index(name), "test")
        X, observed, first, empty = federation.X[rows], federation.observed[rows], 0, []
        for column in federation.preprocessing.columns:
            block = slice(first, first + len(column.values))
            known, first = observed[:, block].any(axis=1), block.stop
            if not known.any():
                empty.append(f"'{column.name}'")
            elif isinstance(column, Categorical) and not column.coded:
                share = float((known & ~X[:, block].any(axis=1)).mean())
                if share:
                    yield (
                        f"{share:.0%} of the rows of {name} have a '{column.name}' that no participant has: they are "
                        "scored with none of its categories."
                    )
        if empty and np.size(X):
            yield f"{name} has no value of {listed(empty, 5)}: what participants fill in stands there."
