"""Four jobs of federated averaging, and the plain loops that anybody would write for them.

:mod:`benchmarks.jobs` runs the same jobs through the command line and sets them beside these loops.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from raysim.core.streams import stream
from raysim.data.federation import Federation, write
from raysim.metrics.measures import figures
from raysim.strategies.base import Draw
from raysim.strategies.selections.sampling import All, Uniform


@dataclass(frozen=True)
class Case:
    """A job: the federation's sizes, the model and the schedule."""

    name: str
    """Its short name."""
    about: str
    """What is trained, and when it is evaluated."""
    hospitals: int
    """How many hospitals."""
    rows: int
    """Their rows together, about; four fifths of each are for training."""
    model: str
    """``logistic_regression``, or ``mlp`` with layers of 256 and 128."""
    fraction: float
    """The share of hospitals in a round."""
    batch: int
    """Rows in a mini-batch."""
    rounds: int
    """How many rounds, of one epoch each."""
    every: int
    """After every how many rounds all hospitals are evaluated; 0: at the end."""
    equal: bool = False
    """Whether hospitals have the same number of rows, or sizes of a log-normal distribution."""
    features: int = 100
    """Columns of numbers."""
    rate: float = 0.05
    """The learning rate."""


CASES = (
    Case("J1", "logistic, 10 %, batch 512, evaluated every round", 208, 67_313, "logistic_regression", 0.1, 512, 20, 1),
    Case("J2", "logistic, all, batch 32", 208, 67_313, "logistic_regression", 1.0, 32, 20, 0),
    Case("J3", "MLP 256-128, all, batch 32", 208, 67_313, "mlp", 1.0, 32, 10, 0),
    Case("J4", "2,000 of 33 rows, 10 %, batch 16", 2000, 66_000, "logistic_regression", 0.1, 16, 20, 0, True),
)


def make(case: Case, folder: Path) -> Federation:
    """Rows with a linear signal; sizes heavy-tailed or equal, four fifths of each hospital for training."""
    rng = np.random.default_rng(0)
    if case.equal:
        sizes = np.full(case.hospitals, case.rows // case.hospitals)
    else:
        weights = rng.lognormal(0, 1, case.hospitals)
        sizes = np.maximum(20, (weights / weights.sum() * case.rows)).astype(int)
    X = rng.normal(size=(sizes.sum(), case.features)).astype(np.float32)
    y = (X @ rng.normal(size=case.features) * 0.3 + rng.logistic(size=len(X)) > 2.0).astype(np.int64)
    stop = np.cumsum(sizes)
    start = stop - sizes
    train = start + np.floor(0.8 * sizes).astype(int)
    meta = {
        "hospitals": [f"h{i}" for i in range(case.hospitals)],
        "features": [f"x{i}" for i in range(case.features)],
        "classes": ["0", "1"],
        "attributes": {},
        "notes": [],
        "fingerprint": case.name,
        "preprocessing_scalars": 0,
    }
    bounds = np.stack([start, train, train, stop], axis=1)
    write(folder, X=X, y=y, observed=np.ones(X.shape, dtype=bool), bounds=bounds, patients={}, meta=meta)
    return Federation.open(folder)


def cohorts(case: Case, federation: Federation, seed: int) -> list[np.ndarray]:
    """The cohort of each round, as the engine draws them."""
    selection = Uniform(case.fraction, 10) if case.fraction < 1 else All()
    ids, sizes = np.arange(case.hospitals), federation.sizes("train")
    return [
        selection.pick(Draw(ids, sizes, stream(seed, "sample", t), None, lambda ids: np.zeros(len(ids))))
        for t in range(1, case.rounds + 1)
    ]


def evaluate(federation: Federation, score: Callable[[np.ndarray], np.ndarray]) -> float:
    """Mean AUROC over hospitals with the engine's own vectorised figures, which flatters the loops."""
    slices = [federation.rows(h, "test") for h in range(len(federation.hospitals))]
    offsets = np.concatenate([[0], np.cumsum([s.stop - s.start for s in slices])])
    margins = np.concatenate([score(federation.X[s]) for s in slices])
    return float(np.nanmean(figures(margins, np.concatenate([federation.y[s] for s in slices]), offsets)[:, 2]))


def torch_loop(case: Case, federation: Federation) -> tuple[float, float]:
    """Seconds and final AUROC of the loop that anybody would write."""
    torch.set_num_threads(1)
    F = case.features
    if case.model == "mlp":
        layers = [torch.nn.Linear(F, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128), torch.nn.ReLU()]
        model: torch.nn.Module = torch.nn.Sequential(*layers, torch.nn.Linear(128, 2))
        loss: torch.nn.Module = torch.nn.CrossEntropyLoss()
        target = torch.int64
    else:
        model = torch.nn.Linear(F, 1)
        torch.nn.init.zeros_(model.weight)
        torch.nn.init.zeros_(model.bias)
        loss = torch.nn.BCEWithLogitsLoss()
        target = torch.float32
    hospitals = [
        (torch.from_numpy(federation.X[rows].copy()), torch.from_numpy(federation.y[rows].copy()).to(target))
        for rows in (federation.rows(h, "train") for h in range(case.hospitals))
    ]
    torch.optim.SGD(model.parameters(), lr=0.1).zero_grad()  # its first use imports for a second

    @torch.no_grad()
    def score(X: np.ndarray) -> np.ndarray:
        out = model(torch.from_numpy(X.copy()))
        return (out[:, 1] - out[:, 0] if case.model == "mlp" else out[:, 0]).numpy()

    auroc = float("nan")
    began = time.perf_counter()
    for t, ids in enumerate(cohorts(case, federation, 1), start=1):
        before = {name: value.detach().clone() for name, value in model.state_dict().items()}
        total = {name: torch.zeros_like(value) for name, value in before.items()}
        weight = sum(len(hospitals[i][1]) for i in ids)
        for i in ids:
            X, y = hospitals[i]
            model.load_state_dict(before)
            optimizer = torch.optim.SGD(model.parameters(), lr=case.rate)
            for batch in torch.randperm(len(y)).split(case.batch):
                out = model(X[batch])
                optimizer.zero_grad()
                loss(out if case.model == "mlp" else out[:, 0], y[batch]).backward()
                optimizer.step()
            for name, value in model.state_dict().items():
                total[name] += (value - before[name]) * (len(y) / weight)
        model.load_state_dict({name: before[name] + total[name] for name in before})
        if (case.every and t % case.every == 0) or t == case.rounds:
            auroc = evaluate(federation, score)
    return time.perf_counter() - began, auroc


def numpy_loop(case: Case, federation: Federation) -> tuple[float, float]:
    """The same by hand in numpy, logistic regression only."""
    if case.model == "mlp":
        return float("nan"), float("nan")
    w, auroc = np.zeros(case.features + 1, dtype=np.float32), float("nan")
    rng = np.random.default_rng(0)
    began = time.perf_counter()
    for t, ids in enumerate(cohorts(case, federation, 1), start=1):
        total = np.zeros_like(w)
        weight = sum(federation.sizes("train")[ids])
        for i in ids:
            rows = federation.rows(i, "train")
            X, y = federation.X[rows], federation.y[rows]
            order, v = rng.permutation(len(y)), w.copy()
            X, y = X[order], y[order]
            for first in range(0, len(y), case.batch):
                batch = X[first : first + case.batch]
                z = batch @ v[:-1] + v[-1]
                r = 1 / (1 + np.exp(-z)) - y[first : first + case.batch]
                step = np.float32(case.rate / len(r))
                v[:-1] -= step * (r.astype(np.float32) @ batch)
                v[-1] -= step * r.sum()
            total += (v - w) * np.float32(len(y) / weight)
        w = w + total
        if (case.every and t % case.every == 0) or t == case.rounds:
            auroc = evaluate(federation, partial(_linear, w))
    return time.perf_counter() - began, auroc


def _linear(w: np.ndarray, X: np.ndarray) -> np.ndarray:
    return X @ w[:-1] + w[-1]
