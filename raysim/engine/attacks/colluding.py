"""The updates that colluding Byzantine hospitals send instead of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from raysim.adversaries import collusion
from raysim.config.sections.adversary import AdversarySection
from raysim.core.plain_checks import check_vectors, whole_number
from raysim.data.federation import Federation
from raysim.engine.attacks.own_attacks import within
from raysim.strategies.base import Floats, Ids, Mask

IPM = 0.5
"""The default factor of inner product manipulation (IPM), which sends minus this factor times the mean of known
updates."""

Server = Callable[[int, Floats], Floats]
"""The type of the server's aggregation: a function of a sum's index and its updates ``[m, P]``. It returns their
aggregate ``[P]``."""


class Colluders:
    """The attack of colluding hospitals in one job on ``federation``.

    The attack is computed separately for each weighted sum of updates that the strategy requests.
    """

    def __init__(self, section: AdversarySection, federation: Federation) -> None:
        self._section, self._federation = section, federation
        self._direction: Floats | None = None
        self._directions = 0

    def replace(self, ids: Ids, deltas: Floats, bad: Mask, groups: Sequence[Ids], limit: float, server: Server) -> None:
        """Replace the updates of Byzantine hospitals in ``deltas [m, P]``, in place. Magnitudes remain below ``limit``.

        ``ids [m]`` are the hospitals that sent the updates, and ``bad [m]`` marks the Byzantine ones. ``groups`` has
        the rows of ``deltas`` in each weighted sum. ``server(g, updates)`` returns the server's aggregate of
        ``updates`` in sum ``g``.
        """
        honest = deltas.copy()
        everybody = self._section.effective_knowledge == "all"
        for g, members in enumerate(groups):
            theirs = members[bad[members]]
            observed = members[~bad[members]] if everybody else theirs
            if len(theirs) and len(observed):
                sent = self._together(ids, honest, members, theirs, observed, partial(server, g))
                deltas[theirs] = within(sent, limit)

    def _together(
        self, ids: Ids, honest: Floats, members: Ids, theirs: Ids, observed: Ids, server: Callable[[Floats], Floats]
    ) -> Floats:
        section = self._section
        updates, m, f = honest[observed], len(members), len(theirs)
        if section.attack == "alie":
            return collusion.alie(updates, m, f, section.factor)
        if section.attack == "ipm":
            return collusion.ipm(updates, IPM if section.factor is None else section.factor)
        if section.attack == "min_max":
            return collusion.min_max(updates, section.deviation)
        if section.attack == "min_sum":
            return collusion.min_sum(updates, section.deviation)
        if section.attack == "mimic":
            return np.asarray(updates[self._mimicked(updates, ids[observed])])
        assumed = honest[members]
        liars = np.isin(members, theirs)

        return collusion.adaptive(updates, lambda sent: server(np.where(liars[:, None], sent, assumed)))

    def _mimicked(self, updates: Floats, ids: Ids) -> int:
        """Return the row of ``updates [m, P]`` that the attack ``mimic`` copies.

        It is the update of the configured hospital if the attackers know that update. Else it is the update that
        deviates most from the mean, along the principal direction of the updates of all rounds so far.
        """
        named = self._section.hospital
        if named is not None and (at := np.flatnonzero(ids == self._federation.hospitals.index(named))).size:
            return int(at[0])
        self._directions += 1
        self._direction = collusion.principal_direction(updates, self._direction, self._directions)
        return collusion.mimicked(updates, self._direction)

    @property
    def memory(self) -> dict[str, Any]:
        """The state that is stored in checkpoints."""
        return {"direction": self._direction, "directions": self._directions}

    def resume(self, memory: dict[str, Any], size: int) -> None:
        """Continue from the state in a checkpoint, with models of ``size`` parameters. Raises ``ValueError`` for
        impossible values.
        """
        self._direction = memory["direction"]
        self._directions = whole_number(memory["directions"], "number of directions", 2**53)
        check_vectors(() if self._direction is None else (self._direction,), size, "direction of updates")
