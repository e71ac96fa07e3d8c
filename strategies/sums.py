"""What the server has to learn of hospitals' updates, which decides whether a privacy guarantee fits a strategy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Needs:
    """``sums``: one sum of what hospitals send, each part of it clipped. ``clusters``: a sum for each cluster of
    hospitals, each hospital in one. ``programs``: one call of a client program a round, all of whose sums have one
    bound (:class:`Bound`) together. ``refused``: more than sums.
    """

    kind: Literal["sums", "clusters", "programs", "refused"] = "sums"
    why: str = ""
    """Why a guarantee for patients, or any where ``refused``, is not possible: it completes "the strategy ..."."""
    own_steps: bool = False
    """Whether it is enough that each hospital's steps are noisy, although it needs more than sums."""

    by: Literal["row", "hospital"] | None = None
    """What the bound of all programs is of, where that is known before anything starts."""

    @staticmethod
    def more(why: str, *, own_steps: bool = False) -> Needs:
        """More than sums: ``why`` completes "the strategy ..."."""
        return Needs("refused", why, own_steps)

    @staticmethod
    def of_hospitals(why: str) -> Needs:
        """Sums that hide hospitals, and not single patients: ``why`` completes "the strategy ..."."""
        return Needs("sums", why)


BOUNDED, CLUSTERS = Needs("sums"), Needs("clusters")
