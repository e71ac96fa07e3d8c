"""Private steps of every kernel against steps that are made one by one of clipped sums, and of modules by ``vmap``."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from raysim.core.streams import Streams, stream
from raysim.training.base import ContrastTerm, Moments, Optimizer, Task
from raysim.training.canaries import CanaryModel
from raysim.training.kernels.batches import of_private
from raysim.training.kernels.descent import largest, noise_of
from raysim.training.kernels.modules.by_row import chunks, descend
from raysim.training.kernels.modules.flat import FlatModule
from raysim.training.kernels.modules.generic import ModuleModel
from raysim.training.models import build_model
from raysim.training.private import Coins, PrivateSteps, heads, sampled
from tests.training.families import MODELS, Normed

FEATURES = 3


class Perceptron(nn.Module):
    """What ``mlp`` is, for any torch."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(n_features, 4), nn.Linear(4, n_outputs)])

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return self.layers[1](torch.relu(self.layers[0](X)))


class Dropping(nn.Module):
    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.last = nn.Linear(n_features, n_outputs)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(self.last(X), 0.5, self.training)


def model(name: str, classes: int, precision: str = "float64", **options) -> Any:
    return build_model(name, FEATURES, classes, options=options, init="default", device="cpu", precision=precision)


def module(cls: type[nn.Module], classes: int = 2) -> ModuleModel:
    return ModuleModel(FlatModule(cls, FEATURES, classes, {}, "default", "cpu", "float64"))


def task_of(built: Any, classes: int, patients: list[int], *, steps: int = 4, weighted: bool = False, **keys) -> Task:
    """Private steps at a hospital whose patients have so many rows each."""
    rng = np.random.default_rng(len(patients))
    n = sum(patients)
    patient = np.repeat(np.arange(len(patients)), patients)
    patient_of_row = None if n == len(patients) else patient
    rate, coins, noise = keys.pop("rate", 0.5), Streams(3, "coins"), Streams(3, "noise")
    private = PrivateSteps(
        patient=patient_of_row,
        divisor=rate * len(patients),
        steps=steps,
        clip=keys.pop("clip", 0.3),
        multiplier=keys.pop("multiplier", 0.5),
        batch=lambda step: sampled(coins.at(step), len(patients), rate, patient_of_row),
        noise=lambda step, size: noise.at(step).standard_normal(size),
    )
    return Task(
        X=rng.normal(size=(n, FEATURES)),
        y=rng.integers(classes, size=n) if classes else rng.normal(size=n),
        start=rng.normal(size=built.layout.size),
        proximal=(),
        epochs=1,
        learning_rate=0.2,
        batches=lambda epoch: stream(0, "never"),
        weights=rng.uniform(0.1, 2, size=n) if weighted else None,
        private=private,
        **keys,
    )


def one_by_one(built: Any, task: Task, optimizer: Optimizer) -> np.ndarray:
    theta = task.start.copy()
    descend(built, built.layout, task, optimizer, theta)
    return theta


@pytest.mark.parametrize(("name", "classes", "options"), MODELS)
@given(
    patients=st.lists(st.integers(1, 4), min_size=1, max_size=7),
    rate=st.sampled_from([0.1, 0.6, 1.0]),
    clip=st.sampled_from([0.05, 0.7, 1e9]),
    weighted=st.booleans(),
    optimizer=st.sampled_from(["sgd", "momentum", "adam"]),
    decay=st.sampled_from([0.0, 0.1]),
)
def test_a_kernel_takes_the_steps_of_clipped_sums(
    name, classes, options, patients, rate, clip, weighted, optimizer, decay
):
    """Batches of nobody and patients of several rows among them."""
    built, solver = model(name, classes, **options), Optimizer(optimizer, 0.2, 2, decay)
    task = task_of(built, classes, patients, rate=rate, clip=clip, multiplier=0.1 / clip, weighted=weighted)
    assert built.train([task], solver)[0] == pytest.approx(one_by_one(built, task, solver), rel=1e-8, abs=1e-9)


@pytest.mark.parametrize(("name", "classes", "options"), MODELS)
def test_private_steps_leave_nothing_behind_in_a_model(name, classes, options):
    """Rows of theirs are turned and shortened in memory that later local updates use."""
    used, solver = model(name, classes, **options), Optimizer("sgd", 0.2, 2)
    private = task_of(used, classes, [1] * 7, clip=0.05)
    plain = replace(private, private=None, batches=lambda epoch: stream(1, "batch", epoch))
    used.train([private], solver)
    fresh = model(name, classes, **options).train([plain], solver)
    assert used.train([plain], solver).tobytes() == fresh.tobytes()


@pytest.mark.parametrize(("name", "classes", "options"), MODELS)
@pytest.mark.parametrize("patients", [[1] * 6, [2, 1, 1, 2]])
def test_a_kernel_takes_the_steps_of_clipped_sums_with_planted_rows(name, classes, options, patients):
    """The first row and the last but one are canaries."""
    wrapped = CanaryModel(model(name, classes, **options), FEATURES - 1)
    task = task_of(wrapped, classes, patients, clip=0.7, multiplier=0.1)
    task.X[:, -1] = 0.0
    task.X[[0, 4]] = [0.0, 0.0, 3.0]
    solver = Optimizer("sgd", 0.2, 2)
    assert wrapped.train([task], solver)[0] == pytest.approx(one_by_one(wrapped, task, solver), rel=1e-8, abs=1e-9)


def test_proximal_terms_frozen_parameters_and_moments_are_those_of_plain_steps():
    built = model("mlp", 2, hidden=[4])
    frozen = np.arange(built.layout.size) < 5
    towards = np.ones(built.layout.size)
    for optimizer in ("sgd", "momentum"):
        tasks = [
            replace(task_of(built, 2, [1, 2, 1, 1], frozen=frozen, moments=Moments()), proximal=[(0.3, towards)])
            for _ in range(2)
        ]
        solver = Optimizer(optimizer, 0.2, 2)
        here, there = built.train([tasks[0]], solver)[0], one_by_one(built, tasks[1], solver)
        assert here == pytest.approx(there, abs=1e-9)
        assert (here[frozen] == tasks[0].start[frozen]).all()
        if optimizer == "momentum":
            assert tasks[0].moments.first == pytest.approx(tasks[1].moments.first, abs=1e-9)


def test_hospitals_beside_it_change_no_bit():
    for name, classes, options in MODELS:
        built = model(name, classes, precision="float32", **options)
        tasks = [task_of(built, classes, patients) for patients in ([1, 1, 3], [2] * 9, [1] * 20)]
        together = built.train(tasks, Optimizer("sgd", 0.2, 2))
        for task, theta in zip(tasks, together, strict=True):
            assert (built.train([task], Optimizer("sgd", 0.2, 2))[0] == theta).all()


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize(("name", "classes", "options"), MODELS)
def test_whatever_a_patient_has_its_gradient_is_at_most_the_clip(name, classes, options, precision):
    """One step of rate 1 and no noise, with the patient and without it."""
    built, clip = model(name, classes, precision, **options), 0.25
    patients = [1, 3, 1, 2, 1]
    task = task_of(built, classes, patients, steps=1, rate=1.0, clip=clip, multiplier=0.0)
    patient = task.private.patient
    for bad in (3.0, 1e30, np.inf, np.nan):
        for who in range(len(patients)):
            X, theirs = task.X.copy(), patient == who
            X[theirs] *= bad
            ends = []
            for kept in (np.ones(len(X), np.bool_), ~theirs):
                everybody = np.arange(kept.sum())
                private = replace(task.private, patient=patient[kept], batch=lambda step, rows=everybody: rows)
                one = replace(task, X=X[kept], y=task.y[kept], private=private, learning_rate=1.0)
                ends.append(built.train([one], Optimizer("sgd", 1.0, 0))[0].astype(np.float64))
            moved = np.linalg.norm(ends[0] - ends[1]) * task.private.divisor
            assert moved <= clip * (1 + 1e-5 * (precision == "float32") + 1e-9)


def test_the_rows_of_many_steps_are_gathered_together_but_never_more_than_there_are():
    batches = [[0, 2], [], [1], [0, 1, 2], [2], []]
    private = PrivateSteps(
        None, 1.0, 6, 1.0, 0.0, lambda step: np.array(batches[step], np.int64), lambda step, size: None
    )
    parts = list(of_private(private, 3))
    assert [(part.step, part.rows.tolist(), part.cuts) for part in parts] == [
        (0, [0, 2, 1], [(0, 2), (2, 2), (2, 3)]),
        (3, [0, 1, 2], [(0, 3)]),
        (4, [2], [(0, 1), (1, 1)]),
    ]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("patients", [[1] * 6, [3, 1, 2, 1]])
def test_a_module_takes_the_steps_of_the_same_perceptron(classes, patients):
    by_hand, by_row = model("mlp", classes, hidden=[4]), module(Perceptron, classes)
    task = task_of(by_hand, classes, patients, weighted=True)
    for optimizer in ("sgd", "adam"):
        solver = Optimizer(optimizer, 0.2, 2, 0.05)
        assert by_row.train([task], solver)[0] == pytest.approx(by_hand.train([task], solver)[0], abs=1e-9)


def test_what_is_no_sum_over_rows_says_so():
    assert module(Perceptron).unclippable is None
    assert module(Normed).unclippable == "normalises by the rows of a batch"
    assert module(Dropping).unclippable == "draws random numbers when it trains"


def test_rows_without_weights_count_once():
    built = module(Perceptron)
    task = task_of(built, 2, [1] * 6)
    plain, ones = (built.clipped_sum(task.start, task.X, task.y, w, None, 0.3) for w in (None, np.ones(6)))
    assert plain.any()
    assert plain.tolist() == ones.tolist()


def test_real_labels_are_not_cut_to_whole_numbers():
    built, X, y = model(nn.Linear, 0), np.eye(3, FEATURES) + 1, np.array([0.5, -1.25, 2.75])
    total = built.clipped_sum(np.zeros(FEATURES + 1), X, y, None, None, 1e9)
    assert total == pytest.approx([*(-y @ X), -y.sum()], abs=1e-12)


def test_rows_of_a_patient_are_never_cut_apart():
    assert chunks(np.array([0, 0, 0, 1, 2, 2, 3]), 3) == [(0, 3), (3, 6), (6, 7)]
    assert chunks(np.array([0, 0, 0]), 2) == [(0, 3)]
    assert chunks(np.zeros(0, np.int64), 2) == []


def test_streams_give_what_each_stream_gives():
    many = Streams(5, "dp_batch", 1, 2)
    for step in (0, 7, -1):
        assert (many.at(step).random(5) == stream(5, "dp_batch", 1, 2, step).random(5)).all()
        assert (
            many.at(step).integers(9, size=3, dtype=np.int32)
            == stream(5, "dp_batch", 1, 2, step).integers(9, size=3, dtype=np.int32)
        ).all()


@pytest.mark.parametrize("rate", [0.002, 0.05, 0.25, 0.4])
def test_each_toss_is_a_coin_of_its_own(rate):
    """Of 4,000 trials: every place falls so as often as its rate says, the last ones too, and pairs as its square."""
    tosses, trials = 60, 4000
    fallen = np.zeros((trials, tosses), np.bool_)
    for trial in range(trials):
        at = heads(stream(1, "coins", trial), tosses, rate)
        assert (np.diff(at) > 0).all()
        fallen[trial, at] = True
    for each, chance in (
        (fallen, rate),
        (fallen[:, 1:] & fallen[:, :-1], rate**2),
        (fallen[:, 7:] & fallen[:, :-7], rate**2),
    ):
        share, spread = each.mean(axis=0), (chance * (1 - chance) / trials) ** 0.5
        assert np.abs(share - chance).max() < 4.5 * spread + 1 / trials
        assert abs(share.mean() - chance) < 4.5 * spread / (tosses / 2) ** 0.5


def test_rates_of_one_and_tosses_of_nobody_need_no_coins():
    assert heads(stream(1, "coins"), 4, 1.0).tolist() == [0, 1, 2, 3]
    assert heads(stream(1, "coins"), 0, 0.1).tolist() == []
    assert Coins(stream(1, "coins"), 0, 0.1, 3, None)(2).tolist() == []


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_the_rows_of_a_step_are_all_rows_of_the_patients_that_it_draws(rate):
    patient = np.repeat(np.arange(6), [3, 1, 2, 5, 1, 4])
    people, rows = (Coins(stream(2, "coins"), 6, rate, 40, patient_of_row) for patient_of_row in (None, patient))
    assert len({len(people(step)) for step in range(40)}) > (rate < 1)
    for step in range(40):
        assert rows(step).tolist() == np.flatnonzero(np.isin(patient, people(step))).tolist()
    assert [people(step).tolist() for step in range(40)] == [
        (each - 6 * step).tolist()
        for step in range(40)
        for each in [np.array([at for at in heads(stream(2, "coins"), 240, rate) if at // 6 == step])]
    ]


@pytest.mark.parametrize("patients", [[1] * 6, [3, 1, 2, 1]])
def test_the_gradient_of_a_contrastive_term_is_clipped_with_that_of_the_loss(patients):
    """By hand: each patient's gradient from plain steps on its rows alone, shortened, and all added up."""
    built, clip = model("mlp", 3, hidden=[4]), 0.4
    task = task_of(built, 3, patients, steps=1, rate=1.0, clip=clip, multiplier=0.0)
    rng = np.random.default_rng(5)
    previous, received = (rng.normal(size=built.layout.size) for _ in range(2))
    task = replace(task, contrast=ContrastTerm(2.0, 0.5, received, previous), learning_rate=1.0)
    total, lengths, once = np.zeros(built.layout.size), [], Optimizer("sgd", 1.0, 0)
    owner = np.repeat(np.arange(len(patients)), patients)
    for who in range(len(patients)):
        theirs = owner == who
        plain = replace(task, X=task.X[theirs], y=task.y[theirs], private=None)
        gradient = (task.start - built.train([plain], once)[0]) * theirs.sum()  # a plain step is by the mean of rows
        lengths.append(np.linalg.norm(gradient))
        total += gradient * min(1.0, clip / lengths[-1])
    assert min(lengths) < clip < max(lengths) or min(lengths) > clip
    step = task.start - built.train([task], once)[0]
    assert step * task.private.divisor == pytest.approx(total, abs=1e-9)
    without = task.start - built.train([replace(task, contrast=None)], once)[0]
    assert np.abs(step - without).max() > 1e-3
    with pytest.raises(ValueError, match="contrastive term cannot be clipped row by row"):
        one_by_one(built, task, once)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("clip", [0.05, 0.3, 10.0])
def test_rows_turned_by_their_labels_give_the_bits_of_rows_as_they_are(precision, clip):
    """Where rows have weights they are not turned, and a weight of 1 changes nothing. Later updates are as ever."""
    built = model("logistic_regression", 2, precision)
    turned = task_of(built, 2, [1] * 40, clip=clip)
    as_they_are = replace(turned, weights=np.ones(40))
    plain = replace(turned, private=None, batches=lambda epoch: stream(0, "batch", epoch))
    optimizer = Optimizer("sgd", 0.2, 8)
    first, after = built.train([turned, plain], optimizer)
    second, alone = built.train([as_they_are], optimizer)[0], built.train([plain], optimizer)[0]
    assert (first == second).all()
    assert (after == alone).all()
    assert (first != turned.start.astype(precision)).all()


def test_a_step_s_noise_is_the_multiplier_of_clips_over_the_divisor():
    target = np.array([1.0, 2.0, 3.0])
    private = SimpleNamespace(multiplier=0.5, clip=3.0, divisor=4.0, noise=lambda step, size: step * np.arange(3.0))
    add = noise_of(private, SimpleNamespace(target=target, scale=-0.25))
    add(2)
    assert target.tolist() == [1.0, 2.0 - 0.25 / 4 * 0.5 * 3 * 2, 3.0 - 0.25 / 4 * 0.5 * 3 * 4]


def test_buffers_hold_the_largest_batch_and_private_ones_are_of_any_rows():
    def task_of(rows: int, private: bool) -> Any:
        return SimpleNamespace(y=np.zeros(rows), works=True, private=private or None)

    assert largest([task_of(9, False)], 3) == (9, 3)
    assert largest([task_of(9, False), task_of(4, True)], 3) == (9, 4)
    assert largest([task_of(2, False)], 3) == (2, 2)
