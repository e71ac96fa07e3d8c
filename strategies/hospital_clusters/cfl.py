"""CFL: clusters are split in two when their hospitals pull apart.

F. Sattler, K.-R. Müller, W. Samek: *Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization
Under Privacy Constraints*, IEEE Transactions on Neural Networks and Learning Systems 32(8), 2021, Algorithms 1 to 3.

All hospitals begin as one cluster. With the weighted mean of its hospitals' deltas short, ``u = |mean| < eps1``, and
one of them long, ``g = max |delta_i| > eps2``, a cluster of three or more is parted in the two groups whose largest
cosine across, a, is smallest; if ``sqrt((1 - a) / 2) > gamma``, both go on from its model, each with its own average.

Choices: deltas are averaged by rows (the authors: uniformly). Single linkage finds the best parting; the authors' code
uses ``complete`` linkage, which does not always. Where not all take part, a hospital's last delta since the last split
stands for it, a cluster is tested once all have one, and it moves by the deltas of the round. Hospitals without
training rows follow the larger part, by rows. A selection that asks for losses hears those under the cluster's model.
The defaults of eps1 and eps2 are Clust-PSI-PFL's; u is rarely that small: set them by the u and g that
``facts`` in a run's ``summary.json`` has, and the state's log test by test.

Traffic: per participant P scalars down, P + 1 up. Actors cannot add up the deltas before they travel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import (
    FederationView,
    Floats,
    Ids,
    LocalProblem,
    Needs,
    State,
    Update,
    Upload,
    at_least,
    one_of,
    own_state,
    within,
)
from raysim.strategies.shared.clustering import members
from raysim.strategies.shared.weights import Weighted

Linkage = Literal["single", "complete"]


@dataclass(frozen=True, eq=False, kw_only=True)
class CflState(State):
    """The tree of clusters. A split one's row of the bank stays as it was, and its two parts get new rows.

    ``parent [M]``: the bank row that each was split off, -1 for the root and row 0. ``last [N, P]``: last deltas since
    the last split, NaN where there is none. ``rounds``: how many there have been. ``log [R, 4]``: round, bank row, u
    and g of every test.
    """

    parent: Ids
    last: Floats
    log: Floats
    rounds: int = 0


@dataclass(frozen=True)
class Cfl(Weighted):
    """``eps1``, ``eps2``, ``gamma``: ε1, ε2, γ; no split in the first ``warmup`` rounds; weights as FedAvg."""

    title: ClassVar[str] = "CFL"
    needs: ClassVar[Needs] = Needs.more("compares single hospitals' updates")

    eps1: float = 1e-5
    """ε1: a cluster may split once the mean of its updates is shorter than this."""
    eps2: float = 0.1
    """ε2: and while the longest of its updates is longer than this."""
    gamma: float = 0.5
    """γ: how far apart the directions of the two parts must be for a split."""
    warmup: int = 0
    """Rounds at the start without a split."""
    linkage: Linkage = "single"
    """How the two parts are sought; ``single`` finds the best ones."""

    def __post_init__(self) -> None:
        at_least("eps1", self.eps1, 0, finite=False)
        at_least("eps2", self.eps2, 0, finite=False)
        within("gamma", self.gamma, 0, 1)
        at_least("warmup", self.warmup, 0)
        one_of("linkage", self.linkage, ("single", "complete"))
        super().__post_init__()

    def setup(self, view: FederationView) -> CflState:
        hospitals = len(view.sizes)
        return CflState(
            bank=np.repeat(view.initial[None, :], 2, axis=0),
            cluster=np.ones(hospitals, dtype=np.int64),
            parent=np.array([-1, -1]),
            last=np.full((hospitals, len(view.initial)), np.nan),
            log=np.empty((0, 4)),
        )

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return LocalProblem(start=members(state)[ids], upload=Upload(single=True))

    def aggregate(self, view: FederationView, state: State, update: Update) -> CflState:
        state = own_state(state, CflState)
        if update.deltas is None:
            raise TypeError("the update is not one of this strategy's")
        last = state.last.copy()
        last[update.ids] = update.deltas
        bank, parent, cluster, log = state.bank, state.parent, members(state).copy(), [*state.log]
        for row in np.unique(cluster[update.ids]):
            hospitals = view.trainable[cluster[view.trainable] == row]
            if np.isnan(last[hospitals]).any():
                continue
            u, g = self._norms(view.sizes[hospitals], last[hospitals])
            log.append(np.array([state.rounds + 1, row, u, g]))
            parts = self._parts(last[hospitals]) if self._may_split(state, u, g, len(hospitals)) else None
            if parts is not None:
                first, second = hospitals[~parts], hospitals[parts]
                # The hospitals without training rows; the others are moved right after.
                larger = view.sizes[second].sum() > view.sizes[first].sum()
                cluster[cluster == row] = len(bank) + larger
                cluster[first], cluster[second] = len(bank), len(bank) + 1
                last[hospitals] = np.nan
                bank, parent = np.vstack([bank, bank[row], bank[row]]), np.append(parent, [row, row])
        bank = self._moved(view, bank, cluster, update.ids, update.deltas)
        return CflState(
            bank=bank,
            cluster=cluster,
            parent=parent,
            last=last,
            log=np.stack(log) if log else state.log,
            rounds=state.rounds + 1,
        )

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        return {"cluster": members(state)}

    def facts(self, view: FederationView, state: State) -> dict[str, float]:
        """How often clusters were tested, and between which bounds u and g lay: what eps1 and eps2 are set by."""
        log = own_state(state, CflState).log
        if not len(log):
            return {"tests": 0}
        (u_least, g_least), (u_largest, g_largest) = log[:, 2:].min(axis=0), log[:, 2:].max(axis=0)
        return {
            "tests": len(log),
            "u_least": float(u_least),
            "u_largest": float(u_largest),
            "g_least": float(g_least),
            "g_largest": float(g_largest),
        }

    def _norms(self, sizes: Ids, deltas: Floats) -> tuple[float, float]:
        """``u`` and ``g`` of a cluster's hospitals, with ``sizes [h]`` and ``deltas [h, P]``."""
        mean = self.weigh(sizes) @ deltas
        return float(np.linalg.norm(mean)), float(np.linalg.norm(deltas, axis=1).max())

    def _may_split(self, state: CflState, u: float, g: float, hospitals: int) -> bool:
        return u < self.eps1 and g > self.eps2 and hospitals >= 3 and state.rounds >= self.warmup

    def _parts(self, deltas: Floats) -> NDArray[np.bool_] | None:
        """Which hospitals with ``deltas [h, P]`` leave the first, ``[h]``; None where they are not far enough apart."""
        similarity = cosines(deltas)
        parts = bipartition(similarity, self.linkage)
        across = float(similarity[np.ix_(~parts, parts)].max())
        return parts if np.sqrt(max(0.0, (1.0 - across) / 2.0)) > self.gamma else None

    def _moved(self, view: FederationView, bank: Floats, cluster: Ids, ids: Ids, deltas: Floats) -> Floats:
        """Every cluster's model moved by its participants' deltas, under the mean of all by rows."""
        weight = self.weigh_groups(view.sizes[ids], cluster[ids])
        moved = bank.copy()
        for row in np.unique(cluster[ids]):
            inside = cluster[ids] == row
            moved[row] += weight[inside] @ deltas[inside]
        rows = np.bincount(cluster, weights=view.sizes, minlength=len(bank))
        moved[0] = (rows / rows.sum()) @ moved
        return moved


def cosines(deltas: Floats) -> Floats:
    """``A_ij = cos(delta_i, delta_j)`` of ``deltas [h, P]``, ``[h, h]``; 0 for a delta of zeros."""
    norms = np.linalg.norm(deltas, axis=1)
    similarity: Floats = (deltas @ deltas.T) / (norms[:, None] * norms + 1e-12)
    return similarity


def bipartition(similarity: Floats, linkage: Linkage) -> NDArray[np.bool_]:
    """Which of ``h >= 2`` hospitals with ``similarity [h, h]`` are not in the first one's part, ``[h]``.

    The most similar groups are merged until two are left. With ``single`` linkage, groups are as similar as their most
    similar members, and the largest similarity across the parts is the least that any two parts have.
    """
    from scipy.cluster.hierarchy import cut_tree  # a third of a second to import, and only this strategy needs it
    from scipy.cluster.hierarchy import linkage as merges

    # Rounding may put the cosine of parallel updates above 1, and a negative distance is none.
    apart = np.maximum(1.0 - similarity[np.triu_indices(len(similarity), k=1)], 0.0)
    parts = cut_tree(merges(apart, linkage), n_clusters=2)[:, 0]
    away: NDArray[np.bool_] = parts != parts[0]
    return away
