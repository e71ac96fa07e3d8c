"""Speed of noisy local steps on one core: clipping and noise beside the plain kernel, and beside Opacus.

    python benchmarks/privacy.py [--repeats 5] [--opacus FOLDER]

A step is one batch of about 32 rows of a hospital with 1,024 rows and 100 features. ``clip, same batches`` has those of
``plain``. ``clip`` and ``clip and noise`` have batches by coins, which are given; ``coins`` is what it takes to draw
them, all those of a local update at once, and ``noise`` is its draw alone.
``FOLDER`` is where Opacus was installed aside (``pip install --no-deps --target FOLDER opacus opt_einsum``); without it
its lines are left out. It is given the batches of ``clip and noise``, the same clip and noise, and the layers with two
outputs; by its hooks, which are its default, and by its ghost clipping. What its own loader adds is not counted.
Times are the least of the repeats, in which our ways take turns, and then those of Opacus, in microseconds a step, all
in one process with one thread.
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
            coins = by_coins()
            times = least(of_raysim(name, options, X, y, coins), given.repeats)
            if given.opacus:
                times |= least(of_opacus(options, X, y, coins), given.repeats)
            for way, microseconds in times.items():
                ratio = microseconds / times["plain"]
                print(f"{name:20} {way:18} {microseconds:10.1f} us a step {ratio:8.2f} x plain", flush=True)


def by_coins() -> Coins:
    """The batches of an epoch."""
    return Coins(stream(0, "dp_batch"), ROWS, BATCH / ROWS, STEPS, None)


def of_raysim(
    name: str, options: dict[str, Any], X: np.ndarray, y: np.ndarray, coins: Coins
) -> dict[str, Callable[[], object]]:
    """An epoch of the plain kernel, of clipped steps, and of clipped steps with noise."""
    model: Any = build_model(name, FEATURES, 2, options=options, init="default", device="cpu", precision="float32")
    start = model.initial(stream(0, "initial")).astype(np.float32)
    task = Task(X, y, start, (), 1, 0.1, lambda epoch: stream(0, "batch", epoch))
    optimizer = Optimizer("sgd", 0.1, BATCH)

    order = stream(0, "batch", 0).permutation(ROWS).reshape(STEPS, BATCH)
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
    clip = replace(same, batch=coins)
    noise = replace(clip, multiplier=1.0)
    return {
        "plain": lambda: model.train([task], optimizer),
        "clip, same batches": lambda: model.train([replace(task, private=same)], optimizer),
        "clip": lambda: model.train([replace(task, private=clip)], optimizer),
        "clip and noise": lambda: model.train([replace(task, private=noise)], optimizer),
        "noise": lambda: [normals(step, len(start)) for step in range(STEPS)],
        "coins": by_coins,
    }


def of_opacus(options: dict[str, Any], X: np.ndarray, y: np.ndarray, coins: Coins) -> dict[str, Callable[[], object]]:
    """An epoch of Opacus on a module of the same layers, in each of its modes."""
    warnings.simplefilter("ignore")
    import torch
    from opacus import PrivacyEngine  # type: ignore[import-not-found]
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    rows, labels = torch.from_numpy(X), torch.from_numpy(y)
    batches = [(rows[places], labels[places]) for places in map(coins, range(STEPS))]

    def of_mode(mode: str) -> Callable[[], object]:
        widths = [FEATURES, *options.get("hidden", []), 2]
        layers: list[nn.Module] = []
        for fan_in, fan_out in pairwise(widths):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
        module = nn.Sequential(*layers[:-1])
        made = PrivacyEngine(accountant="rdp").make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=DataLoader(TensorDataset(rows, labels), batch_size=BATCH),
            criterion=nn.CrossEntropyLoss(),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            grad_sample_mode=mode,
        )
        private, optimizer = made[:2]
        loss = made[2] if mode == "ghost" else nn.CrossEntropyLoss()

        def epoch() -> None:
            for some, theirs in batches:
                optimizer.zero_grad()
                loss(private(some), theirs).backward()
                optimizer.step()

        return epoch

    return {f"Opacus, {mode}": of_mode(mode) for mode in ("hooks", "ghost")}


def least(ways: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Microseconds of a step of each way, the least of ``repeats`` of which the first is left out; they take turns."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repeats + 1):
        for way, run in ways.items():
            run()  # once unmeasured: none pays for what another has left in the caches
            began = time.perf_counter()
            run()
            times[way].append(time.perf_counter() - began)
    return {way: min(each[1:]) / STEPS * 1e6 for way, each in times.items()}


if __name__ == "__main__":
    main()
