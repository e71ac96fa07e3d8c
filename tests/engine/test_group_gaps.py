"""Gaps between patient groups within hospitals as runs measure them: placement, plain loops, exact tests, ledger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.sections.secure import SecureSection
from raysim.data.federation import Federation
from raysim.engine.job import Outcome
from raysim.engine.measuring.group_gaps import measure, rearranging
from raysim.engine.measuring.subgroups import grouping
from raysim.engine.messages.plan import ModelSpec
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.storage.encoding import decode, encode
from raysim.storage.finished import load_finished, save_finished
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.traffic.ledger import MEASURED
from tests.conftest import MakeFederation, job_of, run, run_strategy, store

SIZES, TESTED = [40, 30, 50, 0, 20], [60, 45, 50, 12, 1]


def grouped(federation: Federation, seed: int = 5, unknown: float = 0.1) -> Federation:
    """The federation with patients of two sexes and three bands of age; some are not known."""
    rng, n = np.random.default_rng(seed), len(federation.y)
    sex = rng.choice(["Female", "Male", ""], n, p=[0.5, 0.5 - unknown, unknown])
    np.savez(federation.folder / "patients.npz", sex=sex, age=rng.uniform(18, 79, n))
    return Federation.open(federation.folder)


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return grouped(federate(SIZES, TESTED, features=4))


def measured(federation: Federation, actors: int = 1, **settings: Any) -> Outcome:
    return run_strategy(federation, FedAvg(), actors=actors, tests_groups=True, **settings)


def auroc(z: np.ndarray, y: np.ndarray) -> float:
    x, other = z[y > 0], z[y <= 0]
    return float(((x[:, None] > other) + 0.5 * (x[:, None] == other)).mean())


def test_the_gap_is_that_of_a_plain_loop(federation: Federation):
    outcome = measured(federation)
    theta = outcome.models[0]
    differences, weights = [], []
    for h in range(len(SIZES)):
        rows = federation.rows(h, "test")
        z, y = federation.X[rows] @ theta[:-1] + theta[-1], federation.y[rows]
        sex = federation.patients["sex"][rows]
        mine = [sex == name for name in ("Female", "Male")]
        counts = [((y > 0) == event)[of].sum() for of in mine for event in (True, False)]
        if min(counts) > 0:
            differences.append(auroc(z[mine[0]], y[mine[0]]) - auroc(z[mine[1]], y[mine[1]]))
            weights.append(1 / sum(1 / count for count in counts))
    gap = outcome.gaps["sex"]
    assert gap.groups == ("Female", "Male"), "those not known are no group"
    assert gap.hospitals == len(weights) >= 3
    assert gap.estimate == pytest.approx(np.average(differences, weights=weights), abs=1e-9)
    assert gap.low < gap.estimate < gap.high
    assert gap.arrangements == 2000
    assert not gap.exact
    together = outcome.groups["global"]["sex"][1][:, 2]
    assert gap.pooled == pytest.approx(together[0] - together[1])
    assert gap.pooled == pytest.approx(gap.estimate + gap.mixed)
    assert [risk.group for risk in gap.risks] == ["Female", "Male"]
    age = outcome.gaps["age"]
    assert len(age.pairs) == 3
    assert age.p_holm == pytest.approx(min(1.0, max(2 * min(age.p, gap.p), age.p)))


def test_placement_changes_no_bit_and_each_seed_has_other_draws(federation: Federation):
    alone, apart = (measured(federation, actors=actors) for actors in (1, 5))
    assert repr(alone.gaps) == repr(apart.gaps)
    other = measured(federation, seed=2)
    assert other.gaps["sex"].p != alone.gaps["sex"].p


def test_few_rows_take_every_arrangement(federate: MakeFederation):
    small = federate([9, 9, 9], [5, 6, 4], features=3)
    y = small.y.copy()
    sex = np.full(len(y), "F")
    for h in range(3):
        rows = small.rows(h, "test")
        y[rows] = np.arange(rows.stop - rows.start) % 2
        sex[rows] = np.where(np.arange(rows.stop - rows.start) % 4 < 2, "F", "M")
    np.save(small.folder / "y.npy", y)
    np.savez(small.folder / "patients.npz", sex=sex)
    small = Federation.open(small.folder)
    gap = measured(small).gaps["sex"]
    # Of 5 rows: 3 without the event (F, M, F) and 2 with it; of 6: 3 and 3; of 4: 2 and 2.
    assert gap.arrangements == (3 * 2) * (3 * 3) * (2 * 2)
    assert gap.exact
    assert gap.p * gap.arrangements == pytest.approx(round(gap.p * gap.arrangements))
    assert repr(measured(small, actors=3).gaps) == repr(measured(small).gaps)


def test_where_no_hospital_has_all_four_counts_nothing_is_judged(federate: MakeFederation):
    federation = federate([20, 20], [20, 20], features=3)
    sex = np.repeat(["F", "M"], [len(federation.y) // 2, len(federation.y) - len(federation.y) // 2])
    for h, name in enumerate(("F", "M")):
        sex[federation.rows(h, "test")] = name
    np.savez(federation.folder / "patients.npz", sex=sex)
    gap = measured(Federation.open(federation.folder)).gaps["sex"]
    assert not gap.judged
    assert gap.hospitals == 0
    assert np.isnan([gap.p, gap.p_holm, gap.pooled]).all(), "the pooled gap takes no place"


def test_the_smallest_visible_gap_counts_only_the_attributes_that_are_tested(federate: MakeFederation):
    """Of age, sex and a single ethnicity, two are tested by Holm's procedure; then one, at hospitals of one age."""
    federation = grouped(federate([40] * 4, [200] * 4, features=4))
    patients = {"sex": federation.patients["sex"], "ethnicity": np.full(len(federation.y), "a")}
    visible = []
    for more in ({}, {"age": federation.patients["age"]}, {"age": np.full(len(federation.y), 50.0)}):
        np.savez(federation.folder / "patients.npz", **(patients | more))
        visible.append(measured(Federation.open(federation.folder)).gaps["sex"].pair.visible)
    assert visible[0] == visible[2] < visible[1]
    np.savez(federation.folder / "patients.npz", sex=patients["sex"])
    assert measured(Federation.open(federation.folder)).gaps["sex"].pair.visible == visible[0]


def test_nothing_is_measured_unless_it_is_asked_for(federation: Federation):
    outcome = run_strategy(federation, FedAvg())
    assert outcome.gaps == {}
    more = measured(federation)
    sent = [entry for entry in more.ledger.entries if entry[1] == MEASURED and entry[0] == len(more.rounds)]
    plain = [entry for entry in outcome.ledger.entries if entry[1] == MEASURED and entry[0] == len(outcome.rounds)]
    beside = sum(int(entry.sent.sum()) for entry in sent) - sum(int(entry.sent.sum()) for entry in plain)
    # Of sex one pair and of age three, two sums of 8 bytes for 2,000 arrangements, and 14 numbers a group.
    assert beside == len(SIZES) * 4 * (4 * (1 + 3) * 2000 + 14 * (2 + 3))


@pytest.mark.parametrize("classes", [2, 0])
def test_the_counted_bytes_are_those_of_a_hospital_s_arrays(federate: MakeFederation, tmp_path: Path, classes: int):
    made = federate([30], [40], features=3)
    label = made.y if classes else made.X[:, 0] + 100.0 * np.random.default_rng(1).normal(size=len(made.y))
    (tmp_path / "one").mkdir()
    one = grouped(store(tmp_path / "one", made.X, label, made.bounds, classes=classes))
    groups = grouping(one, ["sex"], ())
    assert groups is not None
    arrangements, rows = rearranging(groups, one, "test"), one.rows(0, "test")
    outputs = one.X[rows, 0]
    sent = measure(groups, arrangements, one, [0], "test", outputs, outputs, one.y[rows], 1)["sex"]
    *_, units = sent.units.values()  # the sum in the hospital's own scale, which real-valued labels also need
    arrays = sent.value.nbytes + sent.variance.nbytes + (sent.risks.nbytes if sent.risks is not None else 4)
    assert 4 * arrangements.numbers("sex", sent) == arrays + 4 * sent.counts.size + units.nbytes
    assert arrangements.numbers("sex", sent) == 4 * 2000 + (14 * 2 if classes else 5 * 2 + 1)


def test_a_finished_run_is_read_as_it_was_written(federation: Federation, tmp_path: Path):
    outcome = measured(federation)
    save_finished(tmp_path, outcome)
    again = load_finished(tmp_path)
    assert again is not None
    assert repr(again.gaps) == repr(outcome.gaps)
    assert type(again.gaps["sex"]) is type(outcome.gaps["sex"])


def test_errors_of_a_real_label_are_tested_within_hospitals(federate: MakeFederation, tmp_path: Path):
    classed = federate([30, 30, 30], [40, 30, 20], features=3)
    label = 3.0 * classed.X[:, 0] + np.random.default_rng(1).normal(size=len(classed.y))
    (tmp_path / "real").mkdir()
    federation = grouped(store(tmp_path / "real", classed.X, label, classed.bounds, classes=0))
    linear = ModelSpec("linear_regression", None, {}, "default")
    outcome = measured(federation, model=linear)
    gap, theta = outcome.gaps["sex"], outcome.models[0]
    differences, weights = [], []
    for h in range(3):
        rows = federation.rows(h, "test")
        errors = np.abs(federation.X[rows] @ theta[:-1] + theta[-1] - federation.y[rows])
        sex = federation.patients["sex"][rows]
        n = [(sex == name).sum() for name in ("Female", "Male")]
        differences.append(errors[sex == "Female"].mean() - errors[sex == "Male"].mean())
        weights.append(1 / (1 / n[0] + 1 / n[1]))
    assert gap.estimate == pytest.approx(np.average(differences, weights=weights), rel=1e-4)
    assert not gap.larger
    assert gap.judged
    assert gap.risks == ()
    assert repr(measured(federation, actors=3, model=linear).gaps) == repr(outcome.gaps)


def test_a_run_that_goes_on_has_the_same_gaps(federation: Federation):
    job = job_of(federation, FedAvg(), tests_groups=True)
    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    *events, alone = JobRun(pool, job).events(1)
    stood = [event for event in events if isinstance(event, RunState)]
    read, _ = decode(encode(stood[1], "print", job.strategy), job.strategy)
    *_, outcome = JobRun(pool, job, read).events()
    assert isinstance(outcome, Outcome)
    assert isinstance(alone, Outcome)
    assert repr(outcome.gaps) == repr(alone.gaps)


def test_sums_that_are_hidden_change_no_gap(federation: Federation):
    job = job_of(federation, FedAvg(), tests_groups=True, precision="float32")
    hidden = run(federation, replace(job, secure=SecureSection()), 2)
    open_sums = run(federation, job, 1)
    assert set(hidden.gaps) == set(open_sums.gaps) == {"sex", "age"}
    assert hidden.gaps["sex"].estimate == pytest.approx(open_sums.gaps["sex"].estimate, abs=1e-3)
