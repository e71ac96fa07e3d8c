"""Count how many of a hospital's sorted scores lie below given scores, for many hospitals at once.

A binary search takes a dozen unpredictable branches. Here each hospital's range is divided into cells of equal width;
there are more cells than scores. An index stores how many scores lie below each cell, so that only scores of the same
cell are compared.
"""

from __future__ import annotations

import numpy as np

from raysim.core.arrays import Floats, Ints

CELLS = 2
"""Number of cells for each score of a hospital."""

EDGE = 4.0
"""Scores beyond this distance from 0 share the first or last cell; few standard normal scores are so far away."""


class Ranks:
    """The ascending scores of ``b`` federations, ``[b, C]``. Hospital ``h`` has columns ``first[h]:first[h + 1]``.

    ``home [H]`` has been added to each hospital's scores, so that the scores of different hospitals do not overlap.
    """

    def __init__(self, scores: Floats, first: Ints, home: Floats) -> None:
        federations, columns = scores.shape
        self._first, self._home = first, home
        self._cells = CELLS * np.diff(first)
        self._first_cell = np.cumsum(self._cells) - self._cells
        self._total = int(self._cells.sum())
        of = np.repeat(np.arange(len(home)), np.diff(first))
        cells = np.bincount(self._cell(scores, of, 0).ravel(), minlength=federations * self._total)
        # The position of each cell's first score; each row of scores ends with an infinite score.
        below = np.cumsum(cells) - cells + np.repeat(np.arange(federations), self._total)
        self._below = below.astype(np.int32 if federations * (columns + 1) < 1 << 31 else np.int64)
        self._columns = columns + 1
        self._scores = np.full((federations, columns + 1), np.inf)
        self._scores[:, :-1] = scores
        self._scores = self._scores.ravel()

    def below(self, scores: Floats, of: Ints, start: int) -> Ints:
        """Count the scores of the same hospital below each of ``scores [..., f, R]``; ``of [R]`` are the hospitals of
        the scores.

        The ``f`` federations are the federations ``start``, ``start + 1``, ... of this index.
        """
        place = self._below.take(self._cell(scores, of, start)).astype(np.int64)
        flat, sought = place.ravel(), scores.ravel()
        above = np.flatnonzero(self._scores.take(flat) < sought)
        while len(above):
            flat[above] += 1
            above = above[self._scores.take(flat[above]) < sought[above]]
        federation = np.arange(start, start + scores.shape[-2])[:, None]
        place -= self._columns * federation + self._first[of]
        return place

    def _cell(self, scores: Floats, of: Ints, start: int) -> Ints:
        cell = scores - self._home[of]
        cell += EDGE
        cell *= (self._cells / (2 * EDGE))[of]
        np.clip(cell, 0, self._cells[of] - 1, out=cell)
        places: Ints = cell.astype(np.int64)
        federation = np.arange(start, start + scores.shape[-2])[:, None]
        places += self._first_cell[of] + self._total * federation
        return places
