"""Client updates a second on a GPU, beside a plain torch loop on the same device.

    python -m benchmarks.gpu [--device cuda] [--only mlp] [--repeats 5] [--actors 4] [--hospitals 208]

A client update is one epoch of SGD over a hospital's training rows in batches of 32. ``kernel`` trains all hospitals in
one call, as an actor does; ``run`` plays rounds of federated averaging on Ray, with ``--actors`` actors that share one
card (``gpus_per_actor`` 1 divided by their number), and counts a round whole but for the evaluation. The plain loop
keeps all rows on the device. ``pfl`` is measured too where it can be imported. Times are the least of the repeats.

``--device cpu`` tries it all where there is no card; its figures say nothing of one.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks import loops, networks
from raysim.cluster.devices import settle_device
from raysim.config.sections.evaluation import EvaluationSection
from raysim.config.sections.resources import ResourcesSection
from raysim.core.streams import stream
from raysim.data.federation import Federation
from raysim.engine.job import Job, Round
from raysim.engine.messages.plan import ModelSpec, Work
from raysim.experiment.session import open_session
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.selections.sampling import All
from raysim.training.base import Optimizer, Task
from raysim.training.models import build_model

RATE, BATCH = 0.05, 32
SGD = Optimizer("sgd", RATE, BATCH)


def plain_mlp() -> nn.Module:
    """The MLP of J3 (:mod:`benchmarks.loops`) as anyone would write it."""
    return nn.Sequential(nn.Linear(100, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 2))


@dataclass(frozen=True)
class Case:
    """A model, written plainly too, and what makes the federation that it is trained on."""

    name: str
    about: str
    model: str
    plain: Callable[[], nn.Module]
    make: Callable[[int, Path], Federation]


def _images(place: int, hospitals: int, folder: Path) -> Federation:
    return networks.make(replace(networks.CASES[place], clients=hospitals), folder)


def _table(hospitals: int, folder: Path) -> Federation:
    j3 = loops.CASES[2]
    return loops.make(replace(j3, hospitals=hospitals, rows=j3.rows * hospitals // j3.hospitals), folder)


CASES = (
    Case("mlp", "J3: MLP 256-128, all at once", "mlp", plain_mlp, _table),
    Case("fashion", "CNN 8-16-32-2048, under vmap", "fashion_cnn", networks.PlainFashion, partial(_images, 0)),
    Case("cifar", "CNN with batch norm, one by one", "cifar_cnn", networks.PlainCifar, partial(_images, 1)),
)


def kernel(case: Case, federation: Federation, device: str, repeats: int) -> float:
    """Seconds of a call that trains all hospitals."""
    model = build_model(case.model, federation.X.shape[1], len(federation.classes), options={}, device=device)
    start = model.initial(np.random.default_rng(0)).astype(np.float32)
    tasks = []
    for h in range(len(federation.hospitals)):
        rows = federation.rows(h, "train")
        given = (federation.X[rows], federation.y[rows], start, [], 1, RATE)
        tasks.append(Task(*given, lambda epoch, h=h: stream(0, "batch", 0, h, epoch)))  # type: ignore[misc]
    return _least(lambda: model.train(tasks, SGD), repeats)


def run(case: Case, federation: Federation, device: str, repeats: int, actors: int) -> float:
    """Seconds of a round on Ray."""
    work = Work(str(federation.folder), ModelSpec(case.model, None, {}, "default"), SGD, 1, 1, "float32")
    job = Job(work, FedAvg(), All(), repeats + 2, evaluation=EvaluationSection(every=0, loss_points=0))
    gpus, each = 1 / actors if device == "cuda" else 0.0, math.ceil(len(federation.hospitals) / actors)
    resources = ResourcesSection(hospitals_per_actor=each, gpus_per_actor=gpus)
    with open_session(federation.totals, resources, in_process=False, verbose=False) as session:
        seconds = [event.seconds for event in session.run(job) if isinstance(event, Round)]
    return min(seconds[1:-1])  # the first warms up, the last is evaluated


def torch_loop(case: Case, federation: Federation, device: str, repeats: int) -> float:
    """Seconds of one update of all clients, one after another."""
    net, clients, loss = case.plain().to(device), _on(device, federation), nn.CrossEntropyLoss()
    before = {name: value.detach().clone() for name, value in net.state_dict().items()}

    def once() -> None:
        for X, y in clients:
            net.load_state_dict(before)
            solver = torch.optim.SGD(net.parameters(), lr=RATE)
            for batch in torch.randperm(len(y), device=device).split(BATCH):
                solver.zero_grad()
                torch.autograd.backward(loss(net(X[batch]), y[batch]))
                solver.step()
        next(net.parameters()).sum().item()  # waits for the device

    return _least(once, repeats)


def by_pfl(case: Case, federation: Federation, device: str, repeats: int) -> float:
    """Seconds of a round of ``pfl``, which takes a GPU by itself where torch sees one."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = case.plain()

        def loss(self, X: Tensor, y: Tensor, **_: Any) -> Tensor:
            return nn.functional.cross_entropy(self.net(X), y)

        def metrics(self, X: Tensor, y: Tensor, **_: Any) -> dict[str, Any]:
            return {}

    clients, net = _on(device, federation), Net()
    sampler = get_user_sampler("minimize_reuse", list(range(len(clients))))
    made = FederatedDataset(lambda user: Dataset(raw_data=clients[user]), sampler)
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), 1.0))
    local = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH)
    rounds = NNAlgorithmParams(1, evaluation_frequency=10**9, train_cohort_size=len(clients), val_cohort_size=0)
    backend = SimulatedBackend(training_data=made, val_data=made)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints each round's metrics
        return _least(lambda: FederatedAveraging().run(rounds, backend, model, local), repeats)


def _on(device: str, federation: Federation) -> list[tuple[Tensor, ...]]:
    slices = [federation.rows(h, "train") for h in range(len(federation.hospitals))]
    return [tuple(torch.from_numpy(a[rows].copy()).to(device) for a in (federation.X, federation.y)) for rows in slices]


def _least(once: Callable[[], object], repeats: int) -> float:
    once()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        once()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    """Print a table: what was measured, updates a second, and how many times the plain loop's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--only", choices=[case.name for case in CASES])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--actors", type=int, default=0, help="play rounds on Ray with so many actors; 0: do not")
    parser.add_argument("--hospitals", type=int, default=208)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("torch sees no CUDA device; --device cpu tries the benchmark without one")
    settle_device(options.device, 1.0)
    torch.set_num_threads(1)
    print(f"{'updates a second on ' + options.device:<40}{'':<16}{'a second':>10}{'times':>8}")
    for case in (case for case in CASES if options.only in (None, case.name)):
        with tempfile.TemporaryDirectory() as folder:
            given = (case, case.make(options.hospitals, Path(folder)), options.device, options.repeats)
            seconds = {"plain loop": torch_loop(*given), "kernel": kernel(*given)}
            if options.actors:
                seconds[f"{options.actors} actors"] = run(*given, options.actors)
            if importlib.util.find_spec("pfl") is not None:
                seconds["pfl"] = by_pfl(*given)
        for name, each in seconds.items():
            times = seconds["plain loop"] / each
            print(f"{case.about:<40}{name:<16}{options.hospitals / each:10.0f}{times:8.2f}", flush=True)


if __name__ == "__main__":
    main()
