"""Features by declared ranges, and by means and deviations that were released with noise."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raysim
from raysim.config import plugins
from raysim.config.reading import checked, resolve
from raysim.core.errors import ConfigError, RaysimError
from raysim.data.build import build
from raysim.data.contribution import choose_rows
from raysim.data.declared import Range, moments, ranges_of, with_noise
from raysim.data.federation import Federation
from raysim.data.fitted import Categorical, Numeric
from raysim.data.raw_columns import RawColumns
from raysim.data.split import Split
from raysim.engine.server.job_checks import check_job
from raysim.experiment.jobs import make_job
from raysim.privacy.events import Event, Gaussian, Laplace
from raysim.privacy.noisy_sums import Bounds, Mechanism, clipped_sum
from raysim.privacy.scaler import ScalerNoise
from raysim.secure.protocol import SecureSum
from raysim.secure.setup import SetupSums
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.selections.sampling import All
from tests.data.in_memory_sources import fixed, records

RANGES = {"age": [0, 100], "sex": ["f", "m", None], "lactate": [0, 20, None]}


def frame(n: int = 240, hospitals: int = 3, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    lactate = np.clip(rng.gamma(2.0, 2.0, n), 0, 20)
    lactate[rng.random(n) < 0.2] = np.nan
    return pd.DataFrame(
        {
            "hospital": np.resize([f"h{i}" for i in range(hospitals)], n),
            "patient": np.arange(n) // 2,
            "age": rng.uniform(20, 90, n),
            "sex": rng.choice(["f", "m"], n),
            "lactate": lactate,
            "died": rng.integers(2, size=n),
        }
    )


def tree(path: Path, **data: Any) -> dict[str, Any]:
    return {
        "name": "declared",
        "data": {"source": "table", "path": str(path), "silo": "hospital", "group": "patient", "label": "died"} | data,
        "training": {"rounds": 2, "batch_size": 0, "local_epochs": 1},
        "evaluation": {"every": 0},
        "strategy": {"name": "fedavg"},
        "tracking": {"uri": "none"},
    }


PRIVATE: dict[str, Any] = {
    "unit": "patient",
    "mode": "local",
    "epsilon": 20,
    "delta": 1e-3,
    "declared_public": ["sizes", "metrics"],
}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    frame().to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


def test_declared_features_need_no_look_at_any_row_and_nothing_leaves(path):
    config_tree = tree(path, preprocessing="declared", ranges=RANGES) | {"privacy": PRIVATE}
    result = raysim.run(config_tree, out=path.parent / "run", in_process=True)
    assert result.summary["privacy"]["not_private"] == []
    assert result.summary["privacy"]["epsilon"] == pytest.approx(20, rel=0.05)
    assert "preprocessing" not in set(pd.read_csv(path.parent / "run" / "egress.csv")["kind"])
    (stored,) = (path.parent / "cache" / "federations").iterdir()
    X = np.load(stored / "X.npy")
    rows, source = frame(), np.load(stored / "source_rows.npy")
    assert Federation.open(stored).features == ("age", "sex=f", "sex=m", "lactate", "sex_missing", "lactate_missing")
    placed = rows.iloc[source]
    assert X[:, 0] == pytest.approx((placed["age"] - 50) / 25, abs=1e-5)  # a quarter of 100
    lactate = (placed["lactate"].fillna(10) - 10) / 5
    assert X[:, 3] == pytest.approx(lactate, abs=1e-5)
    assert X[:, 5].tolist() == placed["lactate"].isna().tolist()
    assert not X[:, 4].any()  # whether sex is missing, which it may be and never is


def test_flags_of_missing_values_can_be_left_out(path):
    """The cache tells both apart, and the scores of new rows need none."""
    config_tree = tree(path, preprocessing="declared", ranges=RANGES)
    for flags, count in ((False, 4), (True, 6)):
        config_tree["data"]["missing_flags"] = flags
        result = raysim.run(config_tree, out=path.parent / f"run {flags}", in_process=True)
        assert len(json.loads((path.parent / f"run {flags}" / "preprocessing.json").read_text())["features"]) == count
        assert np.isfinite(result.predict(frame())).all()


def test_moments_of_rows_worked_by_hand():
    values = np.array([[50.0, np.nan], [120.0, 5.0]])
    added = moments(values, np.array([50.0, 10.0]), np.array([50.0, 10.0]))
    assert added.tolist() == [[1, 0, 0, 0, 0, 0], [1, 1, 1, -0.5, 1, 0.25]]


def table_of(values: np.ndarray) -> RawColumns:
    names = tuple(f"x{j}" for j in range(values.shape[1]))
    return RawColumns(order=names, numeric=names, values=values)


def test_with_hardly_any_noise_means_and_deviations_are_those_of_the_rows():
    rng = np.random.default_rng(3)
    values = rng.uniform(-1, 9, size=(90, 2))
    values[::7, 1] = np.nan
    described = {"x0": Range(-1.0, 9.0, False), "x1": Range(-5.0, 9.0, True)}
    rows = [np.arange(0, 40), np.arange(40, 90)]
    noise = ScalerNoise(Mechanism(Gaussian(1e-9), "seeded"), "example", 1, shared=False)
    fitted, scalars = with_noise(described, table_of(values), rows, [np.arange(40), np.arange(50)], noise, seed=4)
    first, second = fitted.columns
    assert isinstance(first, Numeric)
    assert isinstance(second, Numeric)
    assert (first.mean, second.mean) == pytest.approx(tuple(np.nanmean(values, axis=0)), abs=1e-6)
    assert (first.scale, second.scale) == pytest.approx(tuple(np.nanstd(values, axis=0)), abs=1e-6)
    assert (first.flagged, second.flagged, second.fill, scalars) == (False, True, second.mean, 6)


def test_noisy_means_are_of_training_rows_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path))
    values = np.random.default_rng(5).uniform(0, 9, 80)
    source = fixed(records({"x": values}, [0, 1] * 40, ["a"] * 30 + ["b"] * 50), "noisy means")
    noise = ScalerNoise(Mechanism(Gaussian(1e-9), "seeded"), "example", 1, shared=False)
    parts = Split(train=0.5, validation=0.25, test=0.25)
    federation = build(source, parts, ranges={"x": [0, 9]}, noise=noise)
    assert federation.sizes("validation").all()
    train = np.concatenate([federation.X[federation.rows(h, "train"), 0] for h in range(2)]).astype(float)
    assert (train.mean(), train.std()) == pytest.approx((0.0, 1.0), abs=1e-5)


def test_of_what_noise_hides_the_range_alone_is_taken():
    described = {"x0": Range(0.0, 8.0, False)}
    noise = ScalerNoise(Mechanism(Gaussian(1e6), "seeded"), "example", 1, shared=False)
    chosen = [
        with_noise(described, table_of(np.ones((5, 1))), [np.arange(5)], [np.arange(5)], noise, s) for s in range(8)
    ]
    columns = [fitted.columns[0] for fitted, _ in chosen]
    assert Numeric("x0", 4.0, 2.0, 4.0, False) in columns
    assert all(0.0 <= each.mean <= 8.0 and 0.25 <= each.scale <= 4.0 for each in columns)


@pytest.mark.parametrize("event", [Gaussian(2.0), Laplace(2.0)], ids=["normal", "laplace"])
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from([np.nan, -1e9, -1.0, 0.3, 1.0, 50.0]), st.floats(-3, 3)),
        min_size=1,
        max_size=12,
    )
)
def test_one_patient_moves_the_sums_by_no_more_than_the_noise_is_for(event: Event, rows):
    """Two neighbours: with the patient of the first row, and without."""
    people = np.array([row[0] for row in rows])
    values = np.array([row[1:] for row in rows], dtype=np.float64)
    how, bounds = Mechanism(event, "seeded"), Bounds(6.0, math.sqrt(6.0))

    def summed(stay: np.ndarray) -> np.ndarray:
        who = people[stay]
        # The same coins for both: of each patient the first rows in one order of all rows.
        drawn_rows = choose_rows(who, np.arange(len(who)), 2)
        added = moments(values[stay][drawn_rows.rows], np.zeros(2), np.ones(2))
        return clipped_sum(added, drawn_rows.patient, how, bounds)

    moved = summed(np.ones(len(rows), bool)) - summed(people != people[0])
    length = np.abs(moved).sum() if isinstance(event, Laplace) else np.linalg.norm(moved)
    assert length <= how.bound(bounds) * (1 + 1e-9)


@pytest.mark.parametrize("shared", [False, True])
def test_the_noise_of_all_hospitals_has_the_configured_deviation(shared):
    """Each adds the whole of it, or a share of which two thirds but one hold the whole."""
    hospitals, D = 30, 400
    described = {f"x{j}": Range(-1.0, 1.0, False) for j in range(D)}
    values = np.zeros((hospitals, D))
    rows = [np.array([h]) for h in range(hospitals)]
    noise = ScalerNoise(Mechanism(Gaussian(1e-4), "seeded"), "example", 1, shared=shared)
    fitted, _ = with_noise(described, table_of(values), rows, [np.zeros(1, int)] * hospitals, noise, seed=1)
    means = np.array([column.mean for column in fitted.columns if isinstance(column, Numeric)])
    one = 1e-4 * math.sqrt(3 * D) / hospitals
    among = 1.0 / 19 if shared else 1.0
    assert means.std() == pytest.approx(one * math.sqrt(hospitals * among), rel=0.15)


def secure_tree(path: Path, secure: dict[str, Any], **privacy: Any) -> dict[str, Any]:
    statistics = {"preprocessing": {"noise_multiplier": 4.0}}
    return tree(path, ranges=RANGES) | {"privacy": PRIVATE | {"statistics": statistics} | privacy, "secure": secure}


def test_masked_sums_are_the_plain_ones_to_the_last_bit(path):
    """Of three hospitals with six numbers each, and their bytes by formula."""
    both = [path.parent / mode for mode in ("model", "execute")]
    for out in both:
        raysim.run(secure_tree(path, {"mode": out.name}), out=out, in_process=True)
    written = [(out / "preprocessing.json").read_text() for out in both]
    assert written[0] == written[1]
    egress = [pd.read_csv(out / "egress.csv") for out in both]
    pd.testing.assert_frame_equal(*egress)
    preprocessing_bytes = egress[0][egress[0]["kind"] == "preprocessing"]["bytes"]
    shares = 2 * (2 * 33 + 8 + 16 + 12)  # for two neighbours, and from them
    assert preprocessing_bytes.tolist() == [64 + shares + 8 * (6 + 1) + 2 * 33] * 3
    summary = json.loads((both[0] / "summary.json").read_text())
    assert summary["bytes_setup_down"] == 3 * (2 * 64 + shares)
    assert summary["privacy"]["not_private"] == []


def test_the_sum_is_opened_of_what_is_masked(monkeypatch):
    """What a hospital sends looks like chance, and the server sees nothing else."""
    sent = []
    masked = SecureSum.masked
    monkeypatch.setattr(SecureSum, "masked", lambda self, *given: (sent.append(masked(self, *given)), sent[-1])[1])
    vectors = [np.array([h, -(2**40), 2**61 - h]) for h in range(12)]
    plain = SetupSums("auto", "auto", 0, execute=False).total(vectors, 3)
    assert (SetupSums("auto", "auto", 0, execute=True).total(vectors, 3) == plain).all()
    assert (SetupSums(4, "auto", 0, execute=True).total(vectors, 3) == plain).all()
    assert plain.tolist() == [66, -12 * 2**40, (12 * 2**61 - 66 + 2**63) % 2**64 - 2**63]
    assert len(sent) == 24
    assert all((word.view(np.int64) != vector).all() for word, vector in zip(sent, vectors + vectors, strict=True))


def test_secure_sums_in_fixed_point_are_those_of_numbers():
    rng = np.random.default_rng(2)
    sums = [1e6 * rng.normal(size=5) for _ in range(40)]
    mechanism = Mechanism(Gaussian(1.0), "seeded")
    plain = ScalerNoise(mechanism, "example", 1, shared=False).total(sums, 0)
    assert (plain == sum(sums, np.zeros(5))).all()
    shared = ScalerNoise(mechanism, "example", 1, shared=True).total(sums, 0)
    assert shared == pytest.approx(plain, abs=40 * 2.0**-31)
    masked = ScalerNoise(mechanism, "example", 1, True, SetupSums("auto", "auto", 0, execute=True)).total(sums, 0)
    assert (masked == shared).all()


def test_noisy_preprocessing_is_covered_and_paid_for(path):
    config_tree = tree(path, ranges=RANGES) | {"privacy": PRIVATE | {"statistics": {"preprocessing": {"epsilon": 4.0}}}}
    result = raysim.run(config_tree, out=path.parent / "run", in_process=True)
    said = result.summary["privacy"]
    assert set(said["covers"]) == {"update", "preprocessing"}
    assert said["not_private"] == []
    assert said["epsilon"] == pytest.approx(20, rel=0.05)
    plain = config_tree | {
        "privacy": PRIVATE | {"epsilon": 16},
        "data": config_tree["data"] | {"preprocessing": "declared"},
    }
    cheaper = raysim.run(plain, out=path.parent / "plain", in_process=True).summary["privacy"]
    assert said["by_hospital"]["most"]["noise_multiplier"] == pytest.approx(
        cheaper["by_hospital"]["most"]["noise_multiplier"], rel=1e-3
    )
    egress = pd.read_csv(path.parent / "run" / "egress.csv")
    assert (egress[egress["kind"] == "preprocessing"]["bytes"] == 4 * 6).all()


def test_sums_that_were_not_masked_are_not_counted_as_masked(path):
    """newton hides its own sums without a section secure, but each hospital has sent the sums for scaling."""
    privacy = PRIVATE | {"mode": "pooled", "clip": 4, "statistics": {"preprocessing": {"noise_multiplier": 4.0}}}
    plain = {key: value for key, value in tree(path, ranges=RANGES).items() if key != "selection"}
    plain |= {"privacy": privacy, "strategy": "newton"}
    bytes_of = []
    for name, secure in (("clear", {}), ("masked", {"secure": {}})):
        out = path.parent / name
        raysim.run(plain | secure, out=out, in_process=True)
        egress = pd.read_csv(out / "egress.csv")
        bytes_of.append(egress[egress["kind"] == "preprocessing"]["bytes"].unique().tolist())
    assert bytes_of[0] == [4 * 6]
    assert bytes_of[1] > bytes_of[0]


def test_data_that_were_prepared_for_a_secure_sum_are_refused_without_one(path):
    made = resolve(secure_tree(path, {}))
    federation = plugins.build_federation(made, plugins.build_source(made.data), 0)
    job = make_job(made, FedAvg(), All(), federation.folder, 0)
    check_job(job, federation)
    with pytest.raises(ConfigError, match=r"prepared with noise of .* in one secure sum, but this run asks for"):
        check_job(replace(job, secure=None), federation)


def test_data_that_were_prepared_with_other_noise_are_refused(path):
    def config(epsilon: float) -> Any:
        noise = {"statistics": {"preprocessing": {"epsilon": epsilon}}}
        return resolve(tree(path, ranges=RANGES) | {"privacy": PRIVATE | noise})

    made = config(4.0)
    federation = plugins.build_federation(made, plugins.build_source(made.data), 0)
    jobs = [make_job(config(each), FedAvg(), All(), federation.folder, 0) for each in (4.0, 8.0)]
    check_job(jobs[0], federation)
    with pytest.raises(ConfigError, match=r"privacy.statistics.preprocessing: the data were prepared with noise of"):
        check_job(jobs[1], federation)


@pytest.mark.parametrize(
    ("data", "privacy", "line"),
    [
        ({}, {"preprocessing": {}}, r"data.ranges: privacy.statistics.preprocessing needs"),
        ({"preprocessing": "declared"}, {}, r"data.ranges: data.preprocessing: declared needs"),
        ({"ranges": RANGES}, {}, r"data.ranges: have an effect only with data.preprocessing: declared or with privacy"),
        (
            {"preprocessing": "median", "ranges": RANGES},
            {"preprocessing": {}},
            r"privacy.statistics.preprocessing: .*data.preprocessing: median sends none",
        ),
    ],
)
def test_keys_that_do_not_go_together_are_refused(path, data, privacy, line):
    with pytest.raises(ConfigError, match=line):
        checked(tree(path, **data) | {"privacy": PRIVATE | {"statistics": privacy}})


@pytest.mark.parametrize(
    ("ranges", "line"),
    [
        ({"age": [0, 100], "sex": ["f"]}, "data.ranges: has no entry for feature 'lactate'"),
        (RANGES | {"agee": [0, 1]}, r"data.ranges: no feature is called 'agee'.*age"),
        (RANGES | {"age": [100, 0]}, r"data.ranges.age: \[100, 0\] is not a range"),
        (RANGES | {"age": [0]}, r"data.ranges.age: \[0\] is not a range"),
        (RANGES | {"age": [0, "many"]}, r"data.ranges.age: .* is not a range"),
        (RANGES | {"age": [0, float("inf")]}, r"data.ranges.age: .* is not a range"),
    ],
)
def test_ranges_that_describe_no_column_are_refused(ranges, line):
    features = frame()[["age", "sex", "lactate"]].astype({"sex": "category"})
    with pytest.raises(RaysimError, match=line):
        ranges_of(ranges, RawColumns.of(features))


def test_categories_are_those_that_were_declared():
    features = frame()[["age", "sex", "lactate"]].astype({"sex": "category"})
    described = ranges_of(RANGES | {"sex": ["m", "x", None]}, RawColumns.of(features))
    assert described["sex"] == Categorical("sex", ("m", "x"), True)


@pytest.mark.parametrize(
    ("event", "shared", "hospitals", "expected"),
    [
        (Gaussian(1.2), False, 12, 1.2 * 2),
        (Gaussian(1.2), True, 12, 1.2 / np.sqrt(7) * 2),  # two thirds of twelve but one
        (Gaussian(1.2), True, 3, 1.2 * 2),
        (Gaussian(1.2), True, 5, 1.2 / np.sqrt(2) * 2),
        (Gaussian(1.2), True, 1, 1.2 * 2),
        (Laplace(1.2), True, 12, np.sqrt(2) * 1.2 * 4),
        (Laplace(1.2), False, 12, np.sqrt(2) * 1.2 * 4),
    ],
)
def test_a_hospitals_noise_on_four_sums_by_hand(event: Event, shared: bool, hospitals: int, expected: float):
    """A row of four entries is 4 long by their sum and 2 by their squares."""
    noise = ScalerNoise(Mechanism(event, "seeded"), "patient", 3, shared)
    assert noise.deviation(4, hospitals) == pytest.approx(expected)
    summed = ", in one secure sum" if shared else ""
    assert noise.key == (f"{event!r}, patient, 3{summed}", shared, "seeded")


@pytest.mark.parametrize(
    ("event", "shared", "expected"),
    [
        (Laplace(0.5), False, math.sqrt(2) * 0.5 * 4),
        (Laplace(0.5), True, math.sqrt(2) * 0.5 * 4),
        (Gaussian(0.5), False, 0.5 * 2),
        (Gaussian(0.5), True, 0.5 * 2 / math.sqrt(5)),
    ],
)
def test_the_deviation_of_a_hospitals_noise(event: Event, shared: bool, expected: float) -> None:
    """A row of four entries from -1 to 1, at each of ten hospitals."""
    noise = ScalerNoise(Mechanism(event, "seeded"), "patient", 1, shared)
    assert noise.deviation(4, 10) == pytest.approx(expected, rel=1e-12)


def test_noisy_sums_add_up() -> None:
    for shared in (False, True):
        noise = ScalerNoise(Mechanism(Gaussian(0.5), "seeded"), "patient", 1, shared)
        assert noise.total([np.array([1.0, 2.5]), np.array([0.25, -4.0])], 1).tolist() == [1.25, -1.5]
