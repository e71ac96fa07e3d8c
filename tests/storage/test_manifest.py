"""The manifest of a folder: what stands in it, when it is written, and what is removed by it."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raysim import __version__
from raysim.core.errors import ConfigError
from raysim.storage.manifest import Manifest, spare


def read(folder: Path) -> dict[str, object]:
    tree = json.loads((folder / "manifest.json").read_text())
    assert isinstance(tree, dict)
    return tree


def test_each_file_stands_in_it_with_its_size_and_digest(tmp_path: Path):
    manifest = Manifest.begin(tmp_path / "out", "run")
    assert read(tmp_path / "out") == {"format": 1, "kind": "run", "version": __version__, "files": {}}
    manifest.text("report.html", "ä\n")
    manifest.csv("plots/table.csv", pd.DataFrame({"a": [1]}))
    manifest.json("summary.json", {"a": None})
    with manifest.writing("models.safetensors") as path:
        path.write_bytes(b"\0\1")
    contents = {
        "report.html": "ä\n".encode(),
        "plots/table.csv": b"a\n1\n",
        "summary.json": b'{\n  "a": null\n}\n',
        "models.safetensors": b"\0\1",
    }
    for name, content in contents.items():
        assert (tmp_path / "out" / name).read_bytes() == content
    assert read(tmp_path / "out")["files"] == {
        name: {"bytes": len(content), "blake2b": hashlib.blake2b(content, digest_size=32).hexdigest()}
        for name, content in contents.items()
    }
    again = Manifest.read(tmp_path / "out")
    assert (again.kind, again.version, again.files) == ("run", __version__, manifest.files)
    assert set(again.paths()) == {*contents, "manifest.json"}
    assert "plots/table.csv" in again
    assert "table.csv" not in again


def test_files_written_together_appear_once_all_are_listed(tmp_path: Path):
    manifest = Manifest.begin(tmp_path, "run")
    with manifest.together():
        manifest.text("a.txt", "a")
        with pytest.raises(OSError, match="full"), manifest.writing("b.txt"):
            raise OSError("full")
        manifest.text("plots/c.txt", "c")
        assert read(tmp_path)["files"] == {}
        assert not (tmp_path / "a.txt").exists()
    assert list(Manifest.read(tmp_path).files) == ["a.txt", "plots/c.txt"]
    assert Manifest.read(tmp_path).changed() == []
    assert not (tmp_path / "b.txt").exists()

    def stopped():
        with manifest.together():
            manifest.text("a.txt", "another")
            manifest.text("d.txt", "d")
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        stopped()
    assert list(manifest.files) == ["a.txt", "plots/c.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "manifest.json", "plots"]
    assert (tmp_path / "a.txt").read_text() == "a"
    manifest.text("d.txt", "d")
    assert Manifest.read(tmp_path).changed() == []


def test_what_a_command_left_is_spared(tmp_path: Path):
    manifest = Manifest.begin(tmp_path / "out", "compare")
    manifest.text("runs/a/report.html", "page")
    for name in ("runs/a/report.html", "manifest.json", "runs/../runs/a/report.html"):
        with pytest.raises(
            ConfigError, match=r"^--out: .* is one of the files that raysim wrote in .*/out; name another"
        ):
            spare(tmp_path / "out" / name, "--out")
    (tmp_path / "link").symlink_to(tmp_path / "out" / "runs")
    with pytest.raises(ConfigError, match="name another"):
        spare(tmp_path / "link" / "a" / "report.html", "--out")
    spare(tmp_path / "out" / "runs" / "scores.csv", "--out")
    (tmp_path / "manifest.json").write_text("another program's")
    spare(tmp_path / "report.html", "--out")
    with pytest.raises(ConfigError, match="name another"):
        spare(tmp_path / "out" / "manifest.json", "--out")


def test_a_file_is_listed_before_it_appears_and_one_that_fails_is_neither(tmp_path: Path, monkeypatch):
    manifest = Manifest.begin(tmp_path, "run")
    manifest.text("a.csv", "first")
    with pytest.raises(ZeroDivisionError), manifest.writing("b.csv") as path:
        path.write_text(str(1 / 0))
    assert list(Manifest.read(tmp_path).files) == ["a.csv"]
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "manifest.json"]

    moved, replace = [], os.replace

    def killed(source: Path, target: Path) -> None:
        if target.name == "c.csv":
            moved.append(Manifest.read(tmp_path).files["c.csv"]["bytes"])
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        manifest.text("c.csv", "text")
    assert moved == [4]


def test_what_changed_since_is_named_below_too(tmp_path: Path):
    whole, run = Manifest.begin(tmp_path, "compare"), Manifest.begin(tmp_path / "runs" / "a" / "seed-1", "run")
    run.text("rounds.csv", "1")
    run.text("egress.csv", "1")
    whole.text("comparison.csv", "1")
    whole.add(run)
    assert list(whole.files) == ["comparison.csv", "runs/a/seed-1/manifest.json"]
    assert list(whole.paths()) == ["comparison.csv", "manifest.json"]
    assert [each.folder for each in whole.below()] == [run.folder]
    assert whole.changed() == []
    (tmp_path / "comparison.csv").write_text("2")
    (run.folder / "rounds.csv").write_text("2")
    (run.folder / "egress.csv").unlink()
    assert whole.changed() == ["comparison.csv", "runs/a/seed-1/rounds.csv", "runs/a/seed-1/egress.csv"]
    run.text("rounds.csv", "22")  # which the whole does not know of
    assert "runs/a/seed-1/manifest.json" in whole.changed()


def test_what_is_listed_is_removed_and_empty_folders_with_it(tmp_path: Path):
    whole, run = Manifest.begin(tmp_path, "compare"), Manifest.begin(tmp_path / "runs" / "a" / "seed-1", "run")
    for manifest in (whole, run):
        manifest.text("rounds.csv", "1")
        manifest.text("plots/a.png", "1")
    whole.add(run)
    (tmp_path / "plots" / "mine.png").write_text("mine")
    (tmp_path / "rounds.csv").unlink()
    again = Manifest.begin(tmp_path, "run")
    assert not again.files
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["manifest.json", "plots", "plots/mine.png"]


def test_a_sweep_is_not_written_over(tmp_path: Path):
    Manifest.begin(tmp_path, "sweep").text("trials.csv", "1")
    with pytest.raises(ConfigError, match=r"^--out: .* holds a sweep; name another folder"):
        Manifest.begin(tmp_path, "run")
    assert Manifest.read(tmp_path).changed() == []


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a//x", "./x", "", "manifest.json"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str):
    folder = tmp_path / "out"
    manifest = Manifest.begin(folder, "run")
    with pytest.raises(ValueError, match="is not the path of a file inside this folder"), manifest.writing(name):
        pass
    tree = read(folder) | {"files": {name: {"bytes": 1, "blake2b": ""}}}
    (folder / "manifest.json").write_text(json.dumps(tree))
    (tmp_path / "x").write_text("mine")
    with pytest.raises(
        ConfigError, match=r"manifest.json: cannot be read .*is not the path.*; start again in another folder"
    ):
        Manifest.begin(folder, "run")
    assert (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "manifest.json: cannot be read "),
        ("[]", "manifest.json: cannot be read "),
        ("{}", "manifest.json: cannot be read "),
        ('{"format": 2}', "manifest.json: has format 2, and this version reads 1"),
        ('{"format": 1, "kind": "run", "version": "1", "files": {"a": 3}}', "manifest.json: cannot be read "),
        ('{"format": 1, "kind": "run", "version": "1", "files": {"a": {"bytes": 3}}}', "manifest.json: cannot be "),
    ],
)
def test_a_manifest_that_cannot_be_read_is_one_line(tmp_path: Path, text: str, said: str):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ConfigError) as error:
        Manifest.read(tmp_path)
    assert str(error.value).startswith(f"{tmp_path}/{said}")
    assert len(str(error.value).splitlines()) == 1


@given(st.text(min_size=1, max_size=30))
@example(".")
def test_any_name_is_listed_or_refused(name: str):
    """Names come of hospitals and strategies too; what is listed can be read back."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        manifest = Manifest.begin(Path(folder), "run")
        try:
            manifest.text(name, "x")
        except (ValueError, OSError):
            assert not manifest.files
            return
        assert list(Manifest.read(Path(folder)).files) == [name]
        assert manifest.changed() == []
