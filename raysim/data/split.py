"""The division of a hospital's rows into training, validation and test."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from raysim.core.arrays import Ids
from raysim.core.defaults import default
from raysim.core.errors import DataError
from raysim.core.section import Section, Seed
from raysim.core.streams import Streams, stream
from raysim.core.words import counted
from raysim.data.federation import PARTS

ROUNDED = 0.0015
"""The largest difference between 1 and the sum of the three fractions that counts as rounding to three digits."""


class Split(Section):
    """``data.split``: fractions for a random split at each hospital, or folds, or a column of the data that names each
    row's part.

    - ``train``, ``validation``, ``test``: fractions that sum to 1; ``train`` and ``test`` above 0. A sum that differs
      from 1 by at most :data:`ROUNDED` is rescaled to 1.
    - ``by``: what is never divided between parts: ``row``, ``patient``, or a column of the data. None: ``patient``
      where the source identifies patients, else ``row``.
    - ``seed``: the seed of the random split, or of the random folds. None: the run's seed, or the seed that ``folds``
      describes.
    - ``folds``: the number of folds of a cross-validation, instead of fractions. The run with seed ``s`` tests on fold
      ``s mod folds`` and trains on all other folds. If ``seed`` is None, the seed of the folds is ``s`` divided by
      ``folds``, rounded down. Runs with seeds from 0 to ``folds - 1`` thus make one cross-validation.
    - ``column``: a column with the values ``train``, ``validation`` or ``test``. It cannot be combined with fractions,
      ``by``, ``seed``, ``folds`` or ``independent``.
    - ``independent``: whether each patient (or row) is assigned to a part or fold regardless of all others. Fractions
      are then met on average only. None: true under a privacy guarantee for patients or rows.
    - ``used``: the share of each hospital's training rows that is trained on. The rows of a smaller share are also in
      every larger share.
    - ``unseen``: hospitals whose rows are all test rows, regardless of the other fields.
    - ``trained_on``: with ``all``, the test rows of all hospitals outside ``unseen`` become training rows; with
      ``train`` they do not.
    """

    train: float = default("data.split.train", allow_inf_nan=False)
    validation: float = default("data.split.validation", allow_inf_nan=False)
    test: float = default("data.split.test", allow_inf_nan=False)
    by: str | None = default("data.split.by")
    seed: Seed | None = default("data.split.seed")
    folds: int | None = default("data.split.folds", ge=2)
    column: str | None = default("data.split.column")
    independent: bool | None = default("data.split.independent")
    used: float = default("data.split.used", gt=0, le=1)
    unseen: tuple[str, ...] = default("data.split.unseen")
    trained_on: Literal["train", "all"] = default("data.split.trained_on")

    @model_validator(mode="after")
    def _consistent(self) -> Split:
        if self.column is not None and (given := self._given(*PARTS, "by", "seed", "folds", "independent")):
            raise ValueError(
                f"column: '{self.column}' decides the parts and cannot be combined with {given}; keep one of them"
            )
        if self.folds is not None and (given := self._given(*PARTS)):
            raise ValueError(
                f"folds: {self.folds} decides the parts and cannot be combined with {given}; keep one of them"
            )
        if self.trained_on == "all" and not self.unseen:
            raise ValueError("trained_on 'all' leaves no test rows; list hospitals to test on in unseen")
        for part in PARTS:
            value = getattr(self, part)
            if not 0 <= value <= 1:
                raise ValueError(f"{part} is {value:g}, not a fraction in [0, 1]")
            if value == 0 and part != "validation":
                raise ValueError(f"{part} is 0, but hospitals need rows to {part} on; give {part} a fraction above 0")
        total = self.train + self.validation + self.test
        if abs(total - 1) > ROUNDED + 1e-9:
            given = " + ".join(f"{part} {getattr(self, part):g}" for part in PARTS)
            raise ValueError(f"{given} is {total:g}; make the fractions sum to 1")
        if abs(total - 1) > 1e-9:
            for part in PARTS:
                object.__setattr__(self, part, getattr(self, part) / total)
        return self

    def _given(self, *names: str) -> str:
        return ", ".join(name for name in names if name in self.model_fields_set and getattr(self, name) is not None)

    @model_serializer(mode="wrap")
    def _without_idle_fractions(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write the configuration without the keys that have no effect.

        Fractions are omitted if folds or a column decide the parts, because a configuration that also has fractions is
        refused. Defaults of ``unseen``, ``used`` and ``trained_on`` are omitted so that runs of earlier versions can be
        resumed.
        """
        decided = self.folds is not None or self.column is not None
        idle = {*(PARTS if decided else ()), *(() if self.unseen else ("unseen",))}
        idle |= {"used"} if self.used == 1 else set()
        idle |= {"trained_on"} if self.trained_on == "train" else set()
        return {key: value for key, value in write(self).items() if key not in idle}

    def by_itself(self) -> Split:
        """Return this split with ``independent`` set, so that the part of a patient depends on no other patient.

        The parts of a split by column do not change.
        """
        return self.model_copy(update={"independent": True})

    def effective_seed(self, run: int) -> int | None:
        """Return the seed that decides the parts of a run with seed ``run``; None if a column decides the parts."""
        if self.column is not None:
            return None
        if self.seed is not None:
            return self.seed
        return run if self.folds is None else run // self.folds

    def fold(self, run: int) -> int | None:
        """Return the fold that a run with seed ``run`` tests on; None without folds."""
        return None if self.folds is None else run % self.folds

    def described(self, by: str, run: int) -> str:
        """Return a text that describes the split. ``by`` names the groups that were not divided: ``row``, ``patient``
        or a column.
        """
        hashed = self.independent and (self.column is None or self.used < 1)
        whom = "patient or row" if self.column is not None else by
        alone = f"; each {whom} by a separate hash, so that shares are met on average" if hashed else ""
        if self.used < 1:
            alone += f"; {100 * self.used:g} % of training rows used"
        if self.unseen:
            alone += f"; all rows of {counted(len(self.unseen), 'hospital')} are for testing"
        if self.trained_on == "all":
            alone += ", and the test rows of all others for training"
        if self.column is not None:
            return f"split: by column '{self.column}'{alone}"
        if (fold := self.fold(run)) is not None:
            seed = self.effective_seed(run)
            return f"split: fold {fold + 1} of {self.folds} tests, by {by}, seed {seed}{alone}"
        shares = ", ".join(f"{getattr(self, part):.4g} {part}" for part in PARTS if getattr(self, part))
        return f"split: {shares}, by {by}, seed {self.effective_seed(run)}{alone}"


def assign(
    split: Split, home: NDArray[np.int64], names: tuple[str, ...], group: NDArray[np.int64] | None, seed: int
) -> NDArray[np.int8]:
    """Assign each row a part, ``[N]``: 0 train, 1 validation, 2 test.

    ``home [N]`` is the index of each row's hospital in ``names``. ``group [N]`` identifies the group of each row, such
    as its patient; a group is never divided. If ``group`` is None, each row is a group. Each hospital permutes its
    groups with a random stream of its own, which depends on ``seed`` and the hospital's name. The first groups are for
    training, the next for validation, and the rest for test. The numbers of rows are as close as possible to the
    fractions. A group that also has rows at an earlier hospital keeps the part that it got there. Its rows also count
    towards the later hospital's fractions. Training gets at least one group, unless all groups keep parts other than
    training from earlier hospitals.
    """
    part = np.empty(len(home), np.int8)
    by_hospital = np.argsort(home, kind="stable")
    starts = np.searchsorted(home[by_hospital], np.arange(len(names) + 1))
    fractions, draws = (split.train, split.validation), Streams(seed, "split")
    of_rows = cache(lambda count: _parts(np.ones(count, np.int64), fractions, (0, 0, 0)))
    placed = None if group is None else np.full(int(group.max(initial=-1)) + 1, -1, np.int8)
    for h, name in enumerate(names):
        rows = by_hospital[starts[h] : starts[h + 1]]
        rng = draws.at(number(name))
        if group is None or placed is None:
            part[rows[rng.permutation(len(rows))]] = of_rows(len(rows))
            continue
        present, counts = np.unique(group[rows], return_counts=True)
        already = placed[present]
        taken = np.bincount(already[already >= 0], weights=counts[already >= 0], minlength=3)
        free = rng.permutation(np.flatnonzero(already < 0))
        placed[present[free]] = _parts(counts[free], fractions, tuple(taken))
        part[rows] = placed[group[rows]]
    return part


def deal(folds: int, home: Ids, names: tuple[str, ...], group: Ids | None, y: NDArray[Any], seed: int) -> Ids:
    """Assign each row a fold in ``0..folds-1``, ``[N]``, so that every row is tested once.

    Folds are stratified by hospital and class, in a similar way to scikit-learn's ``StratifiedGroupKFold``.
    ``home [N]`` is the index of each row's hospital in ``names``. ``group [N]`` identifies the group of each row, such
    as its patient; a group is never divided. If ``group`` is None, each row is a group. ``y [N]`` are class indices or
    real-valued labels; real-valued labels do not stratify the folds. Each hospital uses a random stream of its own,
    which depends on ``seed`` and the hospital's name. The class of a group is the highest class index among its rows.

    Each hospital's groups are assigned in order of size, the largest first. A group gets the fold that has the fewest
    rows of the same hospital and class. A group that also has rows at an earlier hospital keeps its fold.
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


def used(
    split: Split,
    home: NDArray[np.int64],
    names: tuple[str, ...],
    part: NDArray[np.int8],
    group: NDArray[np.int64] | None,
    seed: int,
) -> NDArray[np.bool_]:
    """Return a mask ``[N]`` of the rows that remain if only the share ``split.used`` of training rows is used.

    All validation and test rows remain. ``part [N]`` is the part of each row; the other arguments are as in
    :func:`assign`. Each hospital permutes its training groups once and uses the first groups: at least one, and as many
    as bring the number of rows closest to the share. The rows of a smaller share are therefore also in every larger
    share.
    """
    mask: NDArray[np.bool_] = part != 0
    draws = Streams(seed, "used")
    training = np.flatnonzero(part == 0)
    training = training[np.argsort(home[training], kind="stable")]
    starts = np.searchsorted(home[training], np.arange(len(names) + 1))
    for h, name in enumerate(names):
        rows = training[starts[h] : starts[h + 1]]
        if not len(rows):
            continue
        whole = rows if group is None else group[rows]
        present, turn, counts = np.unique(whole, return_inverse=True, return_counts=True)
        order = draws.at(number(name)).permutation(len(present))
        ends = np.concatenate([[0], np.cumsum(counts[order])])
        first = order[: max(1, _closest(ends, split.used * len(rows)))]
        mask[rows] = np.isin(turn, first)
    return mask


def _parts(sizes: NDArray[np.int64], fractions: tuple[float, float], taken: tuple[float, ...]) -> NDArray[np.int8]:
    rows = int(sizes.sum()) + sum(taken)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    train = max(0.0, fractions[0] * rows - taken[0])
    validation = max(0.0, fractions[1] * rows - taken[1])
    first = _closest(ends, train)
    if first == 0 and len(sizes) and taken[0] == 0:
        first = 1
    second = max(first, _closest(ends, train + validation))
    parts = np.full(len(sizes), 2, np.int8)
    parts[:first] = 0
    parts[first:second] = 1
    return parts


def _closest(ends: NDArray[np.int64], target: float) -> int:
    after = min(int(np.searchsorted(ends, target)), len(ends) - 1)
    if after > 0 and target - ends[after - 1] < ends[after] - target:
        return after - 1
    return after


def number(name: str) -> int:
    """Hash a hospital's name to 63 bits, which select the hospital's random stream."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") >> 1


def groups(by: str | None, group: NDArray[Any] | None, source: str) -> tuple[str, NDArray[np.int64] | None]:
    """Return what is never divided (``row``, ``patient`` or a column), and the group of each row, ``[N]``; None instead
    of groups means that each row is a group. Raises ``DataError`` if ``by`` names groups that the source does not give.
    """
    if by == "row" or (by is None and group is None):
        return "row", None
    if group is None:
        raise DataError(f"data.split.by: '{by}' is not known to source {source}; use row")
    import pandas as pd

    codes, _ = pd.factorize(group, sort=True)
    unnamed = codes < 0
    codes[unnamed] = codes.max(initial=-1) + 1 + np.arange(unnamed.sum())
    return by or "patient", codes.astype(np.int64)
