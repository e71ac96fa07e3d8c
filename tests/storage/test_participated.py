"""How often each hospital took part, in ``hospitals.csv``, of every kind of strategy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from rich.console import Console

from raysim.cli import commands
from raysim.config import reading
from raysim.traffic.ledger import UPDATE, Ledger

SMALL: dict[str, Any] = {
    "data": {"source": "synthetic", "hospitals": 8, "rows": 400, "features": 4},
    "training": {"rounds": 6, "batch_size": 32},
    "selection": {"name": "inverse_sqrt", "fraction": 0.4, "minimum": 2},
    "tracking": {"uri": "none"},
}
SLOW = {"rows_per_second": {"lognormal": [50, 1.0]}, "dropout": 0.4}
UNRELIABLE = {"system": SLOW | {"rounds": {"deadline": 4, "over_selection": 0.5, "minimum_cohort": 1}}}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path.parent / "cache"))
    return tmp_path


def run_once(tree: dict[str, Any], out: str, compare: bool = False) -> pd.DataFrame:
    Path(f"{out}.yaml").write_text(yaml.safe_dump(tree))
    command = commands.compare_all if compare else commands.run_one
    command(reading.resolve(Path(f"{out}.yaml")), Console(quiet=True), Path(out), in_process=True, verbose=False)
    return pd.read_csv(Path(out) / "hospitals.csv")


def by_egress(folder: str) -> pd.Series:
    """Counted in ``egress.csv``, message by message."""
    sent = pd.read_csv(Path(folder) / "egress.csv")
    rounds = pd.read_csv(Path(folder) / "rounds.csv")["round"]
    updates = sent[(sent["kind"] == "update") & sent["round"].between(1, rounds.max())]
    return updates.groupby("hospital")["round"].nunique()


@pytest.mark.parametrize(
    "more",
    [
        {"strategy": "fedavg"},
        {"strategy": {"name": "fine_tuning"}},  # trains once more after the last round, and sends nothing
        {"strategy": "fedavg", "secure": {}},
        {"strategy": "fedavg"} | UNRELIABLE,
        {"strategy": {"name": "fedbuff", "buffer": 3}, "system": SLOW},
    ],
)
def test_rounds_in_which_a_hospital_sent_an_update(here: Path, more: dict[str, Any]) -> None:
    table = run_once(SMALL | more, "run")
    assert (table["rounds"] == 6).all()
    counted = by_egress("run").reindex(table["hospital"], fill_value=0)
    assert table["participated"].dtype == table["rounds"].dtype == np.int64
    assert table["participated"].tolist() == counted.tolist()
    assert table["participated"].sum() > 0
    assert table["participated"].max() <= 6
    if more == {"strategy": "fedavg"}:
        of_one = table.drop_duplicates("hospital")
        cohorts = pd.read_csv(Path("run") / "rounds.csv")["cohort_size"]
        assert of_one["participated"].sum() == cohorts.sum()


@pytest.mark.parametrize("strategy", ["newton", "meta_analysis", "own_intercepts"])
def test_rounds_in_which_a_hospital_sent_the_sums_of_a_regression(here: Path, strategy: str) -> None:
    table = run_once({"data": SMALL["data"], "strategy": strategy}, "run")
    sent = pd.read_csv(here / "run" / "egress.csv")
    counted = sent[sent["program"].notna() & (sent["round"] > 0)].groupby("hospital")["round"].nunique()
    rounds = pd.read_csv(here / "run" / "rounds.csv")["round"].max()
    assert table["participated"].tolist() == counted.reindex(table["hospital"], fill_value=0).tolist()
    assert table["participated"].max() == table["rounds"].max() == rounds


def test_a_comparison_with_references_and_a_private_strategy(here: Path) -> None:
    private = {"unit": "hospital", "clip": 1.0, "noise_multiplier": 1.0}
    strategies = [{"name": "fedavg"}, {"name": "local"}, {"name": "centralized"}]
    table = run_once(SMALL | {"strategies": strategies, "seeds": [0]}, "compared", compare=True)
    references = table["strategy"].isin(["local", "centralized"])
    assert (table.loc[references, "participated"] == 0).all()
    assert (table["rounds"] == 6).all()
    of_runs = [
        pd.read_csv(path)
        for path in sorted(Path("compared").glob("**/hospitals.csv"))
        if path.parent.name != "compared"
    ]
    both = pd.concat(of_runs)
    assert sorted(both["participated"]) == sorted(table["participated"])
    assert table.loc[~references, "participated"].sum() > 0
    hidden = run_once(SMALL | {"strategy": "fedavg", "privacy": private, "selection": {"name": "all"}}, "private")
    assert not {"participated", "rounds"} & set(hidden.columns)


def test_rounds_are_counted_once_and_others_not_at_all() -> None:
    ledger = Ledger()
    for t, kind, ids in ((0, UPDATE, [0]), (1, UPDATE, [0, 2]), (1, UPDATE, [2]), (2, "size", [1]), (2, UPDATE, [2])):
        ledger.add(t, kind, np.array(ids), 1)
    ledger.add(3, UPDATE, np.array([1]), 1)  # after the last round
    assert ledger.rounds_with((UPDATE,), 4, range(1, 3)).tolist() == [1, 0, 2, 0]
