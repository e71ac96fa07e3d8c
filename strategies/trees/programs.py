"""Client programs for boosted trees: counts of values, sums of labels, and histograms of a level."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats, Ints
from raysim.strategies.base import Added, Context, Keep, Program, Reply, Send
from raysim.strategies.trees.base import row_numbers, taken, unpacked
from raysim.trees.binning import Bins
from raysim.trees.edges import WIDTH, Prefixes, counts, ranked
from raysim.trees.growing import descended, level_of, members
from raysim.trees.histograms import CHANNELS, FEW, Binned
from raysim.trees.losses import GRID, check_counts, gradients, label_scale, label_units
from raysim.trees.settings import TreeTask

SCALES = 64
"""The number of possible values of the exponent in :class:`LabelScales`: 0 to 63. A larger exponent is sent as 63."""


@dataclass(frozen=True)
class ValueCounts(Program):
    """The counts of a hospital's rows that the server requests (:class:`raysim.trees.edges.Prefixes`)."""

    entries: int
    name: str = "counts of values"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"counts": Send((self.entries, WIDTH), kind="counts of values", bits=0)}

    def run(self, at: Context) -> Reply:
        (added,), _ = self.run_added([at])
        return Reply(added.sums)

    def run_added(self, contexts: Sequence[Context]) -> tuple[Sequence[Added], Sequence[Mapping[str, Any]]]:
        received = contexts[0].received
        asked = Prefixes(received["column"], received["prefix"], int(received["bits"]))
        ranks = contexts[0].cache(
            f"ranks {_names(contexts)}", lambda: ranked(np.concatenate([at.rows.X for at in contexts]))
        )
        return [Added({"counts": counts(ranks, asked)}, len(contexts))], [{} for _ in contexts]


@dataclass(frozen=True)
class LabelScales(Program):
    """The exponent ``k >= 0`` of the smallest ``2^k`` that bounds a hospital's absolute labels, as a one-hot vector.

    All labels are divided by the largest ``2^k`` of all hospitals.
    """

    name: str = "scales of labels"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"scales": Send((SCALES,), kind="label sums", bits=0)}

    def run(self, at: Context) -> Reply:
        made = np.zeros(SCALES)
        made[min(label_scale(at.rows.y), SCALES - 1)] = 1
        return Reply({"scales": made})


@dataclass(frozen=True)
class LabelSums(Program):
    """The number of a hospital's rows of each class. For a numeric label: the sum of ``label / 2^scale``, as a whole
    number of grid steps."""

    classes: int
    scale: int = 0
    counts: bool = False
    """Whether labels must be whole numbers of at least 0."""
    name: str = "sums of labels"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"labels": Send((self.classes or 1,), kind="label sums", bits=0)}

    def run(self, at: Context) -> Reply:
        y = at.rows.y
        if self.counts:
            check_counts(y)
        sums = np.bincount(y, minlength=self.classes) if self.classes else label_units(y, self.scale).sum(keepdims=True)
        return Reply({"labels": sums})


@dataclass(frozen=True, eq=False)
class Histograms(Program):
    """A hospital's histograms of ``nodes [m]``, from which one level of the trees of boosting step ``tree`` is grown.

    ``which [m]`` has the index of each node's tree. The hospital receives the splits of the unfinished trees. At the
    first level it receives the trees of the previous round, and adds their values to its stored margins. Before
    the first tree, the K margins of every row are ``base [K]``.
    """

    task: TreeTask
    bins: Bins
    base: Ints
    scale: int
    tree: int
    which: Ints
    nodes: Ints
    before: bytes
    """A digest of all trees of earlier boosting steps; gradients are cached until it changes."""
    key: int = 0
    """The seed of the random choice of rows."""
    name: str = "histograms"

    @cached_property
    def sends(self) -> Mapping[str, Send]:
        return {"histograms": Send((len(self.nodes), self.bins.width, CHANNELS), kind="histograms", bits=0)}

    @cached_property
    def keeps(self) -> Mapping[str, Keep]:
        return {"margins": Keep(("n", len(self.base)), "i8"), "grown": Keep((), "i8")}

    @property
    def remembers(self) -> bool:
        return self.is_first

    @cached_property
    def is_first(self) -> bool:
        """Whether this is the first level of a tree."""
        return not self.nodes.any()

    def run(self, at: Context) -> Reply:
        (added,), (memory,) = self.run_added([at])
        return Reply(added.sums, memory)

    def run_added(self, contexts: Sequence[Context]) -> tuple[Sequence[Added], Sequence[Mapping[str, Any]]]:
        rows = _Together(contexts, self.bins)
        memories: list[Mapping[str, Any]] = [{} for _ in contexts]
        margins = partial(self._margins, contexts, rows)
        if self.is_first:
            found, ends, grown = margins(), np.cumsum(rows.lengths), np.array(self.tree)
            memories = [
                {"margins": found[end - n : end], "grown": grown}
                for n, end in zip(rows.lengths.tolist(), ends.tolist(), strict=True)
            ]
            margins = partial(np.asarray, found)
        # Gradients are the same at all levels of a tree.
        g, h = rows.gradients(lambda: gradients(self.task.loss, margins(), rows.y, self.scale), self.before)
        made = np.empty((len(self.nodes), self.bins.width, CHANNELS))
        root = (np.zeros(0, np.int16), np.zeros((0, 0), np.bool_))
        trees = [root] * len(self.base) if self.is_first else unpacked(contexts[0].received)
        taken_rows = taken(self.task, self.key, self.tree, rows.numbers)
        binned = rows.binned
        for k in np.unique(self.which).tolist():
            mine = self.which == k
            nodes, (column, left) = self.nodes[mine], trees[k]
            node = rows.reached(k, column, left, level_of(nodes))
            made[mine] = binned.histograms(members(node, nodes.tolist(), taken_rows), g[:, k], h[:, k])
        return [Added({"histograms": made}, len(contexts))], memories

    def _margins(self, contexts: Sequence[Context], rows: _Together) -> Ints:
        if all("margins" in at.memory for at in contexts):
            margins = np.concatenate([at.memory["margins"] for at in contexts])
        else:
            sizes = zip(contexts, rows.lengths.tolist(), strict=True)
            start = [np.broadcast_to(at.memory.get("margins", self.base), (n, len(self.base))) for at, n in sizes]
            margins = np.concatenate(start)
        # If a round is repeated because another hospital was lost, a hospital has already added the last trees.
        grown = np.array([at.memory.get("grown", 0) for at in contexts])
        behind = np.repeat(grown < self.tree, rows.lengths)
        received = contexts[0].received
        if self.is_first and "column" in received and behind.any():
            depth = self.task.settings.depth
            for k, (column, left) in enumerate(unpacked(received)):
                values = received["value"][k].take(rows.reached(k, column, left, depth))
                margins[:, k] += np.where(behind, values, 0)
        return margins


def _names(contexts: Sequence[Context]) -> str:
    return hashlib.blake2b(np.array([at.hospital for at in contexts]).tobytes(), digest_size=12).hexdigest()


class _Together:
    """The concatenated rows of several hospitals, and the arrays for their histograms, cached per process."""

    def __init__(self, contexts: Sequence[Context], bins: Bins) -> None:
        self._contexts, self._bins = contexts, bins
        who = _names(contexts)
        self._names = who, f"{bins.digest} {who}"

    def _made(self, name: str, of: Callable[[Context], NDArray[Any]]) -> NDArray[Any]:
        """Call ``of`` for every hospital and return the concatenated results, cached per process by ``name``."""
        who = self._names[0]
        return self._contexts[0].cache(f"{name} {who}", lambda: np.concatenate([of(at) for at in self._contexts]))

    def _in_bins(self, name: str, make: Callable[[], NDArray[Any]], of: bytes = b"") -> NDArray[Any]:
        """Return the result of ``make()``, cached per process by ``name``, hospitals and bins.

        It is computed again if the digest ``of`` differs from that of the cached result.
        """
        return self._contexts[0].cache(f"{name} {self._names[1]}", make, of)

    @cached_property
    def codes(self) -> NDArray[np.uint8]:
        """Return the index of each value's bin, ``[n, F]`` for n rows and F columns."""
        return self._in_bins("codes", lambda: self._bins.codes(np.concatenate([at.rows.X for at in self._contexts])))

    @cached_property
    def binned(self) -> Binned:
        codes = self.codes
        made = Binned(self._bins, codes)
        # The cells of few rows are never needed.
        return made if len(codes) < FEW else Binned(self._bins, codes, self._in_bins("cells", made.cells))

    def reached(self, k: int, column: NDArray[Any], left: NDArray[np.bool_], levels: int) -> NDArray[np.uint16]:
        """Return the node of the ``k``-th tree that each row reaches after ``levels`` levels of splits."""
        if not levels:
            return np.zeros(len(self.codes), np.uint16)
        splits = 2**levels - 1
        of = hashlib.blake2b(column[:splits].tobytes() + left[:splits].tobytes(), digest_size=16).digest()
        return self._in_bins(
            f"nodes {k}",
            lambda: descended(self.codes, column, left, self.reached(k, column, left, levels - 1)),
            of,
        )

    def gradients(self, make: Callable[[], tuple[Floats, Floats]], before: bytes) -> NDArray[Any]:
        """Return the result of ``make()``: the gradients and the second derivatives of the loss, ``[2, n, K]``.

        They are cached while ``before``, a digest of the trees so far, stays the same.
        """
        return self._contexts[0].cache(f"gradients {self._names[0]}", lambda: np.stack(make()), before)

    @cached_property
    def lengths(self) -> Ints:
        """The number of rows of each hospital."""
        return self._made("lengths", lambda at: np.array([len(at.rows.y)]))

    @cached_property
    def y(self) -> NDArray[Any]:
        """The labels, ``[n]``."""
        return self._made("labels", lambda at: at.rows.y)

    def numbers(self) -> NDArray[np.uint64]:
        """Return a number for each row that depends only on the row's content."""
        return self._made("numbers of rows", lambda at: row_numbers(at.rows.X, at.rows.y))


def scaled(sums: Floats, classes: int) -> Floats:
    """Convert the ``sums`` of :class:`LabelSums` to numbers of rows of each class, or to the sum of scaled labels.

    For a numeric label, ``classes`` is 0, and ``sums`` has the sum as a number of grid steps.
    """
    return sums if classes else sums / GRID
