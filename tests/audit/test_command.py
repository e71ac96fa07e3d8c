"""``raysim audit`` through the command line, and the federations that it runs on."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raysim.core.streams import stream
from raysim.data.derived.rearranged import Added, random_half, rearranged, trained_on
from raysim.data.federation import Federation, write
from raysim.report.judgement import audited as words
from raysim.report.terminal.block import MOST
from tests.commands import Done, raysim

ROOT = Path(__file__).parents[2]
SMALL = ["--set", "data.hospitals=12", "--set", "data.rows=900", "--set", "training.rounds=3"]


def federation(folder, sizes):
    """Hospitals of so many training, validation and test rows."""
    counts = np.array(sizes)
    stops = np.cumsum(counts.sum(axis=1))
    bounds = (
        np.column_stack([np.zeros(len(counts), int), np.cumsum(counts, axis=1)]) + (stops - counts.sum(axis=1))[:, None]
    )
    n = int(stops[-1])
    X = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    meta = {
        "hospitals": [f"h{i}" for i in range(len(counts))],
        "features": ["a", "b"],
        "classes": ["0", "1"],
        "attributes": {},
        "notes": [],
        "fingerprint": "x",
        "preprocessing_scalars": 0,
    }
    patients = {"age": np.arange(n, dtype=float), "patient": np.arange(n), "sex": np.full(n, "female")}
    write(folder, X=X, y=np.arange(n) % 2, observed=np.ones((n, 2), bool), bounds=bounds, patients=patients, meta=meta)
    return Federation.open(folder)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    sizes=st.lists(st.tuples(*[st.integers(0, 5)] * 3).filter(any), min_size=1, max_size=5),
    extra=st.integers(0, 4),
    seed=st.integers(0, 99),
)
def test_rows_change_sides_and_stay_at_their_hospital(tmp_path_factory, sizes, extra, seed):
    rng = np.random.default_rng(seed)
    before = federation(tmp_path_factory.mktemp("before"), sizes)
    n = len(before.y)
    added = Added(
        np.full((extra, 2), -1, np.float32), np.ones(extra, before.y.dtype), rng.integers(len(sizes), size=extra)
    )
    trained = rng.random(n + extra) < 0.5
    after = rearranged(before, trained, added, tmp_path_factory.mktemp("after"))
    home = np.append(np.repeat(np.arange(len(sizes)), before.totals), added.hospital)
    X, y = np.concatenate([before.X, added.X]), np.append(before.y, added.y)
    np.testing.assert_array_equal(np.sort(after.source_rows), np.arange(n + extra))
    np.testing.assert_array_equal(after.X, X[after.source_rows])
    np.testing.assert_array_equal(after.y, y[after.source_rows])
    for h in range(len(sizes)):
        validation = set(range(*before.bounds[h, 1:3]))
        rows = {part: set(after.source_rows[after.rows(h, part)].tolist()) for part in ("train", "validation", "test")}
        assert rows["validation"] == validation
        assert rows["train"] == {i for i in np.flatnonzero(home == h).tolist() if trained[i]} - validation
        assert rows["test"] == {i for i in np.flatnonzero(home == h).tolist() if not trained[i]} - validation
    assert len(np.unique(after.patients["patient"])) == n + extra


def test_half_of_each_hospitals_rows_are_in(tmp_path):
    before = federation(tmp_path, [(4, 2, 2), (1, 0, 0), (3, 0, 4)])
    drawn = np.array([random_half(before, stream(1, "half", k)) for k in range(400)])
    assert not drawn[:, 4:6].any()  # rows of validation
    free = np.delete(np.arange(16), [4, 5])
    assert np.abs(drawn[:, free].mean(axis=0) - 0.5).max() < 0.12
    assert set(drawn[:, [0, 1, 2, 3, 6, 7]].sum(axis=1).tolist()) == {3}
    assert trained_on(before).tolist() == [1] * 4 + [0] * 4 + [1] * 4 + [0] * 4


def audited(folder: Path, *arguments: str) -> Done:
    config = str(ROOT / "experiments" / "audit.yaml")
    return raysim(["audit", config, "--in-process", "--out", "a", *SMALL, *arguments], folder, {})


def test_an_audit_leaves_its_figures(tmp_path):
    shown = audited(tmp_path, "--shadows", "4")
    assert shown.code == 0, shown.err
    block = " ".join(shown.out.split())
    assert len(shown.out.splitlines()) <= MOST
    assert (
        "features and the label, was read exactly from the update of a hospital that trains on this row alone." in block
    )
    assert "Loss threshold AUROC 0." in block
    assert "200 planted records: " in block
    assert "shadow 4 of 4" in shown.err
    assert "shadow 4 of 4" not in shown.out
    summary = json.loads((tmp_path / "a" / "audit.json").read_text())
    assert 0 <= summary["one_run"]["epsilon_at_least"] <= summary["one_run"]["ceiling"]
    table = pd.read_csv(tmp_path / "a" / "membership.csv")
    assert table.groupby("attack")["hospital"].count().to_dict() == {"lira": 13, "loss_threshold": 13}
    assert table["auroc"].iloc[12] == summary["loss_threshold"]["auroc"]
    inverted = pd.read_csv(tmp_path / "a" / "inversion.csv")
    np.testing.assert_allclose(inverted["patient"], inverted["read_from_update"], atol=1e-9)


def found(low: float, least: float, claimed: float | None, *, exact: bool, protected: bool) -> dict[str, object]:
    """An ``audit.json`` with these results."""
    members = {"auroc": 0.55, "auroc_low": low, "auroc_high": 0.6, "found_at_0.01": 0.02, "smaller_leak_more": True}
    bound = {"canaries": 50, "guesses": 24, "right": 15, "epsilon_at_least": least, "epsilon_claimed": claimed}
    return {
        "rows": 700,
        "shadows": 0,
        "loss_threshold": members,
        "one_run": bound | {"ceiling": 3.0, "sees": "the last model"},
        "inversion": {"features": 12, "deviation": 1e-12 if exact else 0.2, "exact": exact, "protected": protected},
    }


@pytest.mark.parametrize(("shadows", "more"), [("0", ["--shadows", "16"]), ("4", ["--shadows", "4", "--details"])])
def test_the_next_command_audits_the_same_run(tmp_path, shadows, more):
    """Without the options, it would audit another run, such as one without the guarantee."""
    guarantee = "privacy={unit: hospital, epsilon: 4, delta: 1.0e-3, declared_public: [sizes, metrics, preprocessing]}"
    given = ["--set", "selection=all", "--set", guarantee, "--canaries", "20"]
    shown = audited(tmp_path, *given, "--shadows", shadows)
    assert shown.code == 0, shown.err
    command = shlex.split(shown.out.partition("Next ")[2].replace("\\\n", ""))
    config = str(ROOT / "experiments" / "audit.yaml")
    assert command == ["raysim", "audit", config, *SMALL, *given, *more]


def test_an_exact_reading_of_a_row_is_the_headline():
    bare = words.block(found(0.49, 0.0, None, exact=True, protected=False), "a", "1 s", "a/audit.html", "")
    assert bare.headline.startswith("A patient's row, 12 features and the label, was read exactly from the update")
    assert [warning.forbids for warning in bare.warnings] == [True, False]
    for summary in (
        found(0.49, 0.0, None, exact=False, protected=False),
        found(0.49, 0.0, None, exact=True, protected=True),
    ):
        shown = words.block(summary, "a", "1 s", "a/audit.html", "")
        assert shown.headline == (
            "No attack recognises training rows better than chance: Loss threshold's AUROC 0.550 (0.490 to 0.600)."
        )
        assert not any(warning.forbids for warning in shown.warnings)
        assert any(note.startswith("A patient's row") for note in shown.notes)
    assert "recognised better than by chance" in words.headline(found(0.51, 0.0, None, exact=False, protected=False))


@pytest.mark.parametrize(
    ("least", "claimed", "said"),
    [
        (0.0, None, "guesses right, no better than chance. No privacy guarantee is claimed against an auditor who"),
        (0.4, None, "guesses right, better than chance: epsilon is at least 0.40 (95 %). No privacy guarantee"),
        (
            0.4,
            1.0,
            "not refute the epsilon of 1 that the run claims; this many records can demonstrate at most 3.00.",
        ),
        (1.4, 1.0, "The run claims 1: its guarantee is broken. Do not publish its models."),
    ],
)
def test_canaries_in_plain_words(least: float, claimed: float | None, said: str):
    bound = found(0.5, least, claimed, exact=True, protected=False)["one_run"]
    assert isinstance(bound, dict)
    text = words.canaries(bound)
    assert text.startswith("50 planted records: 15 of 24 guesses right")
    assert said in text


def test_a_network_tells_a_row_too(tmp_path):
    shown = audited(tmp_path, "--shadows", "0", "--canaries", "0", "--set", "model.name=mlp")
    assert shown.code == 0, shown.err
    inverted = pd.read_csv(tmp_path / "a" / "inversion.csv")
    np.testing.assert_allclose(inverted["patient"], inverted["read_from_update"], atol=1e-9)


def test_a_network_that_a_row_leaves_unchanged_tells_no_row(tmp_path):
    """The single unit of the first layer is not active for the row, so that its change is 0."""
    network = ["--set", "model.name=mlp", "--set", "model.hidden=[1]"]
    shown = audited(tmp_path, "--shadows", "0", "--canaries", "0", *network)
    assert shown.code == 0, shown.err
    inverted = pd.read_csv(tmp_path / "a" / "inversion.csv")
    assert inverted["read_from_update"].isna().sum() == len(inverted) - 1
    inversion = json.loads((tmp_path / "a" / "audit.json").read_text())["inversion"]
    assert (inversion["exact"], inversion["deviation"]) == (False, None)
    assert "No row was read from the update of a hospital that trains on one row" in " ".join(shown.out.split())
    assert 'id="inversion"' not in (tmp_path / "a" / "audit.html").read_text()


def test_a_regression_is_audited_by_what_its_sums_tell(tmp_path):
    """Twelve hospitals of 20 to 200 rows: those with no more rows than columns would be read, if sums were seen."""
    settings = ["--shadows", "0", "--canaries", "0", "--set", "strategy.name=newton", "--set", "data.features=30"]
    shown = audited(tmp_path, *settings, "--set", "data.rows=300")
    assert shown.code == 0, shown.err
    sums = json.loads((tmp_path / "a" / "audit.json").read_text())["sums"]
    assert sums["protected"]
    assert 0 < sums["read"] <= sums["hospitals"] == 12
    assert sums["rows"] >= sums["read"]
    assert (
        f"{sums['rows']} rows of {sums['read']} of 12 hospitals can be read from their sums, which this run hides."
        in (" ".join(shown.out.split()))
    )
    clear = found(0.5, 0.0, None, exact=True, protected=True) | {"sums": sums | {"protected": False}}
    assert words.headline(clear).startswith(words.from_sums(clear["sums"]))
    assert words.block(clear, "a", "1 s", "a/audit.html", "").warnings[0].forbids
    none = sums | {"read": 0, "protected": False, "fewest_rows": 155, "columns": 31}
    assert words.from_sums(none) == (
        "No row was read from the sums of a hospital: each has more rows (155 or more) than the 31 columns."
    )


def test_an_audit_prints_its_figures_as_json_and_all_else_beside_it(tmp_path):
    shown = audited(tmp_path, "--shadows", "0", "--canaries", "20", "--json")
    printed, written = json.loads(shown.out), json.loads((tmp_path / "a" / "audit.json").read_text())
    assert printed == {"folder": "a", "report": "a/audit.html", **written}
    assert "report: a/audit.html" in shown.err


def test_overfitted_models_betray_their_rows(tmp_path):
    """A model of each hospital's own, trained long on few rows, knows them."""
    long = ["--set", "strategy=local", "--set", "training.rounds=40", "--set", "data.rows=500"]
    long += ["--set", "data.features=50"]
    long += ["--set", "training.learning_rate=0.5"]
    audited(tmp_path, "--shadows", "0", "--canaries", "0", *long)
    summary = json.loads((tmp_path / "a" / "audit.json").read_text())
    assert summary["loss_threshold"]["auroc_low"] > 0.5
    assert "lira" not in summary
    assert "one_run" not in summary


@pytest.mark.parametrize(("option", "value"), [("--shadows", "2"), ("--shadows", "-1"), ("--canaries", "-1")])
def test_numbers_that_make_no_audit_are_refused(tmp_path, option, value):
    shown = audited(tmp_path, option, value)
    assert shown.code == 2
    assert shown.err.startswith(f"raysim: {option}: {value}")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("option", ["shadows", "canaries"])
def test_counts_that_no_memory_holds_are_refused_at_once(option, tmp_path):
    done = audited(tmp_path, f"--{option}", "1000000000000")
    assert done.code == 2
    assert done.err.startswith(f"raysim: --{option}: 1,000,000,000,000 are more than the")
    assert len(done.err.splitlines()) == 1
