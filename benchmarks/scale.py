"""How rounds and memory grow with the number of hospitals and of actors.

``python -m benchmarks.scale`` prints two tables: federations of 1,000 to 100,000 hospitals with 1,000 of them a round
(round time should not grow, memory only by the rows), and 1 to 64 actors over the same 64 hospitals, then one actor for
each of 32 hospitals. Logistic regression, federated averaging, all hospitals evaluated after the last round alone;
memory is the proportional set size of this process and all of Ray's together. ``--hospitals 1000 1000000 --rows 20
--actors`` is the table of a million hospitals. ``--each 256`` is one line: so many hospitals with an actor each, on a
Ray that the run starts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from benchmarks.process import tree_pss
from raysim.config.sections.evaluation import EvaluationSection
from raysim.config.sections.resources import ResourcesSection
from raysim.data.federation import Federation, write
from raysim.engine.job import Job, Outcome, Round
from raysim.engine.messages.plan import ModelSpec, Work
from raysim.experiment.session import open_session
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.selections.sampling import Uniform
from raysim.training.base import Optimizer

FEATURES, COHORT, ROUNDS = 20, 1000, 21


@dataclass(frozen=True)
class Measured:
    """Seconds to bring actors up and to set a run up (first round included), of later rounds, of the end; and bytes."""

    up: float
    first: float
    rounds: np.ndarray
    last: float
    memory: int


def make(folder: Path, hospitals: int, rows: int) -> Federation:
    """``hospitals`` with ``rows`` each, four fifths for training, drawn in pieces so that memory stays small."""
    rng, n = np.random.default_rng(0), hospitals * rows
    law = rng.normal(size=FEATURES)
    X = np.lib.format.open_memmap(folder / "draw.npy", mode="w+", dtype=np.float32, shape=(n, FEATURES))
    y = np.empty(n, np.int64)
    for first in range(0, n, 500_000):
        piece = rng.standard_normal((min(500_000, n - first), FEATURES), np.float32)
        X[first : first + len(piece)] = piece
        y[first : first + len(piece)] = piece @ law + rng.logistic(size=len(piece)) > 2
    start = np.arange(hospitals) * rows
    train = start + rows * 4 // 5
    write(
        folder,
        X=X,
        y=y,
        observed=np.broadcast_to(np.True_, X.shape),
        bounds=np.stack([start, train, train, start + rows], axis=1),
        patients={},
        meta={
            "hospitals": [f"h{i}" for i in range(hospitals)],
            "features": [f"x{i}" for i in range(FEATURES)],
            "classes": ["0", "1"],
            "attributes": {},
            "notes": [],
            "fingerprint": f"{hospitals} of {rows}",
            "preprocessing_scalars": 0,
        },
    )
    (folder / "draw.npy").unlink()
    return Federation.open(folder)


def measure(federation: Federation, resources: ResourcesSection, fraction: float) -> Measured:
    """One run of ``ROUNDS`` rounds, evaluated after the last."""
    job = Job(
        work=Work(
            federation=str(federation.folder),
            model=ModelSpec("logistic_regression", None, {}, "default"),
            optimizer=Optimizer("sgd", 0.05, 32),
            epochs=1,
            seed=1,
            precision="float32",
        ),
        strategy=FedAvg(),
        selection=Uniform(fraction, 10),
        rounds=ROUNDS,
        evaluation=EvaluationSection(every=0, loss_points=0),
    )
    began = time.perf_counter()
    with open_session(federation.totals, resources, in_process=False, verbose=False) as session:
        up = time.perf_counter() - began
        began = time.perf_counter()
        for event in session.run(job):
            if isinstance(event, Round) and event.round == 1:
                first = time.perf_counter() - began
            if isinstance(event, Outcome):
                rounds = np.array([row.seconds for row in event.rounds])
                last = event.seconds - rounds.sum()
        return Measured(up, first, rounds[1:], last, tree_pss(psutil.Process()))


def show(name: str, measured: Measured) -> None:
    """A row of a table."""
    median, slow = np.quantile(measured.rounds, [0.5, 0.9]) * 1000
    print(
        f"{name:<44}{measured.up:8.1f}{measured.first:8.2f}{median:10.1f}{slow:8.1f}{measured.last:8.2f}"
        f"{measured.memory / 2**30:9.2f}",
        flush=True,
    )


def one_each(hospitals: int) -> None:
    """Print the row of so many hospitals of 300 rows with an actor each."""
    with tempfile.TemporaryDirectory() as folder:
        federation = make(Path(folder), hospitals, 300)
        measured = measure(federation, ResourcesSection(hospitals_per_actor=1), 1.0)
        show(f"{hospitals} hospitals of 300 rows, an actor each", measured)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hospitals", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--rows", type=int, default=100, help="of each of these hospitals")
    parser.add_argument("--actors", type=int, nargs="*", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--each", type=int, help="only this: so many hospitals, an actor each")
    options = parser.parse_args()
    head = f"{'actors up':>9}{'first':>8}{'round ms':>10}{'90 %':>8}{'end':>8}{'GiB':>9}"
    if options.each:
        print(f"{'all hospitals a round':<43}{head}")
        one_each(options.each)
        return
    import ray

    ray.init(address="local", include_dashboard=False, log_to_driver=False, num_cpus=2)
    print(f"{f'2 actors, {COHORT:,} hospitals a round':<43}{head}")
    for hospitals in options.hospitals:
        with tempfile.TemporaryDirectory() as folder:
            federation = make(Path(folder), hospitals, options.rows)
            fraction = min(1.0, COHORT / hospitals)
            show(f"{hospitals:,} hospitals of {options.rows} rows", measure(federation, ResourcesSection(), fraction))
    if not options.actors:
        return
    print(f"\n{'all hospitals a round':<43}{head}")
    with tempfile.TemporaryDirectory() as folder:
        federation = make(Path(folder), 64, 300)
        for actors in options.actors:
            resources = ResourcesSection(hospitals_per_actor=-(-64 // actors))
            show(f"64 hospitals of 300 rows, {actors} actors", measure(federation, resources, 1.0))
    one_each(32)


if __name__ == "__main__":
    main()
