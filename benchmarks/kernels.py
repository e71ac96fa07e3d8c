"""Speed of local training on one core, as ratios to plain loops measured in the same run.

    python benchmarks/kernels.py [--repeats 7]

The plain torch loop is what a user would write (``nn.Module``, autograd, ``torch.optim.SGD``), the numpy loop the same
by hand with a gradient array for each parameter; ``batched`` is the GPU's kernel on the CPU, whole cohort at once and 8
hospitals at a time. Times are the least of the repeats, in milliseconds for one epoch of all hospitals.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import nn

from raysim.core.streams import stream
from raysim.training.base import Model, Optimizer, Task
from raysim.training.kernels.batched import Cohort, Dense
from raysim.training.models import build_model

FEATURES, RATE = 100, 0.05
WIDTHS: dict[str, tuple[int, ...]] = {"logistic_regression": (FEATURES, 1), "mlp": (FEATURES, 256, 128, 2)}


def heavy_tailed(hospitals: int, rows: int) -> list[int]:
    """Log-normal sizes that add up to about ``rows``."""
    sizes = np.random.default_rng(0).lognormal(0, 1, hospitals)
    return [max(5, int(size)) for size in sizes / sizes.sum() * rows]


def make_tasks(sizes: Sequence[int], start: np.ndarray) -> list[Task]:
    """One epoch for each hospital."""
    tasks = []
    for h, n in enumerate(sizes):
        rng = np.random.default_rng([1, h])
        X, y = rng.normal(size=(n, FEATURES)).astype(np.float32), rng.integers(0, 2, n)
        tasks.append(Task(X, y, start, [], 1, RATE, lambda epoch, h=h: stream(0, "batch", 0, h, epoch)))  # type: ignore[misc]
    return tasks


def torch_loop(widths: Sequence[int], tasks: Sequence[Task], batch: int) -> None:
    """The loop of a textbook."""
    parts: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        parts += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    net = nn.Sequential(*parts[:-1])
    for task in tasks:
        nn.utils.vector_to_parameters(torch.from_numpy(task.start.copy()), net.parameters())
        solver = torch.optim.SGD(net.parameters(), lr=RATE)
        order = task.batches(0).permutation(len(task.y))
        X, y = torch.from_numpy(task.X[order]), torch.from_numpy(task.y[order])
        for low in range(0, len(y), batch):
            solver.zero_grad()
            z, target = net(X[low : low + batch]), y[low : low + batch]
            if widths[-1] == 1:
                loss = nn.functional.binary_cross_entropy_with_logits(z.squeeze(1), target.float())
            else:
                loss = nn.functional.cross_entropy(z, target)
            torch.autograd.backward(loss)
            solver.step()


def numpy_loop(widths: Sequence[int], tasks: Sequence[Task], batch: int) -> None:
    """The same by hand, in as few lines as it takes."""
    pairs = list(pairwise(widths))
    cuts = np.cumsum([n for i, o in pairs for n in (i * o, o)])[:-1]
    for task in tasks:
        flat = np.split(task.start.copy(), cuts)
        layers = [(flat[2 * k].reshape(o, i), flat[2 * k + 1]) for k, (i, o) in enumerate(pairs)]
        order = task.batches(0).permutation(len(task.y))
        X, y = task.X[order], task.y[order]
        for low in range(0, len(y), batch):
            target = y[low : low + batch]
            activations = [X[low : low + batch]]
            for k, (weight, bias) in enumerate(layers):
                z = activations[-1] @ weight.T + bias
                activations.append(np.maximum(z, 0) if k + 1 < len(layers) else z)
            z = activations.pop()
            if z.shape[1] == 1:
                residual = 1 / (1 + np.exp(-z)) - target[:, None].astype(np.float32)
            else:
                residual = np.exp(z - z.max(1, keepdims=True))
                residual /= residual.sum(1, keepdims=True)
                residual[np.arange(len(target)), target] -= 1
            residual /= len(target)
            for (weight, bias), a in zip(reversed(layers), reversed(activations), strict=True):
                below = (residual @ weight) * (a > 0)
                weight -= RATE * (residual.T @ a)
                bias -= RATE * residual.sum(0)
                residual = below


def best(run: Callable[[], object], repeats: int) -> float:
    """The least time of ``repeats`` runs after one to warm up, in seconds."""
    run()
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return min(times)


def in_eights(model: Model, tasks: Sequence[Task], terms: Optimizer) -> None:
    """Hospitals of like size, eight at a time."""
    ordered = sorted(tasks, key=lambda task: len(task.y))
    for at in range(0, len(ordered), 8):
        model.train(ordered[at : at + 8], terms)


def measure(family: str, sizes: Sequence[int], batch: int, repeats: int) -> None:
    """Print the times of one model on one federation."""
    widths = WIDTHS[family]
    model = build_model(family, FEATURES, 2, options={})
    batched = Cohort(model, Dense(widths), device="cpu", precision="float32")
    start = model.initial(np.random.default_rng(0)).astype(np.float32)
    tasks = make_tasks(sizes, start)
    pulled = [replace(task, proximal=[(0.1, start), (0.2, start)]) for task in tasks]
    sgd, momentum, adam = (Optimizer(name, RATE, batch) for name in ("sgd", "momentum", "adam"))
    runs: dict[str, Callable[[], object]] = {
        "plain torch loop": lambda: torch_loop(widths, tasks, batch),
        "plain numpy loop": lambda: numpy_loop(widths, tasks, batch),
        "raysim, sgd": lambda: model.train(tasks, sgd),
        "raysim, sgd, 2 pulls": lambda: model.train(pulled, sgd),
        "raysim, momentum": lambda: model.train(tasks, momentum),
        "raysim, adam": lambda: model.train(tasks, adam),
        "batched, all at once": lambda: batched.train(tasks, sgd),
        "batched, eights": lambda: in_eights(batched, tasks, sgd),
        "streams and permutations": lambda: [task.batches(0).permutation(len(task.y)) for task in tasks],
        "logits, 30 rows each": lambda: [model.logits(start, task.X[:30]) for task in tasks],
    }
    times = {name: best(run, repeats) for name, run in runs.items()}
    for name, seconds in times.items():
        print(f"  {name:26s}{1e3 * seconds:9.2f} ms  {times['plain torch loop'] / seconds:6.1f}x the torch loop")


def main() -> None:
    """Print a table for each federation and model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    threadpool_limits(1)
    torch.set_num_threads(1)
    for title, sizes, batch in (
        ("208 heavy-tailed hospitals", heavy_tailed(208, 53_800), 32),
        ("200 hospitals of 26", [26] * 200, 16),
    ):
        for family in WIDTHS:
            print(f"\n{family}, {title}, {sum(sizes)} rows, batch {batch}")
            measure(family, sizes, batch, repeats)


if __name__ == "__main__":
    main()
