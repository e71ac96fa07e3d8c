"""What secure sums cost: seconds of one core for a round of 208 hospitals, and ``model`` mode beside plain rounds.

``python -m benchmarks.secure`` measures CPU time of this process, so that other work on the machine does not count. The
protocol is the whole of it in one process: keys, agreements, shares in envelopes, masks, and the opening.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.sections.evaluation import EvaluationSection
from raysim.config.sections.secure import SecureSection
from raysim.data.federation import Federation, write
from raysim.engine.job import Job
from raysim.engine.messages.plan import ModelSpec, Work
from raysim.engine.server.coordinator import JobRun
from raysim.secure.graph import default_neighbours, default_threshold
from raysim.secure.protocol import Lost, SecureSum
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.selections.sampling import All
from raysim.training.base import Optimizer

HOSPITALS = 208


def protocol_seconds(size: int, lost: int = 0) -> float:
    """CPU seconds of one secure sum of vectors ``[size]`` of all hospitals, ``lost`` of them before their masks."""
    ids = np.arange(HOSPITALS)
    count = default_neighbours(HOSPITALS)
    vectors = np.random.default_rng(0).integers(-(2**50), 2**50, (HOSPITALS, size))
    # The process's first keys load the library.
    _round(ids[:5], 4, np.ones((5, 3), dtype=np.int64), 0)
    began = time.process_time()
    _round(ids, count, vectors, lost)
    return time.process_time() - began


def _round(ids: np.ndarray, count: int, vectors: np.ndarray, lost: int) -> None:
    secure = SecureSum(ids, count, default_threshold(count + 1), 3, Lost(before_mask=frozenset(range(lost))), 1, 1, 0)
    total = np.zeros(vectors.shape[1], dtype=np.uint64)
    for i in secure.masking:
        total += secure.masked(i, vectors[i])
    if not np.array_equal(secure.unmasked(total), vectors[secure.masking].sum(axis=0)):
        raise RuntimeError("the sum is not the plain one")


def round_seconds(folder: Path, secure: SecureSection | None, rounds: int) -> float:
    """CPU seconds of a round of the main job's kind, in this process."""
    federation = Federation.open(folder)
    job = Job(
        work=Work(
            federation=str(folder),
            model=ModelSpec("logistic_regression", None, {}, "zeros"),
            optimizer=Optimizer("sgd", 0.1, 32),
            epochs=1,
            seed=1,
            precision="float32",
        ),
        strategy=FedAvg(),
        selection=All(),
        rounds=rounds,
        evaluation=EvaluationSection(every=0),
    )
    pool = LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu")
    began = time.process_time()
    list(JobRun(pool, replace(job, secure=secure)).events())
    return (time.process_time() - began) / rounds


def store(folder: Path, features: int = 101, rows: int = 150) -> None:
    """A federation of 208 hospitals with so many rows each."""
    rng = np.random.default_rng(0)
    n = HOSPITALS * rows
    X = rng.normal(size=(n, features)).astype(np.float32)
    y = (X[:, 0] + rng.normal(size=n) > 0).astype(np.int64)
    first = np.arange(HOSPITALS) * rows
    bounds = np.stack([first, first + rows - 20, first + rows - 20, first + rows], axis=1)
    meta = {
        "hospitals": [f"h{i}" for i in range(HOSPITALS)],
        "features": [f"x{j}" for j in range(features)],
        "classes": ["0", "1"],
        "attributes": {},
        "notes": [],
        "fingerprint": "benchmark",
        "preprocessing_scalars": 0,
    }
    write(folder, X=X, y=y, observed=np.ones(X.shape, dtype=np.bool_), bounds=bounds, patients={}, meta=meta)


if __name__ == "__main__":
    for size in (102, 60_000):
        for lost in (0, 10):
            seconds = min(protocol_seconds(size, lost) for _ in range(3))
            print(f"execute, {size:,} parameters, {lost} lost: {seconds:.2f} s a round", flush=True)
    with TemporaryDirectory() as place:
        made = Path(place) / "federation"
        made.mkdir()
        store(made)
        round_seconds(made, None, 2)
        times: dict[str, list[float]] = {"plain": [], "model": []}
        for _ in range(9):
            times["plain"].append(round_seconds(made, None, 20))
            times["model"].append(round_seconds(made, SecureSection(), 20))
        # Other work on the machine only adds: the least of several is the round itself.
        plain, model = (min(values) for values in times.values())
        print(f"plain {plain * 1e3:.2f} ms, model {model * 1e3:.2f} ms a round: {100 * (model / plain - 1):+.1f} %")
