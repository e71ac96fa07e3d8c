"""What the server has to learn of hospitals' updates, which decides whether a privacy guarantee fits a strategy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Needs:
    """``bounded``: one sum of all deltas, each of them clipped. ``joint``: that and the sum of what control variates
    change by, clipped together. ``clusters``: a sum for each cluster of hospitals, each hospital in one.
    ``choices``: the same, with clusters that hospitals choose themselves in each round; they can hide it.
    ``weighed``: one sum of deltas that hospitals weigh by their losses, and one of numbers beside, clipped together.
    ``programs``: one call of a client program a round, all of whose sums have one bound (:class:`Bound`) together.
    ``refused``: more than sums, and ``why``.
    """

    kind: Literal["bounded", "joint", "clusters", "choices", "weighed", "programs", "refused"] = "bounded"
    why: str = ""
    """Why one bounded sum is not enough, in words that complete "the strategy ..."."""
    own_steps: bool = False
    """Whether it is enough that each hospital's steps are noisy, although it needs more than sums."""

    by: Literal["row", "hospital"] | None = None
    """What the bound of all programs is of, where that is known before anything starts."""

    @staticmethod
    def more(why: str, *, own_steps: bool = False) -> Needs:
        """More than sums: ``why`` completes "the strategy ..."."""
        return Needs("refused", why, own_steps)


BOUNDED, JOINT, CLUSTERS = Needs("bounded"), Needs("joint"), Needs("clusters")
