"""Kernels, evaluation, private steps and whole jobs on a card, against the same on the CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.sections.privacy import PrivacySection
from raysim.core import registry
from raysim.core.errors import ResourceError
from raysim.engine.client.hospital_group import HospitalGroup
from raysim.engine.messages.plan import ModelSpec
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.job_checks import check_job
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.training.base import DeviceFull, Moments, Optimizer
from raysim.training.kernels.batched import Cohort
from raysim.training.models import build_model
from tests.conftest import job_of, store, with_patients
from tests.training.test_kernels import make_tasks

pytestmark = pytest.mark.card

AGREES = 4e-7
"""Up to which results of float32 agree, in parts of the largest parameter."""
SIZES = [20, 9, 1, 14]
TOKENS = 9
MODELS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "cifar_cnn": (3 * 32 * 32, 3, {"dense": 2}),
    "fashion_cnn": (28 * 28, 3, {"dense": 4}),
    "linear_regression": (4, 0, {}),
    "logistic_regression": (4, 2, {}),
    "mlp": (4, 3, {"hidden": [5]}),
    "text_dense": (6, 3, {"vocabulary": TOKENS, "dimension": 2}),
    "text_lstm": (6, 3, {"vocabulary": TOKENS, "dimension": 2}),
}
WITHOUT_STEPS = {"boosted_trees", "poisson_regression"}
"""Models that are fitted from sums in numpy, without steps of gradient descent that a card could take."""
DRAWS = ("cifar_cnn", "text_lstm")
"""Models with dropout: a real card draws other masks than a CPU."""


def rows_of(name: str, n: int) -> tuple[Any, Any]:
    features, classes, _ = MODELS[name]
    rng = np.random.default_rng(2)
    X = rng.integers(0, TOKENS, (n, features)) if name.startswith("text") else rng.random((n, features))
    return X.astype(np.float32), rng.integers(0, classes, n) if classes else rng.random(n)


def models(name: str, card: str) -> list[Any]:
    features, classes, options = MODELS[name]
    return [build_model(name, features, classes, options=options, device=device) for device in ("cpu", card)]


def agree(found: Any, expected: Any, scale: float = 1.0) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=AGREES * scale * max(1.0, np.abs(expected).max()))


def skip_draws(name: str, card: str) -> None:
    if card == "cuda" and name in DRAWS:
        pytest.skip(f"'{name}' draws masks, which a card draws otherwise")


def test_every_model_is_in_the_table():
    assert set(registry.entries("models")) - WITHOUT_STEPS == set(MODELS)


def test_an_operation_on_two_devices_is_an_error(card):
    here = torch.ones(2, 3).to(card)
    assert here.device.type == card
    assert (here * 2).cpu().tolist() == [[2.0] * 3] * 2
    for operation in (
        lambda: here + torch.ones(3),
        lambda: here @ torch.ones(3, 2),
        lambda: torch.cat([here, here.cpu()]),
    ):
        with pytest.raises(RuntimeError, match="same device"):
            operation()
    with pytest.raises((TypeError, RuntimeError)):
        here.numpy()


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("name", MODELS)
def test_a_kernel_trains_as_on_the_cpu(name, optimizer, card):
    skip_draws(name, card)
    features, classes, _ = MODELS[name]
    trained = []
    for model in models(name, card):
        P = model.layout.size
        X, y = rows_of(name, sum(SIZES))
        tasks, at = [], 0
        for task in make_tasks(SIZES, features, classes or 2, P, proximal=1, rate=0.01, epochs=1, dtype=np.float32):
            part = slice(at, at := at + len(task.y))
            start = model.initial(np.random.default_rng(len(tasks))).astype(np.float32)
            more = {"weights": np.linspace(0.5, 2, len(task.y)), "moments": Moments(), "frozen": np.arange(P) % 5 == 0}
            tasks.append(replace(task, X=X[part], y=y[part], start=start, **more))
        thetas = model.train(tasks, Optimizer(optimizer, 0.01, 8, weight_decay=0.1))
        trained.append((thetas, [task.moments.steps for task in tasks]))
    # Where a gradient is all but zero, Adam's step is of its sign, which rounding may turn.
    agree(trained[1][0], trained[0][0], 500 if optimizer == "adam" else 1)
    assert trained[0][1] == trained[1][1]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_predicts_as_on_the_cpu(name, card):
    here, there = models(name, card)
    X, _ = rows_of(name, 50)
    theta = here.initial(np.random.default_rng(1)).astype(np.float32)
    agree(there.logits(theta, X), here.logits(theta, X), 3)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in DRAWS])
def test_clipped_sums_are_those_of_the_cpu(name, card):
    here, there = models(name, card)
    X, y = rows_of(name, 12)
    theta = here.initial(np.random.default_rng(1)).astype(np.float32)
    patient = np.repeat(np.arange(4), 3)
    sums = (
        [clippable.clipped_sum(theta, X, y, None, patient, 0.5) for clippable in (here, there)]
        if hasattr(here, "clipped_sum")
        else []
    )
    for total in sums[1:]:
        agree(total, sums[0], 3)


@pytest.mark.parametrize("name", ["fashion_cnn", "mlp"])
def test_all_epochs_send_rows_to_the_card_once(name, pretended_card):
    """What else a round sends is a model, weights and orders of rows."""
    from tests.card.pretended import MEMORY

    features, classes, _ = MODELS[name]
    model, (X, y) = models(name, pretended_card)[1], rows_of(name, 200)
    P = model.layout.size
    (task,) = make_tasks([len(y)], features, classes, P, rate=0.01, epochs=3, dtype=np.float32)
    before = MEMORY.sent
    model.train([replace(task, X=X, y=y)], Optimizer("sgd", 0.01, 16))
    assert X.nbytes <= MEMORY.sent - before <= X.nbytes + 8 * P + 3 * 8 * 2 * len(y)


PRIVATE = {
    "plain": None,
    "local": {"unit": "patient", "mode": "local"},
    "pooled": {"unit": "patient", "mode": "pooled", "rate": 0.5},
    "hospital": {"unit": "hospital"},
}
STRATEGIES = ("fedprox", "scaffold", "ditto", "fedadam", "fine_tuning", "local", "centralized", "ifca", "clustered")
JOBS = [
    *[(name, "fedavg", way) for name in MODELS for way in PRIVATE if name not in DRAWS],
    *[("text_lstm", "fedavg", way) for way in ("plain", "hospital")],
    *[(name, strategy, "plain") for name in ("mlp", "text_dense") for strategy in STRATEGIES],
    *[("fashion_cnn", strategy, "plain") for strategy in ("scaffold", "moon")],
]


@pytest.mark.parametrize(("name", "strategy", "way"), JOBS)
def test_a_whole_job_is_that_of_the_cpu(name, strategy, way, card, tmp_path):
    skip_draws(name, card)
    _, classes, options = MODELS[name]
    X, y = rows_of(name, 36)
    bounds = 12 * np.arange(3)[:, None] + [0, 8, 8, 12]
    federation = with_patients(store(tmp_path, X, y, bounds, classes))
    cls = registry.load("strategies", strategy, "strategy.name")
    settings: dict[str, object] = {"clusters": 2} if "clusters" in cls.__dataclass_fields__ else {}
    settings |= {"weights": "uniform"} if way != "plain" else {}
    job = job_of(
        federation,
        cls(**settings),
        rounds=2,
        precision="float32",
        learning_rate=0.01,
        model=ModelSpec(name, None, options, "default"),
    )
    guarantee = PRIVATE[way]
    if guarantee is not None:
        job = replace(job, privacy=PrivacySection(noise_multiplier=0.5, delta=1e-3, clip=0.5, **guarantee))
    check_job(job, federation)
    outcomes = []
    for device in ("cpu", card):
        pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
        pool._groups = [HospitalGroup(ids, pools=i == 0, device=device) for i, ids in enumerate(pool.served)]
        *_, outcome = JobRun(pool, job).events()
        outcomes.append(outcome)
    on_cpu, on_card = outcomes
    agree(on_card.models, on_cpu.models, 3)
    for served, figures in on_cpu.figures.items():
        np.testing.assert_allclose(on_card.figures[served], figures, rtol=1e-5, atol=1e-5)


def test_a_call_has_the_hospitals_that_the_memory_has_room_for(pretended_card, monkeypatch):
    from tests.card.pretended import MEMORY

    sizes, terms = [64] * 6, Optimizer("sgd", 0.01, 16)

    def trained(limit: float) -> tuple[Any, int]:
        MEMORY.limit = MEMORY.held + limit
        model = build_model("mlp", 40, 3, options={"hidden": [64]}, device=pretended_card)
        assert isinstance(model, Cohort)
        before = MEMORY.held
        tasks = make_tasks(sizes, 40, 3, model.layout.size, epochs=1, rate=0.01, dtype=np.float32)
        MEMORY.most = before
        return model.train(tasks, terms), MEMORY.most - before

    whole, most = trained(float("inf"))
    for limit in (most / 2, most / 3):
        part, taken = trained(limit)
        agree(part, whole, 3)  # how many hospitals are in a call may change last bits
        assert taken <= limit
    with pytest.raises(DeviceFull, match="out of memory"):
        trained(most / 40)


def test_a_card_too_small_for_the_model_is_said(pretended_card, tmp_path):
    from tests.card.pretended import MEMORY

    X, y = rows_of("text_dense", 36)
    federation = store(tmp_path, X, y, 12 * np.arange(3)[:, None] + [0, 8, 8, 12], 3)
    job = job_of(federation, FedAvg(), model=ModelSpec("text_dense", None, MODELS["text_dense"][2], "default"))
    group = HospitalGroup(np.arange(3), pools=True, device=pretended_card)
    MEMORY.limit = MEMORY.held + 8
    with pytest.raises(ResourceError, match=r"resources.gpus_per_actor: the GPU's share has too little memory for the"):
        group.model(job.work)
