"""The information about hospitals' updates that the server needs. It decides whether a strategy can have a privacy
guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Needs:
    """The information about hospitals' updates that the server needs.

    ``kind`` is one of:

    - ``sums``: one sum of hospitals' clipped updates.
    - ``clusters``: a sum for each cluster of hospitals, with each hospital in one cluster.
    - ``programs``: sums from one call of a client program per round. They share one bound (:class:`Bound`).
    - ``refused``: more than sums of updates.
    """

    kind: Literal["sums", "clusters", "programs", "refused"] = "sums"
    why: str = ""
    """The reason why the strategy cannot have a privacy guarantee for patients, or, if ``kind`` is ``refused``, why it
    can have none at all.

    It completes the sentence "the strategy ...".
    """
    own_steps: bool = False
    """Whether noise in each hospital's own training steps can give a privacy guarantee although the server needs more
    than sums."""

    by: Literal["row", "hospital"] | None = None
    """Whose contributions the bounds of all client programs limit: each row's or each hospital's. None: this is not
    known in advance."""

    @staticmethod
    def more(why: str, *, own_steps: bool = False) -> Needs:
        """Return the :class:`Needs` of a strategy whose server needs more than sums of updates. ``why`` says why
        sums cannot give it a privacy guarantee; it completes the sentence "the strategy ..."."""
        return Needs("refused", why, own_steps)

    @staticmethod
    def of_hospitals(why: str) -> Needs:
        """Return the :class:`Needs` of a strategy whose sums can have a privacy guarantee for hospitals, but not for
        patients. ``why`` says why patients can have none; it completes the sentence "the strategy ..."."""
        return Needs("sums", why)


BOUNDED, CLUSTERS = Needs("sums"), Needs("clusters")
