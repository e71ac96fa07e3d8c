"""The settings of boosted trees, and the columns and label for which they are grown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Loss = Literal["logistic", "softmax", "squared", "poisson"]

DEEPEST = 10
"""The largest allowed depth of a tree, which is stored with ``2^depth`` leaves."""

MOST_BINS = 255
"""The largest allowed number of bins of a column, not counting the bin of missing values."""

MOST_LEVELS = 255
"""The largest allowed number of categories of a column."""


@dataclass(frozen=True)
class TreeSettings:
    """The keys of ``model:`` for boosted trees."""

    trees: int = 100
    """The number of boosting steps. Each step grows one tree, or C trees for C > 2 classes."""
    depth: int = 3
    """The largest number of splits between the root and a leaf."""
    rate: float = 0.1
    """The factor by which the values of all leaves are multiplied (eta)."""
    bins: int = 32
    """The largest number of bins of a numeric column."""
    min_rows: int = 10
    """The smallest number of training rows on each side of a split."""
    l2: float = 1.0
    """The penalty on squared values of leaves (lambda)."""
    gamma: float = 0.0
    """The threshold (gamma) that half the gain of a split has to exceed."""
    edges: Literal["codes", "exact"] = "codes"
    """The precision of the edges of bins: with ``codes``, values with the same first 16 of 32 bits count as equal;
    ``exact`` uses all bits."""
    row_share: float = 1.0
    """The share of rows on which each tree is grown."""
    column_share: float = 1.0
    """The share of columns that each tree may split by."""
    own_trees: int = 20
    """The number of boosting steps with which a hospital fine-tunes its model. Each step grows one tree, or C trees for
    C > 2 classes."""
    loss: Literal["auto", "squared", "poisson"] = "auto"
    """The loss for a numeric label: ``poisson`` for counts; ``auto`` is squared."""

    def __post_init__(self) -> None:
        for name, least, most in (
            ("trees", 1, 100_000),
            ("depth", 1, DEEPEST),
            ("bins", 2, MOST_BINS),
            ("min_rows", 1, 2**31),
            ("own_trees", 0, 1000),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise ValueError(f"{name}: {value!r} is not a whole number from {least} to {most}")
        for name in ("rate", "l2", "gamma"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name}: {getattr(self, name)!r} is not a number of at least 0")
        for name in ("row_share", "column_share"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name}: {getattr(self, name)!r} is out of range; give more than 0 and at most 1")
        for name, known in (("edges", ("codes", "exact")), ("loss", ("auto", "squared", "poisson"))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}: {getattr(self, name)!r} is not known; write {' or '.join(known)}")


@dataclass(frozen=True)
class TreeTask:
    """The settings of trees, and the columns and the label for which they are grown.

    - ``levels [F]``: the number of categories of each column, coded as 0, 1, ...; 0 for a column of numbers. Missing
      values are NaN.
    - ``classes``: the number of classes of the label; 0 if the label is a number.
    """

    settings: TreeSettings
    levels: tuple[int, ...]
    classes: int

    @property
    def loss(self) -> Loss:
        """Return the loss that is minimised."""
        if self.classes:
            return "logistic" if self.classes == 2 else "softmax"
        return "poisson" if self.settings.loss == "poisson" else "squared"

    @property
    def outputs(self) -> int:
        """Return ``K``, which is the number of the model's outputs and the number of trees in each boosting step."""
        return self.classes if self.classes > 2 else 1

    @property
    def splits(self) -> int:
        """Return the largest number of splits of a tree, ``I``."""
        return int(2**self.settings.depth) - 1

    @property
    def nodes(self) -> int:
        """Return the largest number of nodes of a tree, ``N``."""
        return 2 * self.splits + 1

    @property
    def together(self) -> int:
        """Return the number of boosting steps."""
        return self.settings.trees

    def personal(self) -> TreeTask:
        """Return the task for the trees that a hospital adds when it fine-tunes: few and shallow, because a hospital
        has few rows.
        """
        settings = self.settings
        own = replace(
            settings, trees=max(settings.own_trees, 1), depth=min(settings.depth, 2), rate=0.05, l2=5.0, min_rows=5
        )
        return replace(self, settings=own)


def check_levels(names: Sequence[str], levels: Sequence[int]) -> None:
    """Raise ``ValueError`` for a column with more than ``MOST_LEVELS`` categories."""
    for name, count in zip(names, levels, strict=True):
        if count > MOST_LEVELS:
            raise ValueError(
                f"column '{name}' has {count:,} categories, but boosted trees accept at most {MOST_LEVELS}; group "
                "them, or leave the column out"
            )
