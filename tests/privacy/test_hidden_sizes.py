"""Where sizes are released with noise, nothing that a command writes or says holds the exact ones."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import raysim
from raysim.config.reading import checked
from raysim.core.errors import ConfigError
from raysim.data.federation import PARTS, Federation
from tests.conftest import empty_store

ROWS = (1307, 1511, 1823, 2029)
"""Of each hospital, so that no other number is likely to be one of theirs."""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Four hospitals whose rows are patients, split in two."""
    return hidden_tree(tmp_path, monkeypatch)


def hidden_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Their configuration, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(5)
    hospital = np.repeat([f"h{i}" for i in range(len(ROWS))], ROWS)
    x = rng.normal(size=len(hospital))
    died = (rng.random(len(x)) < 1 / (1 + np.exp(-x))).astype(int)
    rows = {"hospital": hospital, "x": x, "z": rng.normal(size=len(x)), "died": died}
    pd.DataFrame(rows).to_csv("t.csv", index=False)
    return {
        "name": "hidden",
        "data": {
            "source": "table",
            "path": str(tmp_path / "t.csv"),
            "silo": "hospital",
            "label": "died",
            "preprocessing": "none",
        },
        "training": {"rounds": 2, "batch_size": 0, "local_epochs": 1},
        "evaluation": {"every": 0},
        "strategy": {"name": "fedavg"},
        "tracking": {"uri": "none"},
        "privacy": {
            "unit": "patient",
            "mode": "local",
            "epsilon": 5,
            "sizes": "noisy",
            "statistics": {"sizes": {"epsilon": 0.02}},  # so much that released sizes are far from the true ones
            "declared_public": ["metrics"],
        },
    }


def exact(folder: Path) -> set[int]:
    """The numbers that are not to be known, of a federation in the cache folder."""
    (stored,) = (folder / "cache" / "federations").iterdir()
    federation = Federation.open(stored)
    train = federation.sizes("train").tolist()
    assert len(set(train)) == len(ROWS)
    together = [int(federation.sizes(part).sum()) for part in PARTS if part == "train"]
    return {*train, *federation.totals.tolist(), *together, int(federation.totals.sum())}


SAMPLED = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{16,}\b")
"""Names of runs and digests, whose digits are drawn again at each start, and may be anybody's."""


def numbers(text: str) -> set[int]:
    """The whole numbers in a text, with and without commas between thousands; not those that stand among letters, as
    in what is packed."""
    text = SAMPLED.sub("", text)
    plain = re.findall(r"(?<![\w.#])\d+(?![\w.%])", text)
    parted = re.findall(r"(?<![\w.#])\d{1,3}(?:,\d{3})+(?![\w.%])", text)
    return {int(each.replace(",", "")) for each in (*plain, *parted)}


def numbers_in_files(folder: Path) -> dict[str, set[int]]:
    """The whole numbers in each text that a command has written, but for sizes of files."""
    kinds = (".csv", ".json", ".jsonl", ".yaml", ".html", ".md", ".txt", ".log")
    texts = (path for path in folder.rglob("*") if path.suffix in kinds)
    kept = (path for path in texts if path.name != "manifest.json")
    return {str(path.relative_to(folder)): numbers(path.read_text()) for path in kept}


def stored(path: Path) -> dict[str, set[int]]:
    """The whole numbers in each table of a data base, those that it holds as decimals among them."""
    seen: dict[str, set[int]] = {}
    with sqlite3.connect(path) as base:
        for (table,) in base.execute("select name from sqlite_master where type = 'table'").fetchall():
            values = [value for row in base.execute(f'select * from "{table}"') for value in row]
            whole = {int(value) for value in values if isinstance(value, float) and value.is_integer()}
            seen[table] = whole | numbers("\n".join(str(value) for value in values))
    return seen


@pytest.mark.parametrize("sizes", ["noisy", "public"])
def test_mlflow_holds_no_exact_size_either(tree, tmp_path, sizes):
    """Neither its data base nor the files that it keeps; where sizes are public both do, and its page and tables."""
    tree["tracking"] = {"uri": f"sqlite:///{empty_store(tmp_path) / 'mlflow.db'}"}
    if sizes == "public":
        tree["privacy"] |= {"sizes": "public", "declared_public": ["metrics", "sizes"], "statistics": {}}
    raysim.run(tree, out=tmp_path / "out", in_process=True)
    hidden = exact(tmp_path)
    tables, files = stored(tmp_path / "mlflow.db"), numbers_in_files(tmp_path / "mlartifacts")
    assert {"metrics", "params", "tags"} <= tables.keys()
    assert tables["metrics"]
    assert files
    leaked = {name: seen & hidden for name, seen in (tables | files).items() if seen & hidden}
    assert bool(leaked) == (sizes == "public"), leaked
    leaking = {name for name, seen in numbers_in_files(tmp_path / "out").items() if seen & hidden}
    assert leaking >= ({"summary.json", "hospitals.csv", "report.html", "split.csv"} if sizes == "public" else set())


@pytest.mark.parametrize(("command", "metrics"), [("run", "public"), ("run", "noisy"), ("compare", "noisy")])
def test_no_file_and_no_line_holds_an_exact_size(tree, tmp_path, capsys, command, metrics):
    if metrics == "noisy":
        tree["privacy"] |= {"declared_public": []}
        tree["privacy"]["statistics"]["metrics"] = {"epsilon": 1.0}
    if command == "compare":
        del tree["strategy"]
        tree |= {"strategies": ["fedavg", {"name": "clustered", "clusters": 2}], "seeds": [3], "reference": "fedavg"}
        tree["privacy"]["statistics"]["signature"] = {"epsilon": 1.0}
        raysim.compare(tree, out=tmp_path / "out", in_process=True)
    else:
        raysim.run(tree, out=tmp_path / "out", in_process=True)
    hidden = exact(tmp_path)
    assert hidden & numbers(pd.DataFrame({"n": sorted(hidden)}).to_csv(index=False)) == hidden  # they would be seen
    if command == "run":
        rows = json.loads((tmp_path / "out" / "summary.json").read_text())["federation_rows"]
        assert rows == pd.read_csv(tmp_path / "out" / "hospitals.csv")["n_total"].sum()
    files = numbers_in_files(tmp_path / "out")
    assert {"summary.json" if command == "run" else "comparison.csv", "report.html", "hospitals.csv"} <= files.keys()
    assert not {name: seen & hidden for name, seen in files.items() if seen & hidden}
    said = capsys.readouterr()
    assert not numbers(said.out + said.err) & hidden


def test_it_is_said_which_number_a_hospitals_size_is(tree, tmp_path):
    """Four rows per patient: patients and evaluated rows together are far fewer than the rows."""
    table = pd.read_csv("t.csv")
    table.assign(person=np.arange(len(table)) // 4).to_csv("t.csv", index=False)
    tree["data"] |= {"group": "person", "split": {"by": "patient"}}
    tree["privacy"] |= {"rows_per_patient": 4, "statistics": {"sizes": {"epsilon": 2}}}
    raysim.run(tree, out=tmp_path / "out", in_process=True)
    hospitals = pd.read_csv(tmp_path / "out" / "hospitals.csv")
    assert (hospitals["n_total"] == hospitals["n_train"] + hospitals["n_test"]).all()
    assert hospitals["n_total"].sum() < len(table) / 2
    page = " ".join((tmp_path / "out" / "report.html").read_text().split())
    assert "the stays of a hospital are its noisy number of training patients plus its test rows" in page


@pytest.mark.parametrize("key", ["minimum", "largest"])
def test_hospitals_are_not_left_out_by_what_is_hidden(tree, key):
    tree["data"][key] = 2
    with pytest.raises(ConfigError, match=rf"data.{key}: 2 leaves out hospitals.*privacy.sizes: noisy"):
        checked(tree)
