"""CFL: a cluster is split in two when its hospitals' updates point in different directions.

F. Sattler, K.-R. Müller, W. Samek: *Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization
Under Privacy Constraints*, IEEE Transactions on Neural Networks and Learning Systems 32(8), 2021, Algorithms 1 to 3.

All hospitals begin as one cluster. A delta is the change of a hospital's parameters in local training. A cluster of
three or more hospitals may split if the weighted mean of its hospitals' deltas is short, ``u = |mean| < eps1``, while
one delta is long, ``g = max |delta_i| > eps2``. The cluster is divided into the two groups for which a, the largest
cosine between deltas of different groups, is smallest. If ``sqrt((1 - a) / 2) > gamma``, the cluster is split, and both
groups continue from its model.

Choices: deltas are averaged by rows (the authors: uniformly). Single linkage always finds the best two groups;
``complete`` linkage, which the authors' code uses, may not. With client sampling, a cluster is tested for a split once
each of its hospitals has sent a delta since the cluster was formed; the last deltas count. Hospitals without
training rows join the group with more rows. The defaults of eps1 and eps2 are those of the paper on Clust-PSI-PFL. In
practice u is rarely below the default: choose eps1 and eps2 from the ranges of u and g, which are under ``facts`` in a
run's ``summary.json``.

Traffic in a round: the server sends the cluster model's P scalars to each participant, which sends back its delta of P
scalars and the number of its training rows.
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
    """The state of CFL.

    When a cluster splits, its row of ``models`` stays, and each of the two groups gets a new row.
    """

    parent: Ids
    """The row of ``models`` from which each row's cluster was split off, ``[M]``; -1 for row 0 (the mean) and
    row 1 (the first cluster)."""
    last: Floats
    """Each hospital's last delta since its cluster was formed, ``[N, P]``; NaN if there is none."""
    log: Floats
    """One row for each of R tests for a split, ``[R, 4]``: the round, the cluster's row of ``models``, and u and g (see
    the module)."""
    rounds: int = 0
    """The number of finished rounds."""


@dataclass(frozen=True)
class Cfl(Weighted):
    """Clustered federated learning (CFL); hospitals are weighted as in FedAvg."""

    title: ClassVar[str] = "CFL"
    needs: ClassVar[Needs] = Needs.more("compares single hospitals' updates")
    serves = ("cluster",)

    eps1: Annotated[float, Limit(at_least, 0, finite=False)] = 1e-5
    """ε1: a cluster may split only if the mean of its updates is shorter than this."""
    eps2: Annotated[float, Limit(at_least, 0, finite=False)] = 0.1
    """ε2: a cluster may split only if its longest update is longer than this."""
    gamma: UnitInterval = 0.5
    """γ: a cluster splits only if ``sqrt((1 - a) / 2)`` is larger; a is the largest cosine between updates of
    different parts."""
    warmup: NonNegativeInt = 0
    """The number of rounds at the beginning in which no cluster splits."""
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
            raise TypeError(
                "update: has no deltas of single hospitals; pass an update that answers this strategy's problem"
            )
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
        """Return the number of tests for a split, and the ranges of u and g (see the module), from which to choose
        ``eps1`` and ``eps2``.
        """
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
        """Return the norm of the weighted mean of the updates ``deltas [h, P]``, and the largest norm of an update.

        The hospitals have ``sizes [h]`` training rows.
        """
        mean = self.weigh(sizes) @ deltas
        return float(np.linalg.norm(mean)), float(np.linalg.norm(deltas, axis=1).max())

    def _may_split(self, state: CflState, u: float, g: float, hospitals: int) -> bool:
        return u < self.eps1 and g > self.eps2 and hospitals >= 3 and state.rounds >= self.warmup

    def _parts(self, deltas: Floats) -> NDArray[np.bool_] | None:
        """Return a mask ``[h]`` of the hospitals that the split separates from the first hospital; None: the cluster
        does not split."""
        similarity = cosines(deltas)
        parts = bipartition(similarity, self.linkage)
        across = float(similarity[np.ix_(~parts, parts)].max())
        return parts if np.sqrt(max(0.0, (1.0 - across) / 2.0)) > self.gamma else None

    def _moved(self, view: FederationView, models: Floats, cluster: Ids, ids: Ids, deltas: Floats) -> Floats:
        """Return the models after a round; row 0 is the mean of clusters' models, weighted by training rows."""
        weight = self.weigh_groups(view.sizes[ids], cluster[ids])
        moved = models.copy()
        for row in np.unique(cluster[ids]):
            inside = cluster[ids] == row
            moved[row] += weight[inside] @ deltas[inside]
        rows = np.bincount(cluster, weights=view.sizes, minlength=len(models))
        moved[0] = (rows / rows.sum()) @ moved
        return moved


def cosines(deltas: Floats) -> Floats:
    """Return the cosine between each pair of updates ``deltas [h, P]``, ``[h, h]``; 0 for an update of zeros."""
    norms = np.linalg.norm(deltas, axis=1)
    return np.asarray((deltas @ deltas.T) / (norms[:, None] * norms + 1e-12))


def bipartition(similarity: Floats, linkage: Linkage) -> NDArray[np.bool_]:
    """Divide h >= 2 hospitals into two groups by their ``similarity [h, h]``.

    Return a mask ``[h]`` of the hospitals that are not in the first hospital's group.

    With ``single`` linkage, the largest similarity across the two groups is the smallest possible.
    """
    from scipy.cluster.hierarchy import cut_tree  # a third of a second to import, and only this strategy needs it
    from scipy.cluster.hierarchy import linkage as merges

    # By rounding, the cosine of parallel updates may be above 1, which would be a negative distance.
    apart = np.maximum(1.0 - similarity[np.triu_indices(len(similarity), k=1)], 0.0)
    parts = cut_tree(merges(apart, linkage), n_clusters=2)[:, 0]
    return np.asarray(parts != parts[0])
