"""FedPer and FedRep: identity 21, what stays at a hospital, and FedRep's two steps by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from raysim.core.errors import ConfigError, TrainingDiverged
from raysim.data.federation import Federation
from raysim.engine.messages.plan import ModelSpec
from raysim.engine.server.job_checks import check_job
from raysim.storage.served import named_tensors, served
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.personal.fedper import FedPer
from raysim.strategies.personal.fedrep import FedRep
from raysim.strategies.personal.fine_tuning import FineTuning
from raysim.strategies.personal.heads import head_mask, layers
from raysim.strategies.references.local import Local
from raysim.strategies.selections.sampling import Uniform
from raysim.training.base import Layout, Optimizer, Task
from raysim.training.kernels.linear import LinearModel
from tests.conftest import MakeFederation, job_of, run_strategy, store
from tests.strategies.contexts import hospital, view_of
from tests.strategies.one_model.test_scaffold import gradient
from tests.strategies.personal.test_ditto import cohorts
from tests.strategies.test_identities import SIZES, assert_different, assert_same

BOTH = pytest.mark.parametrize("strategy", [FedPer(), FedRep()], ids=["fedper", "fedrep"])
MLP = ModelSpec("mlp", None, {"hidden": [3]}, "default")
EVERYTHING = ("weight", "bias")


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


@BOTH
@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_21_an_empty_head_is_fedavg(strategy, weights, federation):
    run = {"rounds": 3, "epochs": 2, "selection": Uniform(0.5, 2), "model": MLP}
    outcome = run_strategy(federation, replace(strategy, head=(), weights=weights), **run)
    fedavg = run_strategy(federation, FedAvg(weights=weights), **run)
    assert_same(outcome.models, fedavg.models)
    np.testing.assert_array_equal(outcome.figures["personal"], fedavg.figures["global"])
    assert [row.bytes_up for row in outcome.rounds] == [row.bytes_up for row in fedavg.rounds]
    assert_different(run_strategy(federation, strategy, **run).models, fedavg.models)


@BOTH
def test_21_an_empty_body_is_local_training(strategy, federation):
    run = {"rounds": 3, "epochs": 2}
    outcome, local = (
        run_strategy(federation, replace(strategy, head=EVERYTHING), **run),
        run_strategy(federation, Local(), **run),
    )
    assert outcome.own_models.keys() == local.own_models.keys()
    for h, theta in local.own_models.items():
        assert_same(outcome.own_models[h], theta)
    assert (outcome.models == 0).all()
    np.testing.assert_array_equal(outcome.figures["personal"], local.figures["personal"])
    assert [row.bytes_down for row in outcome.rounds] == [0] * 3


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_a_head_that_is_trained_alone_has_its_own_optimiser_and_rate(optimizer, federation):
    """With an empty body it is all that FedRep trains."""
    own = {"head": EVERYTHING, "head_optimizer": optimizer, "head_learning_rate": 0.03}
    local = run_strategy(federation, Local(), rounds=1, epochs=2, learning_rate=0.03, optimizer=optimizer)
    outcome = run_strategy(federation, FedRep(**own), rounds=1, epochs=2, learning_rate=0.7)
    for h, theta in local.own_models.items():
        assert_same(outcome.own_models[h], theta)
    assert_different(
        run_strategy(federation, FedRep(head=EVERYTHING), rounds=1, epochs=2).own_models[0], local.own_models[0]
    )
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(
            ValueError, match=r"head_learning_rate: .* is not (finite; give a finite number )?greater than 0"
        ):
            FedPer(head_learning_rate=wrong)


@BOTH
def test_21_an_empty_body_trains_in_the_rounds_in_which_a_hospital_is_sampled(strategy, federation):
    run = {"epochs": 2, "selection": Uniform(0.5, 1)}
    three = run_strategy(federation, replace(strategy, head=EVERYTHING), rounds=3, **run)
    two = run_strategy(federation, replace(strategy, head=EVERYTHING), rounds=2, **run)
    *_, (_, last) = cohorts(three)
    for h, theta in three.own_models.items():
        if h not in last:
            assert_same(theta, two.own_models[h])
    assert any(h in two.own_models and np.abs(three.own_models[h] - two.own_models[h]).max() > 1e-6 for h in last)


def test_fedper_by_hand(federation):
    """Full batches of everybody: a step on (body, own head) each, then the mean of the bodies by rows."""
    body, heads = np.zeros(3), np.zeros(len(SIZES))
    for _ in range(3):
        ends = []
        for h in range(len(SIZES)):
            theta = np.append(body, heads[h])
            for _ in range(2):
                theta = theta - 0.1 * gradient(federation, h, theta)
            ends.append(theta)
        body = np.average([theta[:3] for theta in ends], axis=0, weights=SIZES)
        heads = np.array([theta[3] for theta in ends])
    outcome = run_strategy(federation, FedPer(), rounds=3, epochs=2, batch_size=0)
    assert_same(outcome.models[0], np.append(body, 0.0))
    assert_same(np.array([outcome.own_models[h][3] for h in range(len(SIZES))]), heads)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_diverged_head_is_reported_though_it_stays_at_its_hospital(federation, monkeypatch, value):
    def trained(self: LinearModel, tasks: Sequence[Task], optimizer: Optimizer) -> NDArray[Any]:
        theta = train(self, tasks, optimizer)
        theta[:, -1] = [value if len(task.y) == SIZES[1] else -1.0 for task in tasks]
        return theta

    train = LinearModel.train
    monkeypatch.setattr(LinearModel, "train", trained)
    with pytest.raises(TrainingDiverged, match="hospital 'h1' diverge in round 1"):
        run_strategy(federation, FedPer(), rounds=2)


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_fedrep_by_hand(weights, federation):
    """The head for 3 full-batch steps under the received body, then the body for 2 under that head."""
    body, heads = np.zeros(3), np.zeros(len(SIZES))
    for _ in range(3):
        ends = []
        for h in range(len(SIZES)):
            theta = np.append(body, heads[h])
            for _ in range(3):
                theta[3] -= 0.1 * gradient(federation, h, theta)[3]
            for _ in range(2):
                theta[:3] -= 0.1 * gradient(federation, h, theta)[:3]
            ends.append(theta)
        body = np.average([theta[:3] for theta in ends], axis=0, weights=SIZES if weights == "samples" else None)
        heads = np.array([theta[3] for theta in ends])
    outcome = run_strategy(federation, FedRep(head_epochs=3, weights=weights), rounds=3, epochs=2, batch_size=0)
    assert_same(outcome.models[0], np.append(body, 0.0))
    assert_same(np.array([outcome.own_models[h][3] for h in range(len(SIZES))]), heads)


@pytest.mark.parametrize("cls", [FedPer, FedRep])
def test_the_head_is_fitted_to_the_last_body_and_kept(cls, federation):
    seen = []

    class Watched(cls):
        def personalize(self, view, state):
            seen.append(super().personalize(view, state))
            return seen[-1]

    run_strategy(federation, Watched(), rounds=1)
    run_strategy(federation, Watched(final_head_epochs=2), rounds=1)
    assert seen[0] is None
    last = seen[-1]
    assert (last.training.epochs, last.training.keep, last.upload) == (2, True, None)
    assert last.start.tolist() == [0] * len(SIZES)
    assert last.objective.frozen.tolist() == [True, True, True, False]


@pytest.mark.parametrize(("epochs", "phases"), [(0, 1), (1, 2), (None, 2)])
def test_the_head_is_trained_before_the_body_unless_for_no_epochs(epochs, phases, federation):
    seen = []

    class Watched(FedRep):
        def problem(self, view, state, ids):
            seen.append(super().problem(view, state, ids))
            return seen[-1]

    run_strategy(federation, Watched(head_epochs=epochs), rounds=1)
    assert [len(problem.chain) for problem in seen] == [phases]


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_no_head_epochs_keep_all_heads_at_their_start(optimizer, federation):
    run = {"rounds": 3, "epochs": 2, "model": MLP, "optimizer": optimizer, "learning_rate": 0.02}
    outcome = run_strategy(federation, FedRep(head_epochs=0), **run)
    start = run_strategy(federation, FedAvg(), **run | {"rounds": 0}).models[0]
    head = slice(outcome.layout.slices["layers.1.weight"].start, None)
    for theta in outcome.own_models.values():
        assert theta[head].tolist() == start[head].tolist()
    assert_different(outcome.models[0], start)


@BOTH
@pytest.mark.parametrize("model", [None, MLP], ids=["linear", "mlp"])
def test_the_head_never_leaves_a_hospital(strategy, model, federation):
    """The server's head is the common start's after every round, and only the body is paid for."""
    run = {"epochs": 2, "selection": Uniform(0.5, 2), "model": model}
    start = run_strategy(federation, FedAvg(), rounds=0, **run).models[0]
    outcome = run_strategy(federation, strategy, rounds=3, **run)
    assert outcome.private is not None
    expected = [False] * 3 + [True] if model is None else [False] * 12 + [True] * 8
    assert outcome.private.tolist() == expected
    assert outcome.models[0][outcome.private].tolist() == start[outcome.private].tolist()
    assert_different(outcome.models[0][~outcome.private], start[~outcome.private])
    body = int((~outcome.private).sum())
    assert [row.bytes_down for row in outcome.rounds] == [4 * 3 * body] * 3
    assert [row.bytes_up for row in outcome.rounds] == [4 * 3 * (body + 1)] * 3


@BOTH
def test_what_serves_a_hospital_is_the_last_body_with_its_own_head(strategy, federation):
    outcome = run_strategy(federation, strategy, rounds=2, epochs=2, selection=Uniform(0.4, 1), model=MLP)
    assert outcome.private is not None
    stored = named_tensors(served(federation, outcome, "float64").vectors, outcome.layout)
    for h, name in enumerate(federation.hospitals):
        theta = np.where(
            outcome.private, outcome.own_models[h] if h in outcome.own_models else outcome.models[0], outcome.models[0]
        )
        parts = outcome.layout.split(theta)
        rows = federation.rows(h, "test")
        z = np.maximum(federation.X[rows] @ parts["layers.0.weight"].T + parts["layers.0.bias"], 0)
        z = z @ parts["layers.1.weight"].T + parts["layers.1.bias"]
        assert outcome.untrained["personal"][h] == (h not in outcome.own_models)
        if len(z) and h in outcome.own_models:
            accuracy = (z.argmax(axis=1) == federation.y[rows]).mean()
            assert outcome.figures["personal"][h][figure("accuracy")] == pytest.approx(accuracy)
        if h in outcome.own_models:
            for tensor, values in parts.items():
                assert_same(stored[f"personal/{name}/{tensor}"], values)
    assert 0 < len(outcome.own_models) < len(SIZES)


def figure(name: str) -> int:
    from raysim.metrics.measures import FIGURES

    return FIGURES.index(name)


@BOTH
def test_final_epochs_fit_every_head_to_the_last_body_and_move_nothing_else(strategy, federation):
    run = {"rounds": 2, "selection": Uniform(0.3, 1), "batch_size": 0}
    before, after = (run_strategy(federation, replace(strategy, final_head_epochs=e), **run) for e in (0, 4))
    assert_same(after.models, before.models)
    assert len(before.own_models) < len(after.own_models) == len(SIZES)
    for h in range(len(SIZES)):
        theta = np.append(before.models[0][:3], before.own_models[h][3] if h in before.own_models else 0.0)
        for _ in range(4):
            theta[3] -= 0.1 * gradient(federation, h, theta)[3]
        assert_same(after.own_models[h][3:], theta[3:])


@BOTH
def test_heads_find_hospitals_that_differ_in_prevalence_alone(strategy, federate, tmp_path: Path):
    """A common score, and a cut of its own at each hospital: the bias is the head."""
    drawn = federate([200] * 6, [200] * 6, features=4, seed=2)
    score = drawn.X @ np.array([1.0, -1.0, 0.5, 0.0])
    labels = np.zeros(len(drawn.y), dtype=np.int64)
    for h in range(6):
        rows = slice(int(drawn.bounds[h, 0]), int(drawn.bounds[h, 3]))
        labels[rows] = score[rows] > (2.0 if h % 2 else -2.0)
    (tmp_path / "cuts").mkdir()
    federation = store(tmp_path / "cuts", drawn.X, labels, drawn.bounds)
    run = {"rounds": 10, "epochs": 3, "learning_rate": 0.5, "batch_size": 32}
    accuracy = run_strategy(federation, strategy, **run).metrics["personal"]["accuracy"]
    assert accuracy > run_strategy(federation, FedAvg(), **run).metrics["global"]["accuracy"] + 0.05
    assert accuracy > 0.9


class Deep(nn.Module):
    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_features, 4), nn.BatchNorm1d(4), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, n_outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.body(x))
        return out


@BOTH
def test_a_module_whose_head_is_named(strategy, federation):
    spec = ModelSpec(None, f"{__name__}.Deep", {}, "default")
    for head, expected in ((None, ["head.2"]), (("head",), ["head.0", "head.2"]), (("body.1",), ["body.1"])):
        how = replace(strategy, head=head)
        check_job(job_of(federation, how, model=spec), federation)
        outcome = run_strategy(federation, how, model=spec, rounds=1)
        assert outcome.private is not None
        inside = {name for name, part in outcome.layout.slices.items() if outcome.private[part].any()}
        assert inside == {name for name in outcome.layout.names if name.rpartition(".")[0] in expected}


class Normed(nn.Sequential):
    """Running statistics that no gradient moves stand between the two layers, and last among the tensors."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__(nn.Linear(n_features, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, n_outputs))


@BOTH
def test_the_head_is_the_last_layer_that_is_trained(strategy, federation):
    outcome = run_strategy(federation, strategy, model=ModelSpec(None, f"{__name__}.Normed", {}, "default"), rounds=1)
    assert outcome.layout.names[-2:] == ("1.running_mean", "1.running_var")
    inside = {name for name, part in outcome.layout.slices.items() if outcome.private[part].any()}
    assert inside == {"2.weight", "2.bias"}


@BOTH
@pytest.mark.parametrize("head", [("layers.2",), ("layer",), ("weight", "layers.0.weight")])
def test_a_head_that_the_model_does_not_have_is_refused_with_its_layers(strategy, head, federation):
    with pytest.raises(ConfigError, match=r"^strategy\.head: .*; it has layers\.0, layers\.1$"):
        check_job(job_of(federation, replace(strategy, head=head), model=MLP), federation)
    with pytest.raises(ConfigError, match=r"^strategy\.head: .*; it has weight, bias$"):
        check_job(job_of(federation, replace(strategy, head=("layers.1",))), federation)
    check_job(job_of(federation, replace(strategy, head=("layers.1", "layers.0.bias")), model=MLP), federation)


def test_fine_tuning_weighs_by_rows():
    view = view_of([hospital([3, 0]), hospital([5, 0]), hospital([1, 0])])
    problem = FineTuning().problem(view, FineTuning().setup(view), np.array([0, 2]))
    assert problem.upload.weight.tolist() == [0.75, 0.25]


def test_layers_go_by_all_but_the_last_part_of_a_name():
    names = ("embed.weight", "norm.weight", "norm.bias", "out.weight", "out.bias", "norm.running_mean")
    layout = Layout(names, ((2, 2), (2,), (2,), (1, 2), (1,), (2,)))
    assert list(layers(layout.slices)) == ["embed", "norm", "out"]
    view = view_of([hospital([1, 1])])
    object.__setattr__(view, "initial", np.zeros(layout.size))
    object.__setattr__(view, "parameters", layout.slices)
    assert np.flatnonzero(head_mask(view, None)).tolist() == [8, 9, 10]
    assert np.flatnonzero(head_mask(view, ("norm",))).tolist() == [4, 5, 6, 7, 11, 12]


@pytest.mark.parametrize(
    ("names", "head"),
    [
        (("out.scale", "out.weight", "out.bias"), [2]),
        (("first.weight", "second.weight", "second.bias"), [1, 2]),
        (("first.weight", "second.weight", "third.weight", "third.bias"), [2, 3]),
    ],
)
def test_the_head_is_the_last_tensor_of_one_layer_or_the_last_layer_of_several(names, head):
    layout = Layout(names, ((1,),) * len(names))
    view = view_of([hospital([1, 1])])
    object.__setattr__(view, "initial", np.zeros(layout.size))
    object.__setattr__(view, "parameters", layout.slices)
    assert np.flatnonzero(head_mask(view, None)).tolist() == head


@pytest.mark.parametrize("strategy", [FedPer, FedRep])
@pytest.mark.parametrize("bad", [{"final_head_epochs": -1}, {"weights": "rows"}, {"minimum_weight": -1.0}])
def test_impossible_settings_are_refused_by_name(strategy, bad):
    with pytest.raises(ValueError, match=f"^{next(iter(bad))}: "):
        strategy(**bad)
    with pytest.raises(ValueError, match=r"^head_epochs: "):
        FedRep(head_epochs=-1)


def test_a_head_of_nothing_is_none():
    view: Any = SimpleNamespace(parameters={"w": slice(0, 2)}, measured=frozenset(), initial=np.zeros(2))
    assert FedPer(head=()).private(view) is None
    mask = FedPer(head=("w",)).private(view)
    assert mask is not None
    assert mask.tolist() == [True, True]
