"""CFL: a cluster is split in two when its hospitals' updates point in different directions.

F. Sattler, K.-R. Müller, W. Samek: *Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization
Under Privacy Constraints*, IEEE Transactions on Neural Networks and Learning Systems 32(8), 2021, Algorithms 1 to 3.

All hospitals begin as one cluster. A cluster of three or more may split if the weighted mean of its hospitals' deltas
is short, ``u = |mean| < eps1``, while one delta is long, ``g = max |delta_i| > eps2``. The cluster is divided into two
groups so that a, the largest cosine between deltas of different groups, is smallest. If ``sqrt((1 - a) / 2) > gamma``,
both groups continue from the cluster's model, each with its own average. Otherwise the cluster is not split.

Choices: deltas are averaged by rows (the authors: uniformly). Single linkage always finds the best two groups.
``complete`` linkage, which the authors' code uses, may not. With client sampling, a hospital is represented by its last
delta since the last split. A cluster is tested once all its hospitals have such a delta, and its model moves by the
deltas of the round. Hospitals without training rows join the part with more rows. A selection that uses losses receives
losses under the cluster's model. The defaults of eps1 and eps2 are Clust-PSI-PFL's. u is rarely that small: choose eps1
and eps2 from the ranges of u and g, which are under ``facts`` in a run's ``summary.json``. The state's log has u and g
of every test.

Traffic: per participant P scalars down, P + 1 up. Actors cannot add up the deltas before sending them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import (
    FederationView,
    Floats,
    Ids,
    Limit,
    LocalProblem,
    Needs,
    NonNegativeInt,
    State,
    UnitInterval,
    Update,
    Upload,
    at_least,
    own_state,
)
from raysim.strategies.shared.clustering import members
from raysim.strategies.shared.weights import Weighted

Linkage = Literal["single", "complete"]


@dataclass(frozen=True, eq=False, kw_only=True)
class CflState(State):
    """The tree of clusters. When a cluster splits, its model row does not change, and its two parts get new rows."""

    parent: Ids
    """The model row from which each row was split, ``[M]``; -1 for the root and row 0."""
    last: Floats
    """Each hospital's last delta since the last split of its cluster, ``[N, P]``; NaN without such a delta."""
    log: Floats
    """Round, model row, u and g of every test, ``[R, 4]``."""
    rounds: int = 0
    """The number of finished rounds."""


@dataclass(frozen=True)
class Cfl(Weighted):
    """Clustered federated learning (CFL); weights as in FedAvg."""

    title: ClassVar[str] = "CFL"
    needs: ClassVar[Needs] = Needs.more("compares single hospitals' updates")
    serves = ("cluster",)

    eps1: Annotated[float, Limit(at_least, 0, finite=False)] = 1e-5
    """ε1: a cluster may split only if the mean of its updates is shorter than this."""
    eps2: Annotated[float, Limit(at_least, 0, finite=False)] = 0.1
    """ε2: a cluster may split only if its longest update is longer than this."""
    gamma: UnitInterval = 0.5
    """γ: a cluster splits only if ``sqrt((1 - a) / 2)`` is larger; a is the largest cosine across the two parts."""
    warmup: NonNegativeInt = 0
    """The number of first rounds without a split."""
    linkage: Linkage = "single"
    """How the two parts are found; ``single`` finds the best two parts."""

    def setup(self, view: FederationView) -> CflState:
        hospitals = len(view.sizes)
        return CflState(
            models=np.repeat(view.initial[None, :], 2, axis=0),
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
            raise TypeError("the update is not from this strategy")
        last = state.last.copy()
        last[update.ids] = update.deltas
        models, parent, cluster, log = state.models, state.parent, members(state).copy(), [*state.log]
        for row in np.unique(cluster[update.ids]):
            hospitals = view.trainable[cluster[view.trainable] == row]
            if np.isnan(last[hospitals]).any():
                continue
            u, g = self._norms(view.sizes[hospitals], last[hospitals])
            log.append(np.array([state.rounds + 1, row, u, g]))
            parts = self._parts(last[hospitals]) if self._may_split(state, u, g, len(hospitals)) else None
            if parts is not None:
                first, second = hospitals[~parts], hospitals[parts]
                # Hospitals without training rows go to the larger part; the next line moves all others to theirs.
                larger = view.sizes[second].sum() > view.sizes[first].sum()
                cluster[cluster == row] = len(models) + larger
                cluster[first], cluster[second] = len(models), len(models) + 1
                last[hospitals] = np.nan
                models, parent = np.vstack([models, models[row], models[row]]), np.append(parent, [row, row])
        models = self._moved(view, models, cluster, update.ids, update.deltas)
        return CflState(
            models=models,
            cluster=cluster,
            parent=parent,
            last=last,
            log=np.stack(log) if log else state.log,
            rounds=state.rounds + 1,
        )

    def facts(self, view: FederationView, state: State) -> dict[str, float]:
        """Return how often clusters were tested, and the range of u and g, from which eps1 and eps2 can be chosen."""
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
        """Return ``u`` and ``g`` of a cluster's hospitals, with ``sizes [h]`` and ``deltas [h, P]``."""
        mean = self.weigh(sizes) @ deltas
        return float(np.linalg.norm(mean)), float(np.linalg.norm(deltas, axis=1).max())

    def _may_split(self, state: CflState, u: float, g: float, hospitals: int) -> bool:
        return u < self.eps1 and g > self.eps2 and hospitals >= 3 and state.rounds >= self.warmup

    def _parts(self, deltas: Floats) -> NDArray[np.bool_] | None:
        """Return a mask ``[h]`` of the hospitals outside the first hospital's part, by ``deltas [h, P]``; None for no
        split."""
        similarity = cosines(deltas)
        parts = bipartition(similarity, self.linkage)
        across = float(similarity[np.ix_(~parts, parts)].max())
        return parts if np.sqrt(max(0.0, (1.0 - across) / 2.0)) > self.gamma else None

    def _moved(self, view: FederationView, models: Floats, cluster: Ids, ids: Ids, deltas: Floats) -> Floats:
        """Return the models after a round. Each cluster's model moves by its deltas; row 0 is the mean of the clusters'
        models, weighted by rows."""
        weight = self.weigh_groups(view.sizes[ids], cluster[ids])
        moved = models.copy()
        for row in np.unique(cluster[ids]):
            inside = cluster[ids] == row
            moved[row] += weight[inside] @ deltas[inside]
        rows = np.bincount(cluster, weights=view.sizes, minlength=len(models))
        moved[0] = (rows / rows.sum()) @ moved
        return moved


def cosines(deltas: Floats) -> Floats:
    """Return ``A_ij = cos(delta_i, delta_j)``, ``[h, h]``, from ``deltas [h, P]``; 0 for a delta of zeros."""
    norms = np.linalg.norm(deltas, axis=1)
    return np.asarray((deltas @ deltas.T) / (norms[:, None] * norms + 1e-12))


def bipartition(similarity: Floats, linkage: Linkage) -> NDArray[np.bool_]:
    """Return a mask ``[h]`` of the ``h >= 2`` hospitals outside the first hospital's part, by ``similarity [h, h]``.

    The most similar groups are merged until two are left. With ``single`` linkage, the similarity of two groups is the
    largest similarity of their members. The largest similarity across the two parts is then the smallest possible.
    """
    from scipy.cluster.hierarchy import cut_tree  # a third of a second to import, and only this strategy needs it
    from scipy.cluster.hierarchy import linkage as merges

    # By rounding, the cosine of parallel updates may be above 1, which would be a negative distance.
    apart = np.maximum(1.0 - similarity[np.triu_indices(len(similarity), k=1)], 0.0)
    parts = cut_tree(merges(apart, linkage), n_clusters=2)[:, 0]
    return np.asarray(parts != parts[0])
