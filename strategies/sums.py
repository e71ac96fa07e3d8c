"""What the server has to learn about hospitals' updates, which decides whether a privacy guarantee fits a strategy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Needs:
    """What the server has to learn about hospitals' updates.

    - ``sums``: one sum of hospitals' updates, each of them clipped.
    - ``clusters``: a sum for each cluster of hospitals, with each hospital in one cluster.
    - ``programs``: one call of a client program per round, whose sums share one bound (:class:`Bound`).
    - ``refused``: more than sums.
    """

    kind: Literal["sums", "clusters", "programs", "refused"] = "sums"
    why: str = ""
    """Why a guarantee for patients is not possible, or any guarantee if ``refused``. It completes "the strategy
    ..."."""
    own_steps: bool = False
    """Whether noise in each hospital's own steps is sufficient although the server needs more than sums."""

    by: Literal["row", "hospital"] | None = None
    """The unit that the bound of all programs limits, if it is known before anything starts."""

    @staticmethod
    def more(why: str, *, own_steps: bool = False) -> Needs:
        """Return needs of more than sums: ``why`` completes "the strategy ..."."""
        return Needs("refused", why, own_steps)

    @staticmethod
    def of_hospitals(why: str) -> Needs:
        """Return needs of sums that hide hospitals, but not single patients: ``why`` completes "the strategy ..."."""
        return Needs("sums", why)


BOUNDED, CLUSTERS = Needs("sums"), Needs("clusters")
