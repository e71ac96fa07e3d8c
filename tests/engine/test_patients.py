"""Groups of patients in the engine: entries trained and rows served by group, against plain loops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.core.errors import ConfigError, HospitalFailed, StrategyError
from raysim.data.federation import Federation
from raysim.engine.client import hospital_group as engine
from raysim.engine.measuring.divisions import HELD, Groups
from raysim.engine.server.coordinator import JobRun
from raysim.experiment.planning.plan import weigh
from raysim.strategies.base import LocalProblem, LocalTraining, RowGroups, State, Strategy, Unfit, Upload, group_sizes
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.selections.sampling import Uniform
from tests.conftest import MakeFederation, job_of, run_strategy, store
from tests.strategies.test_battery import same

SIZES, TESTED = [12, 7, 15, 0, 1, 9], [6, 5, 4, 7, 3, 0]


@dataclass(frozen=True)
class BySign:
    """Group 1 where the first value is above ``bound``."""

    bound: float = 0.0
    count: int = 2

    def assign(self, X: Any, observed: Any, hospital: int) -> Any:
        return (X[:, 0] > self.bound).astype(np.int64)


@dataclass(frozen=True)
class TwoGroups(Strategy):
    """Federated averaging of each group by itself; row 0 stays what it was."""

    bound: float = 0.0
    count: int = 2
    keep: bool = False

    def setup(self, view):
        sizes = group_sizes(view, BySign(self.bound))
        return Counted(np.repeat(view.initial[None], 3, axis=0), rows=sizes)

    def division(self, view, state):
        return BySign(self.bound, self.count)

    def problem(self, view, state, ids):
        rows = state.rows[ids][:, : self.count]
        at, group = np.nonzero(rows)
        n = rows[at, group]
        weight = n / np.bincount(group, weights=n, minlength=2)[group]
        return LocalProblem(
            start=1 + group,
            upload=Upload(weight, sum_index=group, sums=2, losses=True),
            training=LocalTraining(keep=self.keep),
            groups=RowGroups(ids[at], group, n),
        )

    def aggregate(self, view, state, update):
        return replace(state, models=np.vstack([state.models[:1], state.models[1:] + update.sums]))

    def serve(self, view, state):
        return {"group": np.tile([1, 2], (len(view.sizes), 1))}


@dataclass(frozen=True, eq=False, kw_only=True)
class Counted(State):
    rows: np.ndarray


@pytest.fixture
def federation(federate: MakeFederation, tmp_path) -> Federation:
    """Six hospitals: one without training rows, one without test rows, and one without patients of group 1."""
    drawn = federate(SIZES, TESTED, features=4)
    X = drawn.X.copy()
    rows = slice(*drawn.bounds[1, [0, 3]])
    X[rows, 0] = -np.abs(X[rows, 0])
    (tmp_path / "parted").mkdir()
    return store(tmp_path / "parted", X, drawn.y, drawn.bounds)


def steps(X: np.ndarray, y: np.ndarray, theta: np.ndarray, count: int, rate: float) -> np.ndarray:
    for _ in range(count):
        residual = 1 / (1 + np.exp(-(X @ theta[:-1] + theta[-1]))) - y
        theta = theta - rate * np.append(X.T @ residual / len(y), residual.mean())
    return theta


def test_two_groups_are_two_federations(federation: Federation):
    """Full batches: the same as a plain loop over hospitals and groups, models and figures."""
    outcome = run_strategy(federation, TwoGroups(), rounds=3, epochs=2, batch_size=0)
    theta = np.zeros((2, 5))
    for _ in range(3):
        moved, rows = np.zeros((2, 5)), np.zeros(2)
        for h in range(len(SIZES)):
            hospital_rows = federation.rows(h, "train")
            X, y = federation.X[hospital_rows].astype(np.float64), federation.y[hospital_rows]
            for g in range(2):
                inside = (X[:, 0] > 0) == bool(g)
                if inside.any():
                    trained = steps(X[inside], y[inside], theta[g], 2, 0.1)
                    moved[g] += inside.sum() * (trained - theta[g])
                    rows[g] += inside.sum()
        theta = theta + moved / rows[:, None]
    np.testing.assert_allclose(outcome.models[1:], theta, rtol=1e-10, atol=1e-12)
    assert outcome.clusters_of_patients is not None
    assert outcome.clusters_of_patients.sum(axis=1).tolist() == SIZES
    assert outcome.clusters_of_patients[1].tolist() == [7, 0]
    for h, tested in enumerate(TESTED):
        hospital_rows = federation.rows(h, "test")
        X, y = federation.X[hospital_rows].astype(np.float64), federation.y[hospital_rows]
        both = X @ theta[:, :-1].T + theta[:, -1]
        margins = np.where(X[:, 0] > 0, both[:, 1], both[:, 0])
        figures = dict(zip(federation.task.figures, outcome.figures["group"][h], strict=True))
        assert figures["n"] == tested
        if tested:
            assert figures["log_loss"] == pytest.approx((np.logaddexp(0, margins) - y * margins).mean())
            assert figures["accuracy"] == pytest.approx(((margins >= 0) == y).mean())


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_placement_changes_nothing(federation: Federation, precision):
    run = {"rounds": 3, "epochs": 2, "batch_size": 4, "precision": precision, "selection": Uniform(0.6, 2)}
    alone = run_strategy(federation, TwoGroups(), **run)
    for actors in (2, 6):
        same(alone, run_strategy(federation, TwoGroups(), actors=actors, **run))


def test_a_kernel_may_get_entries_one_by_one(federation: Federation, monkeypatch):
    run = {"rounds": 2, "epochs": 2, "batch_size": 4}
    alone = run_strategy(federation, TwoGroups(), **run)
    monkeypatch.setattr(engine, "CHUNK_BYTES", 1)
    same(alone, run_strategy(federation, TwoGroups(), **run))


def test_if_all_are_in_the_first_group_it_is_federated_averaging(federation: Federation):
    run = {"rounds": 3, "epochs": 2, "batch_size": 4, "selection": Uniform(0.6, 2)}
    outcome, fedavg = (
        run_strategy(federation, TwoGroups(bound=np.inf), **run),
        run_strategy(federation, FedAvg(), **run),
    )
    np.testing.assert_array_equal(outcome.models[1], fedavg.models[0])
    np.testing.assert_array_equal(outcome.figures["group"], fedavg.figures["global"])
    other = run_strategy(federation, TwoGroups(bound=-np.inf), **run)
    assert np.abs(other.models[2] - fedavg.models[0]).max() > 1e-6, "no two groups share a stream of batches"


def test_each_model_counts_each_way_and_a_hospital_sends_once(federation: Federation):
    outcome = run_strategy(federation, TwoGroups(), rounds=2, selection=Uniform(0.6, 2))
    assert outcome.clusters_of_patients is not None
    size, groups = outcome.layout.size, np.count_nonzero(outcome.clusters_of_patients, axis=1)
    messages = [sent for _, kind, _, sent, _ in outcome.ledger.entries if kind == "group_sizes"]
    assert [sent.tolist() for sent in messages] == [[4 * 2] * len(SIZES)], "how many rows are in each group, once"
    for row in outcome.rounds:
        ((ids, sent),) = [(i, s) for t, kind, i, s, _ in outcome.ledger.entries if (t, kind) == (row.round, "update")]
        assert len(set(ids.tolist())) == len(ids) == row.cohort_size
        assert sent.tolist() == (4 * groups[ids] * (size + 1)).tolist(), "a vector and a loss for each group"
        assert row.bytes_up == sent.sum()
        assert row.bytes_down == 4 * size * groups[ids].sum()


def test_a_plan_weighs_what_a_run_moves(federation: Federation):
    placement = Placement(balance(federation.totals, 2), 1, 0)
    job = job_of(federation, TwoGroups(), rounds=2, selection=Uniform(0.6, 2), every=0)
    traffic, first = weigh(job, placement), next(iter(JobRun(LocalPool(placement, "cpu"), job).events()))
    assert (traffic.cohort, traffic.down, traffic.up) == (first.cohort_size, first.bytes_down, first.bytes_up)


def test_no_row_is_kept_between_rounds(federation: Federation):
    """What a process holds of groups are their numbers, one a row, found out once for each division."""
    pool = LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu")
    for bound in range(HELD + 3):
        list(JobRun(pool, job_of(federation, TwoGroups(bound=bound / 10), rounds=2)).events())
    (group,) = pool._groups
    held = group._groups._held
    assert len(held) == HELD
    for by_hospital in held.values():
        assert [len(by_hospital[h]) for h in sorted(by_hospital)] == federation.totals.tolist()
        assert all(groups.dtype == np.int64 and groups.base is None for groups in by_hospital.values())


def test_a_division_is_asked_once_for_each_hospital(federation: Federation):
    asked: list[int] = []

    @dataclass(frozen=True)
    class Counting(BySign):
        def assign(self, X: Any, observed: Any, hospital: int) -> Any:
            asked.append(len(X))
            return super().assign(X, observed, hospital)

    import tests.engine.test_patients as here

    Counting.__qualname__ = "Counting"
    setattr(here, "Counting", Counting)  # noqa: B010 - so that its content identifies it
    groups = Groups()
    for _ in range(3):
        for part in ("train", "test"):
            rows = groups.rows(federation, Counting(), 0, part, 1)
            hospital_rows = federation.rows(0, part)
            assert rows.tolist() == (hospital_rows.start + np.flatnonzero(federation.X[hospital_rows, 0] > 0)).tolist()
    assert asked == [SIZES[0] + TESTED[0]]


def test_a_division_that_names_groups_that_there_are_not(federation: Federation):
    class Serving(TwoGroups):
        def serve(self, view, state):
            return {"global": np.zeros(len(view.sizes), dtype=np.int64)}

    with pytest.raises(HospitalFailed, match=r"hospital 'h0' failed .* must give a group number from 0 to 0"):
        run_strategy(federation, Serving(count=1))


def test_what_a_hospital_keeps_is_of_all_its_rows(federation: Federation):
    with pytest.raises(StrategyError, match=r"'TwoGroups', round 1: groups: .* cannot also store one result"):
        run_strategy(federation, TwoGroups(keep=True))


def test_a_federation_that_does_not_fit_is_a_line_for_the_user(federation: Federation):
    @dataclass(frozen=True)
    class Choosy(FedAvg):
        def setup(self, view):
            raise Unfit("colour: 'red' is not here; use blue")

    with pytest.raises(ConfigError, match=r"^strategy\.colour: 'red' is not here; use blue$"):
        run_strategy(federation, Choosy())


def test_it_survives_several_classes(federate: MakeFederation):
    outcome = run_strategy(federate([20, 25, 0], [9, 8, 7], classes=3), TwoGroups(), rounds=2)
    assert np.isfinite(outcome.figures["group"][:, 2]).all()
