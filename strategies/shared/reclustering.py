"""Clusters that change during training: every few rounds hospitals are clustered again, with their losses.

This goes beyond CHiP-FL (Zhou), whose clusters are formed once, before the first round. Each hospital receives each
cluster's model and sends its mean training loss under it. K-means then runs on the hospital's stored signature with
these losses as a further block, standardised like the other blocks. A new cluster's model is the mean of its members'
previous cluster models by training rows, so that ``sum_k N_k/N theta_k`` does not change.

Traffic, every r rounds: K P scalars down and K up for every hospital that has training rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from raysim.strategies.base import FederationView, State, mean_losses, own_state
from raysim.strategies.shared.clustering import ReclusteringState, cluster_rows, kmeans, members, with_enough
from raysim.strategies.shared.signatures import standardise


def reclustered(view: FederationView, state: State, clusters: int, block_scale: bool, every: int) -> State:
    """Return the state for the next round; hospitals are clustered again after every ``every`` rounds (0: never)."""
    if not every:
        return state
    state = own_state(state, ReclusteringState)
    state = replace(state, rounds=state.rounds + 1)
    if state.rounds % every:
        return state
    ids, previous = view.trainable, members(state) - 1
    losses = standardise(mean_losses(view, state.models[1:], ids))
    if block_scale:
        losses = losses / np.sqrt(losses.shape[1])
    columns = np.hstack([state.columns, losses])
    labels = kmeans(columns, clusters, view.rng("clusters", state.rounds))
    labels = with_enough(labels, columns, view.least_members)
    rows = np.zeros((labels.max() + 1, len(state.models) - 1))
    np.add.at(rows, (labels, previous[ids]), view.sizes[ids])
    models = rows / rows.sum(axis=1, keepdims=True) @ state.models[1:]
    return replace(state, models=np.vstack([state.models[:1], models]), cluster=cluster_rows(view, labels))
