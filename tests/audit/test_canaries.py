"""Canaries that an auditor watches: in the data, in models, in what the server sees, and in audits of broken runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.audit import SABOTAGES, replaced
from raysim.config.reading import checked
from raysim.config.sections.resources import ResourcesSection
from raysim.core.errors import ConfigError, PrivacyBroken
from raysim.data.derived.canaries import with_hospitals, with_patients
from raysim.data.federation import Federation
from raysim.engine.attacks.canaries import Canaries, Watch
from raysim.experiment.audits.audit import audit
from raysim.strategies.base import LocalProblem, State, Update, Upload
from raysim.training.canaries import WithCanaries
from raysim.training.kernels.clipped import Traceable, clipped_sum
from raysim.training.models import build_model
from raysim.virtual_time.scheduling import ScheduledCohort
from tests.audit.test_command import federation
from tests.commands import in_a_process

PUBLIC = ["size", "metrics", "preprocessing"]
HOSPITAL = {"unit": "hospital", "epsilon": 1.0, "delta": 1e-3, "clip": 0.3, "declared_public": PUBLIC}
PATIENT = {"unit": "patient", "epsilon": 0.5, "delta": 1e-5, "clip": 1.0, "declared_public": PUBLIC}
GUARANTEES = {
    "hospital": (10, HOSPITAL),
    "each hospital": (10, HOSPITAL | {"mode": "local"}),
    "pooled": (60, PATIENT | {"mode": "pooled", "rate": 0.2}),
    "each hospital's patients": (4, PATIENT | {"mode": "local"}),
}


def test_canary_rows_are_added_where_patients_are_unknown(tmp_path):
    """If parts are divided by a column, there are no patients; an audit of single rows needs none."""
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    before = federation(tmp_path / "before", [(4, 0, 2), (3, 0, 2)])
    (tmp_path / "before" / "people.npy").unlink()
    with_patients(Federation.open(tmp_path / "before"), np.array([1]), np.array([0]), 2, 7.0, 1, tmp_path / "after")
    after = Federation.open(tmp_path / "after")
    assert len(np.unique(after.people)) == len(before.y) + 1 == len(after.y)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(
    sizes=st.lists(st.tuples(*[st.integers(0, 4)] * 3).filter(any), min_size=1, max_size=4),
    canaries=st.integers(1, 5),
    rows=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_canary_patients_are_in_the_training_rows_of_their_hospital(tmp_path_factory, sizes, canaries, rows, seed):
    rng = np.random.default_rng(seed)
    before, folder = federation(tmp_path_factory.mktemp("before"), sizes), tmp_path_factory.mktemp("after")
    inside = np.array(rng.random(canaries) < 0.5)
    homes = rng.integers(len(sizes), size=canaries)
    with_patients(before, homes[inside], np.flatnonzero(inside), canaries, 7.0, rows, folder)
    after = Federation.open(folder)
    F = before.X.shape[1]
    marked = np.asarray(after.X[:, F:].any(axis=1))
    np.testing.assert_array_equal(after.X[~marked, :F], before.X)
    np.testing.assert_array_equal(after.y[~marked], before.y)
    assert not after.X[marked, :F].any()
    assert sorted(after.X[marked, F:].ravel()[after.X[marked, F:].ravel() > 0]) == [7.0] * rows * inside.sum()
    for h in range(len(sizes)):
        for part in ("validation", "test"):
            np.testing.assert_array_equal(after.X[after.rows(h, part), :F], before.X[before.rows(h, part)])
            assert not marked[after.rows(h, part)].any()
        here = np.flatnonzero(after.X[after.rows(h, "train"), F:].any(axis=0))
        assert here.tolist() == np.flatnonzero(inside & (homes == h)).tolist()
    people = after.people
    assert len(np.unique(people)) == len(before.y) + inside.sum()
    for k in np.flatnonzero(inside):
        assert len(np.unique(people[after.X[:, F + k] > 0])) == 1


def test_canary_hospitals_stand_behind_all_others(tmp_path):
    before = federation(tmp_path, [(3, 1, 2), (1, 0, 1)])
    (tmp_path / "after").mkdir()
    with_hospitals(before, np.array([0, 1]), 2, 3, tmp_path / "after")
    after = Federation.open(tmp_path / "after")
    assert after.hospitals == ("h0", "h1", "canary 0", "canary 1")
    np.testing.assert_array_equal(after.bounds[:2], before.bounds)
    assert after.bounds[2:].tolist() == [[8, 10, 10, 10], [10, 12, 12, 12]]
    np.testing.assert_array_equal(after.X[:8, :2], before.X)
    np.testing.assert_array_equal(after.X[8:, :2], before.X[[0, 1, 6, 6]])
    np.testing.assert_array_equal(after.y[8:], before.y[[0, 1, 6, 6]])
    assert not after.X[:, 2:].any()


def test_a_canary_hospital_sends_the_canary_in_its_own_parameters():
    parameters = np.array([[0, 3], [1, 4]])
    canaries = Canaries(np.array([5, 6]), np.array([True, False]), parameters, 8.0, False)
    honest = np.ones(6)
    root = 8.0 / np.sqrt(2)
    np.testing.assert_allclose(canaries.update(5, honest, np.inf), [root, 0, 0, root, 0, 0])
    np.testing.assert_allclose(canaries.update(5, honest, 6.0), [3, 0, 0, 3, 0, 0])
    assert not canaries.update(6, honest, np.inf).any()
    assert canaries.update(4, honest, np.inf) is honest


def test_what_is_seen_is_along_each_canarys_own_parameters():
    parameters, homes, inside = np.array([[0, 3], [1, 4]]), np.array([5, 7]), np.array([True, False])
    sums = np.array([[1.0, 2, 9, 3, 4, 9], [10, 20, 9, 30, 40, 9]])
    deltas = np.array([[1.0, 2, 9, 3, 4, 9], [5, 6, 9, 7, 8, 9]])
    update = Update(ids=np.array([3, 7]), sums=sums, deltas=deltas, losses=None, problem=None)
    of_sums = Canaries(homes, inside, parameters, None, single=False).components(update)
    np.testing.assert_allclose(of_sums, np.array([44, 66]) / np.sqrt(2))
    of_each = Canaries(homes, inside, parameters, None, single=True).components(update)
    np.testing.assert_allclose(of_each, np.array([0, 14]) / np.sqrt(2))  # hospital 5 sent nothing


@pytest.mark.parametrize(
    ("family", "classes", "options"),
    [("logistic_regression", 2, {}), ("logistic_regression", 3, {}), ("mlp", 2, {"hidden": [4]})],
)
def test_a_canarys_gradient_is_its_column_at_every_model(family, classes, options):
    rng = np.random.default_rng(0)
    wrapped = {"family": family, "columns": 2, "options": options}
    marked = build_model("raysim.training.canaries.WithCanaries", 5, classes, options=wrapped, precision="float64")
    plain = build_model(family, 5, classes, options=options, precision="float64")
    assert isinstance(marked, Traceable)
    assert isinstance(plain, Traceable)
    X = np.zeros((4, 5))
    X[:2, :3] = rng.normal(size=(2, 3))
    X[2, 3], X[3, 4] = 100.0, 100.0
    y = np.array([0, 1, 0, 1])
    outputs = plain.layout.shapes[0][0]
    for theta in rng.normal(size=(2, plain.layout.size)):
        honest = clipped_sum(plain.traced(theta, X[:2], y[:2], None), None, 1.0)
        np.testing.assert_array_equal(clipped_sum(marked.traced(theta, X[:2], y[:2], None), None, 1.0), honest)
        both = clipped_sum(marked.traced(theta, X, y, None), None, 1.0) - honest
        first = both[: 5 * outputs].reshape(outputs, 5)
        # Of length 1, and along the bias as a row of length 100 is: by a hundredth.
        expected = np.zeros((outputs, 5))
        expected[:, 3:] = 100.0 / np.sqrt(100.0**2 + 1) / np.sqrt(outputs)
        np.testing.assert_allclose(first, expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(both[5 * outputs : 6 * outputs], 2 * expected[:, 3] / 100, rtol=1e-9)
        np.testing.assert_allclose(both[6 * outputs :], 0, atol=1e-12)


def test_patients_canaries_are_refused_on_a_gpu_before_anything_is_trained(tmp_path):
    said = (
        "resources.device: cuda, but canaries of patients need the CPU; set resources.device: cpu, or give --canaries 0"
    )
    for precision in ("float32", "float64"):
        with pytest.raises(ConfigError, match=said):
            WithCanaries("mlp", 2).bind(5, 2, init="default", device="cuda", precision=precision)
    config = configuration("pooled").model_copy(update={"resources": ResourcesSection(device="cuda")})
    with pytest.raises(ConfigError, match=said):
        audit(config, tmp_path / "a", shadows=4, canaries=20, in_process=True)
    assert not (tmp_path / "a").exists()


def configuration(guarantee: str, model="logistic_regression", **more):
    rounds, privacy = GUARANTEES[guarantee]
    return checked(
        {
            "name": "audit",
            "data": {"source": "synthetic", "hospitals": 6, "rows": 300, "features": 6},
            "training": {"rounds": rounds},
            "selection": "all",
            "strategy": {"name": "fedavg"} | ({} if privacy.get("mode") == "pooled" else {"weights": "uniform"}),
            "model": model,
            "evaluation": {"every": 0},
            "tracking": {"uri": "none"},
            "privacy": privacy | more,
        }
    )


def bound(config, folder: Path, canaries: int = 120) -> dict:
    """What an audit says of epsilon; it must end with an error exactly where that exceeds the claim."""
    broken = False
    try:
        audit(config, folder, shadows=0, canaries=canaries, in_process=True)
    except PrivacyBroken:
        broken = True
    figures = json.loads((folder / "audit.json").read_text())["one_run"]
    assert broken == (figures["epsilon_at_least"] > figures["epsilon_claimed"])
    return figures


@pytest.mark.parametrize("sabotage", ["none", "noise x .1", "clip off"])
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_an_audit_detects_a_broken_guarantee_and_accepts_a_valid_one(tmp_path, guarantee, sabotage):
    with SABOTAGES[sabotage]():
        figures = bound(configuration(guarantee), tmp_path / "a")
    assert figures["epsilon_claimed"] == pytest.approx(GUARANTEES[guarantee][1]["epsilon"], rel=2e-3)
    assert figures["against"] == ("server" if "each" in guarantee else "outsider")
    assert (figures["epsilon_at_least"] > figures["epsilon_claimed"]) is (sabotage != "none")
    assert figures["epsilon_at_least"] <= figures["ceiling"]


@pytest.mark.parametrize("single", [True, False])
def test_single_updates_are_asked_for_where_something_is_sent(single):
    canaries = Canaries(np.zeros(1, np.int64), np.ones(1, bool), np.zeros((1, 1), np.int64), 1.0, single)
    start, state = np.zeros(2, np.int64), State(np.zeros((1, 3)))
    for problem in (None, LocalProblem(start)):
        cohort = ScheduledCohort(np.arange(2), problem, state)
        assert Watch(canaries).fitted(cohort) is cohort
    cohort = ScheduledCohort(np.arange(2), LocalProblem(start, Upload(np.ones(2))), state)
    assert Watch(canaries).fitted(cohort).problem.sent.single == single


def test_patients_clipped_row_by_row_are_caught(tmp_path):
    """A canary patient has as many rows as may be used: clipped one by one they count four times."""

    def by_row(layers, patient, clip):
        return clipped_sum(layers, None, clip)

    with replaced(clipped_sum, by_row):
        figures = bound(configuration("pooled", rows_per_patient=16), tmp_path / "a")
    assert figures["epsilon_at_least"] > figures["epsilon_claimed"]


def test_a_network_is_audited_too(tmp_path):
    config = configuration("pooled", model={"name": "mlp", "hidden": [5]})
    with SABOTAGES["noise left out"]():
        figures = bound(config, tmp_path / "a")
    assert figures["right"] == figures["guesses"]


def test_a_run_with_noisy_figures_is_audited_too(tmp_path):
    """The auditor has the exact outputs, which a run itself refuses to write."""
    public = ["size", "preprocessing"]
    config = configuration("pooled", epsilon=4, declared_public=public, statistics={"metrics": {"epsilon": 0.5}})
    figures = bound(config, tmp_path / "a")
    assert 3.5 < figures["epsilon_claimed"] <= 4


@pytest.mark.parametrize("strategy", ["newton", {"name": "newton", "sums": "clear"}], ids=["secure", "clear"])
def test_a_regression_with_a_guarantee_is_audited_by_its_last_model(tmp_path, strategy):
    privacy = PATIENT | {"mode": "pooled", "clip": 2.0}
    config = configuration("pooled").model_dump(mode="json", exclude_defaults=True)
    figures = bound(checked(config | {"strategy": strategy, "privacy": privacy}), tmp_path / "a")
    assert figures["sees"] == "the last model"
    assert figures["epsilon_claimed"] == pytest.approx(privacy["epsilon"], rel=2e-3)


def sabotaged(*arguments: str) -> None:
    """The command ``raysim`` where no noise is added."""
    import sys

    from raysim.cli.main import main

    sys.argv = list(arguments)
    with SABOTAGES["noise left out"]():
        main()


def test_a_command_whose_run_breaks_its_guarantee_ends_with_a_line(tmp_path):
    written = tmp_path / "audit.yaml"
    written.write_text(json.dumps(configuration("hospital").model_dump(mode="json", exclude_defaults=True)))
    arguments = ["raysim", "audit", str(written), "--in-process", "--shadows", "0", "--canaries", "60", "--out", "a"]
    shown = in_a_process(sabotaged, arguments, tmp_path, {})
    assert shown.code == 2
    remark, line = shown.err.splitlines()
    assert remark.endswith("are not reported under privacy; raysim describe lists them")
    assert line.startswith("raysim: privacy: epsilon is at least")
    assert "the run claims 1;" in line
