"""Secure aggregation over all hospitals before the first round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raysim.secure import graph
from raysim.secure.protocol import Lost, SecureSum

BEFORE = 0
"""The round number of secure aggregation before training."""


@dataclass(frozen=True)
class SetupSums:
    """The settings of secure aggregation over all hospitals before the first round."""

    neighbours: Literal["auto", "all"] | int
    """The number of neighbours with which each hospital shares masks; see :func:`raysim.secure.graph.degree`."""
    threshold: Literal["auto"] | int
    """The number of shares from which a secret can be reconstructed; see :func:`raysim.secure.graph.threshold`."""
    group: int
    """The index of the sum: sums with different indices use different masks."""
    execute: bool
    """Whether hospitals' vectors are masked. The result is the same without masks, to the last bit."""

    def total(self, vectors: Sequence[NDArray[np.int64]], seed: int) -> NDArray[np.int64]:
        """Return the sum of ``vectors [n]``, one from each hospital, modulo 2^64. Masks are generated from ``seed``."""
        m, total = len(vectors), np.zeros(len(vectors[0]), dtype=np.uint64)
        if not self.execute or m < 2:
            for vector in vectors:
                total += vector.view(np.uint64)
            return total.view(np.int64)
        degree = graph.degree(self.neighbours, m)
        secure = SecureSum(
            ids=np.arange(m),
            neighbours=degree,
            threshold=graph.threshold(self.threshold, degree),
            minimum=m,
            lost=Lost(),
            seed=seed,
            round=BEFORE,
            group=self.group,
        )
        for hospital, vector in enumerate(vectors):
            total += secure.masked(hospital, vector)
        return secure.unmasked(total)
