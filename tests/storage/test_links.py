"""Folders that a stranger made: nothing outside of them is written or removed, and no pipe holds a command up."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

import raysim
from raysim.config import reading
from raysim.core import bounded
from raysim.core.errors import ConfigError
from raysim.experiment.curves.curve import begin
from raysim.report.checklist import checklist
from raysim.report.pages.again import rewritten
from raysim.serving.exported import Exported
from raysim.serving.predictor import Predictor
from raysim.storage import resume
from raysim.storage.manifest import Manifest, check_plain
from raysim.storage.results import choose_folder
from raysim.storage.tables import check_place
from tests.experiment.curves.test_curve import SETTINGS as CURVE
from tests.storage.test_resume import SMALL, go_on, here, start, stopped  # noqa: F401

UNTRACKED = SMALL | {"tracking": {"uri": "none"}}


def listing(folder: Path) -> dict[str, bytes]:
    """All files below ``folder``, with their content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_link_in_a_strangers_folder_leads_no_removal_out_of_it(here: Path):  # noqa: F811
    ours, theirs = here / "ours", here / "theirs"
    ours.mkdir(), theirs.mkdir()
    (ours / "thesis.svg").write_text("mine")
    (theirs / "plots").symlink_to(ours)
    files = {"plots/thesis.svg": {"bytes": 4, "blake2b": "0" * 64}}
    (theirs / "manifest.json").write_text(json.dumps({"format": 1, "kind": "run", "version": "0.1.0", "files": files}))
    with pytest.raises(ConfigError) as refused:
        start(UNTRACKED, "theirs")
    assert str(refused.value) == "theirs/plots: is a link, and raysim works in folders of plain files; remove it"
    assert listing(ours) == {"thesis.svg": b"mine"}


@pytest.mark.parametrize("what", ["runs", "runs/fedavg", "runs/fedavg/seed-42", "runs/fedavg/seed-42/rounds.csv"])
def test_a_linked_run_is_not_written_into(what: str, here: Path, monkeypatch):  # noqa: F811
    tree = UNTRACKED | {"strategies": [{"name": "fedavg"}], "seeds": [42]}
    stopped(monkeypatch, tree, "theirs", 3, compare=True)
    theirs, ours = here / "theirs" / what, here / "ours"
    if what.endswith(".csv"):
        theirs.parent.mkdir(parents=True, exist_ok=True)
        ours.write_text("mine")
    else:
        theirs.rename(ours)
    theirs.symlink_to(ours)
    before = listing(here / "ours") if ours.is_dir() else ours.read_text()
    with pytest.raises(ConfigError, match=r"theirs/runs.*: is a link, and raysim works"):
        go_on("theirs")
    assert (listing(ours) if ours.is_dir() else ours.read_text()) == before


def test_checkpoints_elsewhere_are_gone_on_from_by_the_run_that_they_were_begun_for(here: Path, monkeypatch):  # noqa: F811
    tree = UNTRACKED | {"checkpoint": {"every": 2, "path": str(here / "elsewhere")}}
    stopped(monkeypatch, tree, "run", 5)
    assert "resumes from round 4" in go_on("run")


def test_a_ticket_does_not_decide_whose_checkpoints_are_removed(here: Path, monkeypatch):  # noqa: F811
    tree = UNTRACKED | {"checkpoint": {"every": 2, "path": str(here / "elsewhere")}}
    stopped(monkeypatch, tree, "ours", 5)
    stopped(monkeypatch, UNTRACKED, "theirs", 3)
    (checkpoints,) = (here / "elsewhere").iterdir()
    before = listing(checkpoints)
    for run_id in (resume.read_ticket(Path(each)).id for each in ("theirs", "ours")):
        tampered = json.loads((here / "theirs" / resume.FILE).read_text())
        tampered |= {"checkpoints": str(checkpoints), "id": run_id}
        (here / "theirs" / resume.FILE).write_text(json.dumps(tampered))
        with pytest.raises(ConfigError) as refused:
            go_on("theirs")
        assert str(refused.value) == (
            f"{here}/theirs/resume.json: the checkpoints at {checkpoints} are not known to be of this run; if "
            "the run's folder was moved, move it back, otherwise start a new run"
        )
        assert listing(checkpoints) == before


def test_a_folder_that_was_moved_takes_its_checkpoints_along(here: Path, monkeypatch):  # noqa: F811
    stopped(monkeypatch, UNTRACKED, "run", 5)
    (here / "run").rename(here / "moved")
    assert "resumes from round 4" in go_on("moved")
    assert not (here / "run").exists()


def within_a_minute(do: Callable[[], Any]) -> BaseException | None:
    """What ``do`` raises; an ``AssertionError`` where it is still at it after a minute."""
    raised: list[BaseException | None] = []

    def caught() -> None:
        try:
            do()
        except BaseException as error:
            raised.append(error)
        else:
            raised.append(None)

    thread = threading.Thread(target=caught, daemon=True)
    thread.start()
    thread.join(60)
    assert raised, "it hangs"
    return raised[0]


@pytest.mark.parametrize(
    ("name", "do"),
    [
        ("config.yaml", lambda folder: reading.resolve(folder / "config.yaml")),
        ("report.json", lambda folder: rewritten(folder, None, None)),
        ("manifest.json", Manifest.read),
        ("resume.json", resume.read_ticket),
    ],
)
def test_a_pipe_is_no_file(name: str, do: Callable[[Path], Any], tmp_path: Path):
    os.mkfifo(tmp_path / name)
    error = within_a_minute(lambda: do(tmp_path))
    assert isinstance(error, ConfigError)
    assert "is a pipe" in str(error)


def test_a_pipe_in_a_folder_is_refused(tmp_path: Path):
    Manifest.begin(tmp_path / "run", "run")
    os.mkfifo(tmp_path / "run" / "rounds.csv")
    with pytest.raises(ConfigError, match=r"rounds\.csv: is a pipe, a socket or a device, and"):
        choose_folder(tmp_path / "run", "run")


def test_a_device_is_no_place_for_a_table(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "null.csv").symlink_to("/dev/null")
    for name in ("pipe.csv", "null.csv"):
        with pytest.raises(ConfigError, match=rf"--out: .*{name} is a device or a pipe, which a file would replace"):
            check_place(tmp_path / name, "--out")
    (tmp_path / "plain.csv").write_text("")
    check_place(tmp_path / "plain.csv", "--out")


def test_what_is_longer_than_allowed_is_refused_still(tmp_path: Path):
    (tmp_path / "long").write_bytes(b"123")
    assert bounded.read_bytes(tmp_path / "long", 3) == b"123"
    with pytest.raises(ValueError, match="more than 2 bytes"):
        bounded.read_bytes(tmp_path / "long", 2)


def test_what_only_reads_a_folder_follows_no_link(here: Path):  # noqa: F811
    """A curve that is drawn again writes, too: its picture would lie where a linked folder leads."""
    start(UNTRACKED, "theirs")
    (here / "curve.yaml").write_text(yaml.safe_dump(CURVE))
    (here / "ours").mkdir()
    (here / "theirs" / "linked").symlink_to(here / "ours")
    quiet = Console(quiet=True)
    reads: tuple[Callable[[Path], Any], ...] = (
        lambda folder: rewritten(folder, None, None),
        lambda folder: checklist(folder, None),
        Predictor.open,
        Exported.open,
        raysim.load,
        lambda folder: begin(here / "curve.yaml", [], None, quiet, of=folder, in_process=True, verbose=False),
    )
    for read in reads:
        with pytest.raises(ConfigError, match=r"^theirs/linked: is a link, and raysim works in folders of plain files"):
            read(Path("theirs"))
    assert listing(here / "ours") == {}


def test_a_file_that_another_process_removes_meanwhile_is_no_error(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "there").touch()
    monkeypatch.setattr(os, "walk", lambda folder: [(str(folder), [], ["gone", "there"])])
    check_plain(tmp_path)
