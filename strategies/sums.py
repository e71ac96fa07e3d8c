"""Whether a strategy needs only sums of hospitals' updates, or more. Some needs rule out privacy guarantees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Needs:
    """Whether a strategy needs only sums of hospitals' updates, or more.

    ``kind`` is one of:

    - ``sums``: one sum of hospitals' clipped updates.
    - ``clusters``: a sum for each cluster of hospitals, with each hospital in one cluster.
    - ``programs``: sums from one call of a client program per round. The sums share one bound (:class:`Bound`).
    - ``refused``: more than sums of updates.
    """

    kind: Literal["sums", "clusters", "programs", "refused"] = "sums"
    why: str = ""
    """Why noise on sums cannot give a privacy guarantee for patients. If ``kind`` is ``refused``: why it cannot give
    any privacy guarantee. The text completes the sentence "the strategy ...".
    """
    own_steps: bool = False
    """Whether noise in hospitals' own training steps can give a privacy guarantee although the server needs more than
    sums."""

    by: Literal["row", "hospital"] | None = None
    """The unit whose contribution is limited by the bounds of the strategy's client programs: a row or a hospital. None
    if this is not known in advance."""

    @staticmethod
    def more(why: str, *, own_steps: bool = False) -> Needs:
        """Return the needs of a strategy whose server needs more than sums of updates. For ``why`` see :attr:`why`."""
        return Needs("refused", why, own_steps)

    @staticmethod
    def of_hospitals(why: str) -> Needs:
        """Return the needs of a strategy that can have a privacy guarantee for hospitals, but not for patients."""
        return Needs("sums", why)


BOUNDED, CLUSTERS = Needs("sums"), Needs("clusters")
