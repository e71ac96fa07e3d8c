"""How large the labels of a federation are, so that a fit does not depend on the unit that they are in.

Sums travel as whole numbers of a grid, which has an end. Labels divided by a power of two have the digits that they
had, and the same fit but for that factor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from raysim.strategies.base import Answers, Context, Program, Reply, Send

EXPONENTS = 256
"""Of powers of two, half of them below 1; labels beyond count as of the first or the last."""


@dataclass(frozen=True)
class LabelSize(Program):
    """A count of 1 at the exponent of the hospital's largest label."""

    name: str = "label_size"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"exponents": Send((EXPONENTS,), kind="label sizes", bits=0)}

    def run(self, at: Context) -> Reply:
        exponent = int(np.frexp(np.abs(at.rows.y).max(initial=0.0))[1])
        counts = np.zeros(EXPONENTS)
        counts[int(np.clip(exponent + EXPONENTS // 2, 0, EXPONENTS - 1))] = 1.0
        return Reply({"exponents": counts})


def scale_of(answers: Answers) -> float:
    """The power of two with which labels are below 1 at every hospital that answered."""
    exponents = np.flatnonzero(answers.sums["exponents"])
    return float(2.0 ** (EXPONENTS // 2 - exponents[-1])) if len(exponents) else 1.0
