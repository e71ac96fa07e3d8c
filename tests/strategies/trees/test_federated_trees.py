"""Trees from sums over hospitals are those of the pooled rows, to the last bit, and the engine serves them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.plugins import build_strategy
from raysim.config.sections.plugin_sections import ModelSection, StrategySection
from raysim.config.sections.secure import DropSection, SecureSection
from raysim.config.sections.training import StopSection
from raysim.core.errors import ConfigError, HospitalFailed
from raysim.data.build import build
from raysim.data.sources.table import Table
from raysim.data.split import Split
from raysim.engine.messages.plan import ModelSpec
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.job_checks import check_job
from raysim.storage.encoding import decode, encode
from raysim.strategies.base import State
from raysim.strategies.hospital_clusters.clust_psi import ClustPsi
from raysim.strategies.hospital_clusters.clustered import Clustered
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.personal.fine_tuning import FineTuning
from raysim.strategies.references.centralized import Centralized
from raysim.strategies.references.local import Local
from raysim.strategies.shared.personalization import LastSteps, Personalization
from raysim.strategies.trees.bagging import TreesBagging
from raysim.strategies.trees.base import hashed
from raysim.strategies.trees.cyclic import TreesCyclic
from raysim.strategies.trees.federated import FederatedTrees, PooledTrees
from raysim.trees.boosting import bins_of, boosted, starting
from raysim.trees.json_export import as_json
from raysim.trees.settings import TreeSettings, TreeTask
from raysim.trees.stored import Shape
from tests.conftest import job_of, run
from tests.equality import same_models
from tests.trees.tables import table_r

OPTIONS = {"trees": 4, "depth": 3, "rate": 0.5, "min_rows": 2, "bins": 16}


def model(**options) -> ModelSpec:
    return ModelSpec("boosted_trees", None, OPTIONS | options, "default")


def rows_of(n=120, seed=0):
    """A table with missing numbers, a column of texts, and labels that both decide."""
    rng = np.random.default_rng(seed)
    x, z, ward = rng.normal(size=n).round(2), rng.integers(0, 4, n).astype(float), rng.integers(0, 4, n)
    x[rng.random(n) < 0.15] = np.nan
    y = (np.nan_to_num(x) + (ward == 2) + rng.normal(size=n) * 0.5 > 0.3).astype(int)
    wards = np.array(["north", "south", "east", None], object)[ward]
    return pd.DataFrame({"x": x, "z": z, "ward": wards, "died": y, "stay": (3 * y + rng.random(n)) * 40})


def federation_of(tmp_path, table, silos, label="died", name="rows", **split):
    table = table.assign(home=[f"h{s:03d}" for s in silos]).drop(columns={"died", "stay"} - {label})
    path = tmp_path / f"{name}.csv"
    table.to_csv(path, index=False)
    task = "regression" if label == "stay" else "classification"
    return build(Table(path=path, silo="home", label=label, task=task), Split(**split), "raw")


def trees_of(outcome, federation, **options):
    """The trees that the server has, as JSON."""
    task = TreeTask(TreeSettings(**OPTIONS | options), federation.levels, len(federation.classes))
    return as_json(Shape(task).forest(outcome.models[0]), federation.features)


@pytest.fixture
def three(tmp_path):
    return federation_of(tmp_path, rows_of(), np.arange(120) % 3)


@pytest.mark.parametrize(
    ("options", "label"),
    [({}, "z"), ({"edges": "exact"}, "died"), ({"row_share": 0.7, "column_share": 0.5}, "stay")],
)
def test_same_trees_for_pooled_rows_and_any_placement(tmp_path, label, options):
    table = rows_of() if label != "z" else rows_of().rename(columns={"died": "q", "z": "died"})
    federation = federation_of(tmp_path, table, np.arange(120) % 5, "died" if label == "z" else label)
    alone = run(federation, job_of(federation, FederatedTrees(), rounds=4, model=model(**options)), 1)
    pooled = run(federation, job_of(federation, PooledTrees(), rounds=4, model=model(**options)), 2)
    spread = run(federation, job_of(federation, FederatedTrees(), rounds=4, model=model(**options)), 3)
    same_models(alone, spread)
    np.testing.assert_array_equal(alone.models, pooled.models)
    assert len(trees_of(alone, federation, **options)["trees"]) == (16 if label == "z" else 4)
    assert alone.metrics["global"][federation.task.headline] == pooled.metrics["global"][federation.task.headline]


def test_same_json_for_one_hospital_a_row_and_shuffled_rows(tmp_path):
    """The split draws other rows in other hospitals, so that here all rows are for training."""
    table = rows_of(60)
    order = np.random.default_rng(5).permutation(60)
    made = []
    for name, rows, silos in (
        ("one", table, np.zeros(60, int)),
        ("three", table, np.arange(60) % 3),
        ("each", table, np.arange(60)),
        ("mixed", table.iloc[order], np.arange(60) % 7),
    ):
        part = rows.assign(part="train")
        extra = rows_of(3, seed=9).assign(part="test")
        extra["ward"] = ["north", "south", "east"]
        both = pd.concat([part, extra])
        federation = federation_of(
            tmp_path, both, np.concatenate([silos, np.full(3, silos.max() + 1)]), name=name, column="part"
        )
        job = job_of(federation, FederatedTrees(), rounds=4, model=model(row_share=0.6))
        made.append(trees_of(run(federation, job, 2), federation, row_share=0.6))
    assert made[0]["trees"][0]["nodes"][0]["rows"] < 60
    assert made[0] == made[1] == made[2] == made[3]


@pytest.mark.parametrize("mode", ["model", "execute"])
def test_masks_change_no_bit(three, mode):
    job = job_of(three, FederatedTrees(), rounds=4, model=model())
    hidden = run(three, replace(job, secure=SecureSection(mode=mode)), 2)
    same_models(run(three, job, 1), hidden)


def test_golden_trees_through_the_engine(tmp_path):
    X, y = table_r()
    table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(died=y, stay=0.0, part="train")
    table = pd.concat([table, table.iloc[:3].assign(part="test")])
    federation = federation_of(tmp_path, table, np.repeat([0, 1, 2, 3], [8, 8, 8, 3]), column="part")
    options = {"trees": 3, "depth": 2, "rate": 0.3, "min_rows": 1, "bins": 64, "edges": "exact"}
    outcome = run(federation, job_of(federation, FederatedTrees(), rounds=3, model=model(**options)), 1)
    task = TreeTask(TreeSettings(**options), (0, 0, 0), 2)
    assert trees_of(outcome, federation, **options) == as_json(boosted(task, X, y), federation.features)


def test_references_grow_the_same_trees_as_functions(three):
    task = TreeTask(TreeSettings(**OPTIONS), three.levels, 2)
    alone = run(three, job_of(three, Local().with_trees(), model=model(), rounds=4), 2)
    assert alone.rounds_run == 1
    for h in range(3):
        rows = three.rows(h, "train")
        X, y = three.X[rows], three.y[rows]
        np.testing.assert_array_equal(alone.own_models[h], Shape(task).vector(boosted(task, X, y)))
    assert isinstance(Centralized().with_trees(), PooledTrees)


def test_fine_tuning_goes_on_from_the_federated_margins(three):
    job = job_of(three, FineTuning().with_trees(), rounds=4, model=model(own_trees=6))
    outcome = run(three, job, 1)
    task = TreeTask(TreeSettings(**OPTIONS, own_trees=6), three.levels, 2)
    rows, before = three.rows(1, "train"), Shape(task).forest(outcome.models[0])
    own = task.personal()
    after = boosted(own, three.X[rows], three.y[rows], bins_of(own, three.X[rows]), before)
    np.testing.assert_array_equal(outcome.own_models[1], Shape(task).vector(after))
    assert len(after) == len(before) + 6
    assert list(outcome.metrics) == ["global", "personal"]


def test_fine_tuning_after_the_last_round_is_that_of_the_strategy(three):
    last = LastSteps(fine_tuning=Personalization())
    by_engine = run(three, job_of(three, FederatedTrees(), rounds=4, model=model(), last=last), 2)
    same_models(by_engine, run(three, job_of(three, FineTuning().with_trees(), rounds=4, model=model()), 1))


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ({"name": "local", "solve": True}, r"^strategy\.solve: true solves regressions"),
        ({"name": "centralized", "solve": True}, r"^strategy\.solve: true solves regressions"),
        (
            {"name": "fine_tuning", "mu": 0.1},
            r"^strategy\.mu: 0\.1 is the weight of a proximal term, which boosted trees do not have",
        ),
    ],
)
def test_settings_that_trees_have_not_are_refused(strategy, said):
    section, trees = StrategySection(**strategy), ModelSection(name="boosted_trees")
    build_strategy(section)
    with pytest.raises(ConfigError, match=said):
        build_strategy(section, model=trees)


def test_bagging_appends_a_tree_of_every_hospital(three):
    outcome = run(three, job_of(three, TreesBagging(), rounds=4, model=model(trees=6)), 2)
    assert outcome.rounds_run == 2
    forest = Shape(TreeTask(TreeSettings(**OPTIONS | {"trees": 6}), three.levels, 2)).forest(outcome.models[0])
    assert forest.rows[:3, 0].tolist() == three.sizes("train").tolist()
    unscaled = run(three, job_of(three, TreesBagging("none"), rounds=4, model=model(trees=6)), 1)
    first = Shape(TreeTask(TreeSettings(**OPTIONS | {"trees": 6}), three.levels, 2)).forest(unscaled.models[0])
    np.testing.assert_array_equal(forest.value[:3], np.rint(first.value[:3] / 3))


def test_cyclic_training_lets_each_hospital_grow_a_tree(three):
    outcome = run(three, job_of(three, TreesCyclic(), rounds=4, model=model()), 2)
    forest = Shape(TreeTask(TreeSettings(**OPTIONS), three.levels, 2)).forest(outcome.models[0])
    assert sorted(forest.rows[:3, 0].tolist()) == sorted(three.sizes("train").tolist())
    assert forest.rows[3, 0] == forest.rows[0, 0]


def test_bytes_of_histograms(tmp_path):
    """24 bytes for each bin of the root and of one of each pair of children that can be split further."""
    federation = federation_of(tmp_path, rows_of(400), np.arange(400) % 4)
    outcome = run(federation, job_of(federation, FederatedTrees(), rounds=3, model=model(min_rows=1)), 2)
    task = TreeTask(TreeSettings(**OPTIONS), federation.levels, 2)
    width = bins_of(task, federation.X[np.concatenate([np.r_[federation.rows(h, "train")] for h in range(4)])]).width
    for t, kind, _, sent, _ in outcome.ledger.entries:
        if kind == "histograms" and t == 2:
            assert (sent <= 24 * width * 4).all()
    total = [sum(int(b[0]) for t, kind, _, b, _ in outcome.ledger.entries if (t, kind) == (2, "histograms"))]
    assert total == [24 * width * 4]


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        (
            FedAvg(),
            r"^strategy\.name: 'FedAvg' cannot grow boosted trees; choose one of centr.*, or another model\.name$",
        ),
        (FederatedTrees(), None),
    ],
)
def test_what_takes_trees(three, strategy, said):
    job = job_of(three, strategy, model=model())
    if said is None:
        check_job(job, three)
        with pytest.raises(
            ConfigError, match=r"^model\.name: strategy 'FederatedTrees' grows trees; write model\.name"
        ):
            check_job(job_of(three, strategy), three)
        return
    with pytest.raises(ConfigError, match=said):
        check_job(job, three)


@pytest.mark.parametrize("strategy", [FederatedTrees(), PooledTrees(), Local().with_trees(), TreesCyclic()])
@pytest.mark.parametrize("loss", ["poisson", "squared"])
def test_a_loss_of_numbers_is_refused_for_classes(three, strategy, loss):
    with pytest.raises(
        ConfigError, match=rf"^model\.loss: {loss} is for a label that is a number, and data\.label has 2"
    ):
        check_job(job_of(three, strategy, model=model(loss=loss)), three)


@pytest.mark.parametrize("strategy", [FederatedTrees(), Local().with_trees(), TreesBagging()])
def test_labels_that_are_not_counts_are_refused(tmp_path, strategy):
    table = rows_of().assign(stay=lambda rows: rows["stay"] - 100.0)
    made = federation_of(tmp_path, table, np.arange(120) % 3, "stay")
    job = job_of(made, strategy, rounds=4, model=model(loss="poisson"))
    with pytest.raises(HospitalFailed, match=r"hospital 'h000' .*model.loss: poisson is for labels that are whole"):
        run(made, job, 1)


def test_one_class_is_said_in_a_line(tmp_path):
    table = rows_of().assign(part="train", died=0)
    table.loc[:2, ["part", "died"]] = ["test", 1]
    federation = federation_of(tmp_path, table, np.arange(120) % 3, column="part")
    with pytest.raises(Exception, match="a class has no training row"):
        run(federation, job_of(federation, FederatedTrees(), model=model()), 1)


def test_hashed_rows_are_uniform_and_their_own():
    numbers = hashed(3, 5, np.arange(20_000))
    assert abs(numbers.mean() - 0.5) < 0.01
    assert len(np.unique(numbers)) == 20_000
    assert abs(np.corrcoef(numbers, hashed(3, 6, np.arange(20_000)))[0, 1]) < 0.03
    assert (hashed(3, 5, np.array([7])) == numbers[7]).all()


@pytest.mark.parametrize("clustering", [Clustered(clusters=2), ClustPsi(clusters=2)])
def test_trees_by_cluster_are_those_of_each_cluster(tmp_path, clustering):
    """They are grown on its hospitals' rows, from the edges and the first margins of all."""
    federation = federation_of(tmp_path, rows_of(240), np.arange(240) % 6)
    job = job_of(federation, clustering.with_trees(), rounds=4, model=model())
    outcome = run(federation, job, 2)
    same_models(outcome, run(federation, job, 1))
    task = TreeTask(TreeSettings(**OPTIONS), federation.levels, 2)
    everyone = [np.r_[federation.rows(h, "train")] for h in range(6)]
    X, y = federation.X[np.concatenate(everyone)], federation.y[np.concatenate(everyone)]
    for row in (1, 2):
        rows = np.concatenate([everyone[h] for h in np.flatnonzero(outcome.cluster == row)])
        alone = boosted(task, federation.X[rows], federation.y[rows], bins_of(task, X), starting(task, y))
        np.testing.assert_array_equal(outcome.models[row], Shape(task).vector(alone))


class Killed(Exception):
    """The run is killed."""


class Mortal(LocalPool):
    """A pool that dies at its n-th message."""

    left = 10**9

    def round(self, plan, memory):
        self.left -= 1
        if self.left < 0:
            raise Killed
        return super().round(plan, memory)


def test_early_stopping_keeps_the_best_number_of_trees(tmp_path):
    federation = federation_of(tmp_path, rows_of(400), np.arange(400) % 3, train=0.5, validation=0.25, test=0.25)
    job = job_of(federation, FederatedTrees(), rounds=30, model=model(trees=30, rate=1.0))
    outcome = run(federation, replace(job, stop=StopSection(patience=3)), 2)
    assert outcome.stopped is not None
    assert outcome.rounds_run < 30
    whole = run(federation, job, 1)
    task = TreeTask(TreeSettings(**OPTIONS | {"trees": 30, "rate": 1.0}), federation.levels, 2)
    best, all_trees = (Shape(task).forest(each.models[0]) for each in (outcome, whole))
    assert len(best) == outcome.stopped.served == outcome.rounds_run - 3
    assert len(all_trees) == 30
    np.testing.assert_array_equal(best.value, all_trees.value[: len(best)])
    kinds = {kind for _, kind, _, _, _ in outcome.ledger.entries}
    assert "validation_loss" in kinds


def traffic_of(tmp_path, strategy, label="died"):
    """The bytes down and up of 6 rounds with early stopping and without it, and those down of its set-up."""
    made = federation_of(tmp_path, rows_of(400), np.arange(400) % 3, label, train=0.5, validation=0.25, test=0.25)
    job = job_of(made, strategy, rounds=6, model=model(trees=6))
    both = stopping, plain = run(made, replace(job, stop=StopSection(patience=6)), 2), run(made, job, 2)
    assert stopping.stopped is not None
    assert stopping.rounds_run == plain.rounds_run
    moved = [[sum(getattr(row, name) for row in each.rounds) for name in ("bytes_down", "bytes_up")] for each in both]
    return *moved, stopping.setup.down - plain.setup.down


@pytest.mark.parametrize(
    ("strategy", "label"), [(FederatedTrees(), "died"), (Clustered(clusters=2).with_trees(), "stay")]
)
def test_bytes_of_early_stopping(tmp_path, strategy, label):
    """A hospital receives each tree once, in all one more than without checks, and sends two numbers a round."""
    (down, up), (plain_down, plain_up), setup = traffic_of(tmp_path, strategy, label)
    splits, bins = 2**3 - 1, OPTIONS["bins"] + 1  # the last is of missing values
    assert down - plain_down == 3 * (splits * (2 + math.ceil(bins / 8)) + 8 * (2 * splits + 1))
    assert up - plain_up == 6 * 3 * 16
    assert not setup  # before the first round there is no tree


def until_stopped(loss_of, most, patience, tolerance):
    """The losses with 0, 1, ... trees, at most ``most``, until they no longer fall."""
    losses, fallen = [], 0
    for count in range(most + 1):
        losses.append(loss_of(count))
        if losses[count] < losses[fallen] - tolerance * losses[0]:
            fallen = count
        if count - fallen == patience:
            break
    return losses


@pytest.mark.parametrize("label", ["died", "z"])
def test_local_trees_stop_by_the_hospitals_own_validation_rows(tmp_path, label):
    """As a loop that grows one tree more each time and scores the validation rows with all of them."""
    made = federation_of(
        tmp_path,
        rows_of(2000),
        np.where(np.arange(2000) < 100, 3, np.arange(2000) % 3),
        label,
        train=0.5,
        validation=0.25,
        test=0.25,
    )
    options, patience, tolerance = {"trees": 30, "rate": 1.0}, 4, 0.01
    job = job_of(made, Local().with_trees(), rounds=1, model=model(**options))
    outcome = run(made, replace(job, stop=StopSection(patience=patience, tolerance=tolerance)), 2)
    task = TreeTask(TreeSettings(**OPTIONS | options), made.levels, len(made.classes))
    served, bound = Shape(task), model(**options).bind(made, "cpu", "float64")
    counts = []
    for hospital in range(4):
        train, held = (made.rows(hospital, part) for part in ("train", "validation"))
        X, y = made.X[train], made.y[train]
        whole = boosted(task, X, y, bins_of(task, X), starting(task, y))

        def loss_of(count, whole=whole, held=held):
            vector = served.vector(whole.first(count * task.outputs)) if count else np.zeros(served.size)
            return bound.row_losses(bound.logits(vector, made.X[held]), made.y[held]).mean()

        losses = until_stopped(loss_of, 30, patience, tolerance)
        # The last hospital has too few validation rows to decide.
        best = 1 + int(np.argmin(losses[1:])) if hospital < 3 else 30
        counts.append(best)
        mine = served.forest(outcome.own_models[hospital])
        assert len(mine) == best * task.outputs
        np.testing.assert_array_equal(mine.value, whole.first(len(mine)).value)
    assert max(counts[:3]) < 30


@pytest.mark.parametrize("label", ["stay", "z"])
def test_own_trees_stop_by_the_hospitals_own_validation_rows(tmp_path, label):
    """As a loop from the federated trees, which a hospital keeps as they are if no tree of its own is better."""
    silos = np.where(np.arange(2000) < 100, 3, np.arange(2000) % 3)
    made = federation_of(tmp_path, rows_of(2000), silos, label, train=0.5, validation=0.25, test=0.25)
    options, patience, tolerance = {"trees": 12, "rate": 1.0, "own_trees": 40}, 4, 0.001
    job = job_of(made, FineTuning().with_trees(), rounds=12, model=model(**options))
    outcome = run(made, replace(job, stop=StopSection(patience=patience, tolerance=tolerance)), 2)
    task = TreeTask(TreeSettings(**OPTIONS | options), made.levels, len(made.classes))
    served, bound = Shape(task), model(**options).bind(made, "cpu", "float64")
    before, own, counts = served.forest(outcome.models[0]), task.personal(), []
    for hospital in range(4):
        train, held = (made.rows(hospital, part) for part in ("train", "validation"))
        X, y = made.X[train], made.y[train]
        whole = boosted(own, X, y, bins_of(own, X), before)

        def loss_of(count, whole=whole, held=held):
            vector = served.vector(whole.first(len(before) + count * task.outputs))
            return bound.row_losses(bound.logits(vector, made.X[held]), made.y[held]).mean()

        # The last hospital has too few validation rows to decide.
        best = int(np.argmin(until_stopped(loss_of, 40, patience, tolerance))) if hospital < 3 else 40
        counts.append(best)
        mine = served.forest(outcome.own_models[hospital])
        assert len(mine) == len(before) + best * task.outputs
        np.testing.assert_array_equal(mine.value, whole.first(len(mine)).value)
    assert min(counts) == 0 < counts[2] < 40


def bytes_of(trees: int) -> int:
    """The bytes of whole trees."""
    return 8 * Shape(TreeTask(TreeSettings(**OPTIONS | {"trees": trees, "own_trees": 0}), (0, 0, 3), 2)).size


@pytest.mark.parametrize(("strategy", "trees"), [(TreesCyclic(), 1), (TreesBagging(), 3)])
def test_bytes_of_early_stopping_for_whole_trees(tmp_path, strategy, trees):
    """After each round hospitals receive the trees of this round, and not the model."""
    (down, up), (plain_down, plain_up), setup = traffic_of(tmp_path, strategy)
    rounds = 6 // trees
    # The calls send no tree again: neither those of the last round nor, in cyclic training, those since the last turn.
    bagging = isinstance(strategy, TreesBagging)
    calls = (rounds - 1) * 3 * bytes_of(trees) if bagging else bytes_of(1) + bytes_of(2) + 3 * bytes_of(3)
    assert down - plain_down == rounds * 3 * bytes_of(trees) - calls
    assert up - plain_up == rounds * 3 * 16
    assert not setup


def test_a_hospital_in_turn_receives_trees_with_the_call_only_if_no_check_has_brought_them(tmp_path):
    silos = np.where(np.arange(400) < 1, 3, np.arange(400) % 3)
    made = federation_of(tmp_path, rows_of(400), silos, train=0.5, validation=0.25, test=0.25)
    assert (made.sizes("validation") > 0).tolist() == [True, True, True, False]
    job = job_of(made, TreesCyclic(), rounds=8, model=model(trees=8))
    stopping, plain = run(made, replace(job, stop=StopSection(patience=8)), 2), run(made, job, 2)
    assert [row.bytes_up for row in stopping.rounds] == [row.bytes_up + 3 * 16 for row in plain.rounds]
    shape = Shape(TreeTask(TreeSettings(**OPTIONS | {"trees": 8}), made.levels, 2))
    served, whole = (shape.forest(each.models[0]) for each in (stopping, plain))
    np.testing.assert_array_equal(served.value, whole.value[: len(served)])
    more = [a.bytes_down - b.bytes_down for a, b in zip(stopping.rounds, plain.rounds, strict=True)]
    lacked = [0, *[bytes_of(min(4, steps)) for steps in range(1, 8)]]
    lacked[4] = 0  # the second turn of the hospital without validation rows, which begins; no check was for it
    assert more == [3 * bytes_of(1) - known for known in lacked]


@pytest.mark.parametrize("strategy", [TreesCyclic(), TreesBagging()])
def test_hospitals_receive_only_the_trees_that_they_lack(three, strategy):
    outcome = run(three, job_of(three, strategy, rounds=9, model=model(trees=9)), 2)
    down = [row.bytes_down for row in outcome.rounds]
    if isinstance(strategy, TreesBagging):
        assert down[1:] == [3 * bytes_of(3)] * 2
    else:
        edges = down[2] - bytes_of(2)
        assert 0 < edges <= 8 * 2 * (OPTIONS["bins"] - 1)
        assert down[1:] == [bytes_of(1) + edges, bytes_of(2) + edges, *[bytes_of(3)] * 6]
    whole = run(three, job_of(three, strategy, rounds=9, model=model(trees=9)), 1)
    same_models(outcome, whole)


def test_bytes_of_early_stopping_when_rounds_are_repeated(tmp_path):
    """If a round is repeated because a hospital was lost, hospitals do not receive the last tree again."""
    made = federation_of(tmp_path, rows_of(400), np.arange(400) % 5, train=0.5, validation=0.25, test=0.25)
    secure = SecureSection(drop=DropSection(mask=0.03))
    job = replace(job_of(made, FederatedTrees(), rounds=8, model=model(trees=8)), secure=secure)
    stopping, plain = run(made, replace(job, stop=StopSection(patience=8)), 2), run(made, job, 2)
    splits, bins = 2**3 - 1, OPTIONS["bins"] + 1
    tree = 5 * (splits * (2 + math.ceil(bins / 8)) + 8 * (2 * splits + 1))
    # A call sends the last tree once more in a repeated round, but not where a check has sent it.
    again = len([t for t, row in enumerate(plain.rounds) if t and row.bytes_down < plain.rounds[2].bytes_down])
    assert again == 1
    down = [sum(row.bytes_down for row in each.rounds) for each in (stopping, plain)]
    assert down[0] - down[1] == (1 - again) * tree


def test_all_trees_are_grown_though_fewer_are_best(tmp_path):
    """More rounds would change nothing, so no advice says to train longer."""
    federation = federation_of(tmp_path, rows_of(400), np.arange(400) % 3, train=0.5, validation=0.25, test=0.25)
    job = job_of(federation, FederatedTrees(), rounds=12, model=model(trees=12, rate=1.0))
    outcome = run(federation, replace(job, stop=StopSection(patience=12)), 1)
    assert outcome.stopped is not None
    assert outcome.stopped.served < outcome.rounds_run == 12
    assert outcome.ended
    assert outcome.convergence is None


class Watching(LocalPool):
    """A pool that notes of each message whether hospitals only read what they remember, and how many return it."""

    def __init__(self, *args):
        super().__init__(*args)
        self.seen = []

    def round(self, plan, memory):
        partials, later = super().round(plan, memory)
        self.seen.append((plan.call is not None and plan.call.program.name, plan.only_reads, sum(map(len, later))))
        return partials, later


def test_levels_below_the_first_return_no_memory(three):
    pool = Watching(Placement(balance(three.totals, 2), 1, 0), "cpu")
    *_, outcome = JobRun(pool, job_of(three, FederatedTrees(), rounds=4, model=model())).events()
    levels = [(reads, returned) for name, reads, returned in pool.seen if name == "histograms"]
    assert set(levels) == {(False, 3), (True, 0)}
    assert sum(reads for reads, _ in levels) > 4
    same_models(outcome, run(three, job_of(three, FederatedTrees(), rounds=4, model=model()), 1))


@pytest.mark.parametrize("messages", [9, 14, 15, 16])
def test_killed_in_the_middle_of_a_tree_it_goes_on_with_the_same_bits(three, messages):
    job = job_of(three, FederatedTrees(), rounds=4, model=model())
    whole = run(three, job, 1)
    pool = Mortal(Placement(balance(three.totals, 2), 1, 0), "cpu")
    pool.left = messages
    events: list = []
    with pytest.raises(Killed):
        events.extend(JobRun(pool, job).events(1))
    last = [event for event in events if isinstance(event, RunState)][-1]
    since, _ = decode(encode(last, "run", job.strategy), job.strategy)
    *_, outcome = JobRun(LocalPool(Placement(balance(three.totals, 3), 1, 0), "cpu"), job, since).events()
    same_models(whole, outcome)


def test_a_state_before_training_holds_no_tree(three):
    outcome = run(three, job_of(three, FederatedTrees(), rounds=0, model=model()), 1)
    assert not outcome.models.any()
    assert isinstance(State(models=outcome.models), State)
