"""Speed of torch networks on many clients, as ratios to a plain torch loop on one core, measured in the same run.

    python -m benchmarks.networks [--repeats 3] [--only lstm] [--kernels]

A job is one round of federated averaging over all clients. The plain loop is what a user would write: the network of
``nn`` layers as they come (``nn.LSTM``, ``nn.Dropout``, channels first), autograd, ``torch.optim.Adam``, one thread,
and the mean of the models. raysim runs the same round on Ray with two actors; left out is what the loop does not do,
the evaluation and the training losses before the round. Times are the least of the repeats.

``--kernels`` compares processor time on one core and without Ray, for 8 clients, with the plain loop and, where a GPU
would do so, with training all clients at once under ``vmap``. It means something on a busy machine too.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from raysim.config.sections.evaluation import EvaluationSection
from raysim.config.sections.resources import ResourcesSection
from raysim.core.streams import stream
from raysim.data.federation import Federation, write
from raysim.engine.job import Job, Round
from raysim.engine.messages.plan import ModelSpec, Work
from raysim.experiment.session import open_session
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.selections.sampling import All
from raysim.training.base import Optimizer, Task
from raysim.training.kernels.batched import Cohort
from raysim.training.kernels.modules.generic import ModuleModel, Vmapped
from raysim.training.models import build_model

RATE, BATCH = 1e-3, 32
VOCABULARY, DIMENSION = 10_000, 32


class PlainFashion(nn.Sequential):
    """The network as the paper's reader would write it."""

    def __init__(self) -> None:
        stages = [
            layer
            for a, b in ((1, 8), (8, 16), (16, 32))
            for layer in (nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        ]
        super().__init__(
            nn.Unflatten(1, (1, 28, 28)), *stages, nn.Flatten(), nn.Linear(288, 2048), nn.ReLU(), nn.Linear(2048, 10)
        )


class PlainCifar(nn.Sequential):
    """Likewise."""

    def __init__(self) -> None:
        layers: list[nn.Module] = [nn.Unflatten(1, (3, 32, 32))]
        for a, b, drop in ((3, 32, 0.2), (32, 64, 0.3), (64, 128, 0.4)):
            for channels in (a, b):
                layers += [nn.Conv2d(channels, b, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(b)]
            layers += [nn.MaxPool2d(2), nn.Dropout(drop)]
        layers += [
            nn.Flatten(),
            nn.Linear(2048, 128),
            nn.ReLU(),
            nn.BatchNorm1d(128),
            nn.Dropout(0.5),
            nn.Linear(128, 10),
        ]
        super().__init__(*layers)


class PlainLstm(nn.Module):
    """Likewise, without recurrent dropout, which ``nn.LSTM`` has not."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm = (
            nn.Embedding(VOCABULARY, DIMENSION, padding_idx=0),
            nn.LSTM(DIMENSION, 10, batch_first=True),
        )
        self.drop, self.input_drop, self.head = nn.Dropout(0.5), nn.Dropout(0.2), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(self.input_drop(self.drop(self.embedding(x.long()))))
        logits: Tensor = self.head(states[:, -1])
        return logits


class PlainEmbedding(nn.Module):
    """Likewise."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, DIMENSION, padding_idx=0)
        self.head = nn.Sequential(nn.Linear(length * DIMENSION, 8), nn.ReLU(), nn.Linear(8, 6))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embedding(x.long()).flatten(1))
        return logits


@dataclass(frozen=True)
class Case:
    """A job: its clients, the rows of each, what a row is, and the network with and without raysim."""

    name: str
    model: str
    plain: Callable[[], nn.Module]
    rows: int
    features: int
    classes: int
    clients: int = 100
    words: int = 0  # 0: images; else the mean number of words of a text, at most one for each feature
    options: tuple[tuple[str, Any], ...] = ()


TEXT = (("vocabulary", VOCABULARY), ("dimension", DIMENSION))
CASES = (
    Case("fashion: CNN 8-16-32-2048 on 28 x 28", "fashion_cnn", PlainFashion, 96, 784, 10),
    Case("cifar: CNN 32-64-128 with batch norm", "cifar_cnn", PlainCifar, 64, 3072, 10, clients=30),
    Case(
        "cifar in bfloat16",
        "cifar_cnn",
        PlainCifar,
        64,
        3072,
        10,
        clients=30,
        options=(("autocast", "bfloat16"),),
    ),
    Case("lstm: texts of 50 words", "text_lstm", PlainLstm, 160, 50, 3, words=1000, options=TEXT),
    Case("lstm: texts of 14 words, padded to 50", "text_lstm", PlainLstm, 160, 50, 3, words=14, options=TEXT),
    Case(
        "embedding: texts of 50 words", "text_dense", lambda: PlainEmbedding(50), 160, 50, 6, words=1000, options=TEXT
    ),
)


def make(case: Case, folder: Path) -> Federation:
    """Noise images, or texts with words of Zipf's frequencies; a quarter more rows of each client are for testing."""
    rng = np.random.default_rng(0)
    each = case.rows * 5 // 4
    n = each * case.clients
    y = rng.integers(0, case.classes, n)
    if case.words:
        frequencies = 1.0 / np.arange(2, VOCABULARY)
        X = rng.choice(np.arange(2, VOCABULARY), (n, case.features), p=frequencies / frequencies.sum()).astype(
            np.float32
        )
        lengths = np.clip(rng.poisson(case.words, n), 1, case.features)
        X[np.arange(case.features) < case.features - lengths[:, None]] = 0
    else:
        X = rng.random((n, case.features), dtype=np.float32)
    start = each * np.arange(case.clients)
    train = start + case.rows
    meta = {
        "hospitals": [f"h{i}" for i in range(case.clients)],
        "features": [f"x{i}" for i in range(case.features)],
        "classes": [str(c) for c in range(case.classes)],
        "attributes": {},
        "notes": [],
        "fingerprint": case.name,
        "preprocessing_scalars": 0,
    }
    bounds = np.stack([start, train, train, start + each], axis=1)
    write(folder, X=X, y=y, observed=np.ones(X.shape, dtype=bool), bounds=bounds, patients={}, meta=meta)
    return Federation.open(folder)


def torch_loop(case: Case, federation: Federation) -> float:
    """Seconds of the round that anybody would write."""
    torch.manual_seed(0)
    net, loss = case.plain(), nn.CrossEntropyLoss()
    slices = [federation.rows(h, "train") for h in range(case.clients)]
    clients = [
        (torch.from_numpy(federation.X[rows].copy()), torch.from_numpy(federation.y[rows].copy())) for rows in slices
    ]
    torch.optim.Adam(net.parameters(), lr=RATE).zero_grad()  # its first use imports for a second
    began = time.perf_counter()
    before = copy.deepcopy(net.state_dict())
    total = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in before.items()}
    for X, y in clients:
        net.load_state_dict(before)
        solver = torch.optim.Adam(net.parameters(), lr=RATE)
        for batch in torch.randperm(len(y)).split(BATCH):
            solver.zero_grad()
            torch.autograd.backward(loss(net(X[batch]), y[batch]))
            solver.step()
        for name, value in net.state_dict().items():
            total[name] += value
    net.load_state_dict({name: value / len(clients) for name, value in total.items()})
    return time.perf_counter() - began


def engine(case: Case, federation: Federation, repeats: int) -> float:
    """Seconds of a round on Ray with two actors: the least of ``repeats`` after one that warms up."""
    job = Job(
        work=Work(
            federation=str(federation.folder),
            model=ModelSpec(case.model, None, dict(case.options), "default"),
            optimizer=Optimizer("adam", RATE, BATCH),
            epochs=1,
            seed=1,
            precision="float32",
        ),
        strategy=FedAvg(),
        selection=All(),
        rounds=repeats + 2,
        evaluation=EvaluationSection(every=0, loss_points=0),
    )
    with open_session(federation.totals, ResourcesSection(), in_process=False, verbose=False) as session:
        seconds = [event.seconds for event in session.run(job) if isinstance(event, Round)]
    return min(seconds[1:-1])  # the first warms up, the last is evaluated


def kernels(case: Case, federation: Federation, repeats: int) -> None:
    """Print milliseconds of processor time that a step of one client takes, and how many times less than plainly."""
    model = build_model(case.model, case.features, case.classes, options=dict(case.options))
    start = model.initial(np.random.default_rng(0)).astype(np.float32)
    tasks = []
    for h in range(case.clients):
        rows = federation.rows(h, "train")
        key = (federation.X[rows], federation.y[rows], start, [], 1, RATE)
        tasks.append(Task(*key, lambda epoch, h=h: stream(0, "batch", 0, h, epoch)))  # type: ignore[misc]
    runs: dict[str, Callable[[], object]] = {
        "plain torch loop": lambda: torch_loop(case, federation),
        "raysim": lambda: model.train(tasks, Optimizer("adam", RATE, BATCH)),
    }
    if isinstance(model, ModuleModel) and model.batches:
        batched = Cohort(model, Vmapped(model.module, model.layout), device="cpu", precision="float32")
        runs["vmap, all clients at once"] = lambda: batched.train(tasks, Optimizer("adam", RATE, BATCH))
    times = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats):
        for name, run in runs.items():
            began = time.process_time()
            run()
            times[name] = min(times[name], time.process_time() - began)
    for name, seconds in times.items():
        each = 1e3 * seconds / (case.clients * -(-case.rows // BATCH))
        print(f"{case.name:<45}{name:<26}{each:8.2f} ms {times['plain torch loop'] / seconds:6.2f}x", flush=True)


def main() -> None:
    """Print a line for each job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="run only jobs whose name starts so, such as lstm")
    parser.add_argument("--kernels", action="store_true")
    options = parser.parse_args()
    threadpool_limits(1)
    torch.set_num_threads(1)
    if not options.kernels:
        import ray

        ray.init(address="local", include_dashboard=False, log_to_driver=False, num_cpus=2)
        print(f"{'one round of federated averaging':<45}{'raysim s':>10}{'torch s':>10}{'times':>8}")
    for case in CASES:
        if not case.name.startswith(options.only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            if options.kernels:
                case = replace(case, clients=8)
                kernels(case, make(case, Path(folder)), options.repeats)
                continue
            federation = make(case, Path(folder))
            loop = min(torch_loop(case, federation) for _ in range(options.repeats))
            ours = engine(case, federation, options.repeats)
        print(f"{case.name:<45}{ours:10.3f}{loop:10.3f}{loop / ours:8.2f}", flush=True)


if __name__ == "__main__":
    main()
