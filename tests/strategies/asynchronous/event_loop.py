"""Asynchronous federated learning by hand: a small simulation of events in numpy, with logistic regression.

Written against the papers' pseudo-code alone. It shares with the engine the data, whole batches, and the rule that
hospitals which end at the same moment are served in the order in which they started.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from raysim.data.federation import Federation


def trained(federation: Federation, hospital: int, start: np.ndarray, rate: float, epochs: int, rho: float):
    """Full-batch gradient descent on the mean logistic loss plus ``rho/2 |theta - start|^2``."""
    rows = federation.rows(hospital, "train")
    X, y = federation.X[rows].astype(np.float64), federation.y[rows]
    theta = start.copy()
    for _ in range(epochs):
        residual = 1 / (1 + np.exp(-(X @ theta[:-1] + theta[-1]))) - y
        gradient = np.append(X.T @ residual / len(y), residual.mean())
        theta = theta - rate * (gradient + rho * (theta - start))
    return theta


def simulated(
    federation: Federation,
    seconds: np.ndarray,
    updates: int,
    buffer: int,
    step: Callable[[np.ndarray, list[tuple[np.ndarray, np.ndarray, int]]], np.ndarray],
    *,
    rate: float,
    epochs: int,
    rho: float = 0.0,
) -> tuple[np.ndarray, list[float], list[list[int]]]:
    """All hospitals train all the time: the model, when it was renewed, and the staleness of each renewal's updates.

    ``seconds [N]``: how long each takes. ``step(model, [(received, trained, staleness)])`` renews the model.
    """
    model, version, now = np.zeros(federation.X.shape[1] + 1), 0, 0.0
    running = [(float(s), h, model, 0) for h, s in enumerate(seconds)]  # in the order of their start
    waiting: list[tuple[int, np.ndarray, int]] = []
    times, ages = [], []
    while version < updates:
        first = min(range(len(running)), key=lambda i: (running[i][0], i))
        now, hospital, received, since = running.pop(first)
        waiting.append((hospital, received, since))
        if len(waiting) == buffer:
            ready = [
                (got, trained(federation, h, got, rate, epochs, rho), version - seen)
                for h, got, seen in sorted(waiting, key=lambda entry: entry[0])
            ]
            model, version = step(model, ready), version + 1
            times.append(now)
            ages.append([age for _, _, age in ready])
            # Whoever waited may go on, from the new model, smaller ids first.
            running += [(now + float(seconds[h]), h, model, version) for h, _, _ in sorted(waiting, key=lambda e: e[0])]
            waiting = []
    return model, times, ages
