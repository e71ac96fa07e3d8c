"""Speed of noisy local steps on one core: clipping and noise beside the plain kernel, and beside Opacus.

    python benchmarks/privacy.py [--repeats 5] [--opacus FOLDER]

A step is one batch of about 32 rows of a hospital with 1,024 rows and 100 features. ``clip`` and ``clip and noise``
have their batches given, as ``plain`` has them by a permutation; ``coins`` is what it takes to draw them, all those of
a visit at once.
``FOLDER`` is where Opacus was installed aside (``pip install --no-deps --target FOLDER opacus opt_einsum``); without it
its lines are left out. Times are the least of the repeats, in which the ways take turns, in microseconds a step, all in
one process with one thread.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from raysim.core.streams import stream
from raysim.privacy.noise import StepNormals
from raysim.training.base import Optimizer, Task
from raysim.training.models import build_model
from raysim.training.private import Coins, PrivateSteps

FEATURES, ROWS, BATCH = 100, 1024, 32
STEPS = ROWS // BATCH
MODELS: dict[str, dict[str, Any]] = {"logistic_regression": {}, "mlp": {"hidden": [256, 128]}}


def main() -> None:
    """Print a line for each model and way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--opacus", default=None)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    y = (X @ rng.normal(size=FEATURES) > 0).astype(np.int64)
    if given.opacus:
        sys.path.append(given.opacus)
    with threadpool_limits(1):
        for name, options in MODELS.items():
            ways = own(name, options, X, y) | (of_opacus(options, X, y) if given.opacus else {})
            times = least(ways, given.repeats)
            for way, microseconds in times.items():
                ratio = microseconds / times["plain"]
                print(f"{name:20} {way:18} {microseconds:10.1f} us a step {ratio:8.2f} x plain", flush=True)


def own(name: str, options: dict[str, Any], X: np.ndarray, y: np.ndarray) -> dict[str, Callable[[], object]]:
    """An epoch of the plain kernel, of clipped steps, and of clipped steps with noise."""
    model: Any = build_model(name, FEATURES, 2, options=options, init="default", device="cpu", precision="float32")
    start = model.initial(stream(0, "initial")).astype(np.float32)
    task = Task(X, y, start, (), 1, 0.1, lambda epoch: stream(0, "batch", epoch))
    optimizer = Optimizer("sgd", 0.1, BATCH)

    def draw() -> Coins:
        return Coins(stream(0, "dp_batch"), ROWS, BATCH / ROWS, STEPS, None)

    coins, order = draw(), stream(0, "batch", 0).permutation(ROWS).reshape(STEPS, BATCH)
    batches = [coins(step) for step in range(STEPS)]
    normals = StepNormals("seeded", STEPS, 0, "dp_noise")
    same = PrivateSteps(
        patient=None,
        divisor=BATCH,
        steps=STEPS,
        clip=1.0,
        multiplier=0.0,
        batch=lambda step: order[step],
        noise=normals,
    )
    clip = replace(same, batch=lambda step: batches[step])
    noise = replace(clip, multiplier=1.0)
    return {
        "plain": lambda: model.train([task], optimizer),
        "clip, same batches": lambda: model.train([replace(task, private=same)], optimizer),
        "clip": lambda: model.train([replace(task, private=clip)], optimizer),
        "clip and noise": lambda: model.train([replace(task, private=noise)], optimizer),
        "coins": draw,
    }


def of_opacus(options: dict[str, Any], X: np.ndarray, y: np.ndarray) -> dict[str, Callable[[], object]]:
    """An epoch of Opacus with hooks, on a module of the same layers."""
    warnings.simplefilter("ignore")
    import torch
    from opacus import PrivacyEngine  # type: ignore[import-not-found]
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    widths = [FEATURES, *options.get("hidden", []), 2]
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    module = nn.Sequential(*layers[:-1])
    data = DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(y)), batch_size=BATCH)
    engine = PrivacyEngine(accountant="rdp")
    module, optimizer, data = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=data,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    loss = nn.CrossEntropyLoss()

    def epoch() -> None:
        for rows, labels in data:
            optimizer.zero_grad()
            loss(module(rows), labels).backward()
            optimizer.step()

    return {"Opacus": epoch}


def least(ways: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Microseconds of a step of each way, the least of ``repeats`` after a first one; the ways take turns."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repeats + 1):
        for way, run in ways.items():
            began = time.perf_counter()
            run()
            times[way].append(time.perf_counter() - began)
    return {way: min(each[1:]) / STEPS * 1e6 for way, each in times.items()}


if __name__ == "__main__":
    main()
