"""Cross-validation: the fold of each row, so that every row is tested once.

Folds are stratified by hospital and class, in a similar way to scikit-learn's ``StratifiedGroupKFold``. The rows of a
group, such as a patient, are all in one fold.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Ids
from raysim.core.streams import stream
from raysim.data.split import number


def deal(folds: int, home: Ids, names: tuple[str, ...], group: Ids | None, y: NDArray[Any], seed: int) -> Ids:
    """Assign each row a fold in ``0..folds-1``, ``[N]``.

    ``home [N]`` is the index of each row's hospital in ``names``. ``group [N]`` identifies the group of each row, such
    as its patient; a group is never divided. If ``group`` is None, each row is a group. ``y [N]`` are class indices or
    real-valued labels; real-valued labels do not stratify the folds. Each hospital uses a random stream of its own,
    which depends on ``seed`` and the hospital's name. The class of a group is the highest class index among its rows.

    Each hospital's groups are assigned in order of size, the largest first. A group gets the fold that has the fewest
    of the hospital's rows of the group's class. A group that also has rows at an earlier hospital keeps its fold.
    """
    of_class = y if y.dtype.kind in "iu" else np.zeros(len(y), np.int64)
    groups = np.arange(len(home)) if group is None else group
    dealt = np.full(int(groups.max(initial=-1)) + 1, -1, np.int64)
    by_hospital = np.argsort(home, kind="stable")
    starts = np.searchsorted(home[by_hospital], np.arange(len(names) + 1))
    for h, name in enumerate(names):
        rows = by_hospital[starts[h] : starts[h + 1]]
        rng = stream(seed, "folds", number(name))
        present, of_row, sizes = np.unique(groups[rows], return_inverse=True, return_counts=True)
        classes = np.zeros(len(present), np.int64)
        np.maximum.at(classes, of_row, of_class[rows])
        preferred = rng.permutation(folds)
        order = rng.permutation(len(present))
        rarity = np.bincount(classes, weights=sizes)[classes]
        order = order[np.lexsort((classes[order], rarity[order], -sizes[order]))]
        held = np.zeros((int(classes.max(initial=0)) + 1, folds), np.int64)  # rows of each class in each fold
        fold_of = dealt[present]
        np.add.at(held, (classes[fold_of >= 0], fold_of[fold_of >= 0]), sizes[fold_of >= 0])
        for g in order[fold_of[order] < 0]:
            fullness = np.lexsort((held.sum(axis=0)[preferred], held[classes[g], preferred]))
            fold = preferred[fullness[0]]
            held[classes[g], fold] += sizes[g]
            dealt[present[g]] = fold
    return dealt[groups]
