"""Commands beside runs and sweeps that are stopped: by Ctrl-C or SIGTERM at any file that they write."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import yaml

from tests.commands import Done, in_a_process

pytestmark = pytest.mark.faults

SMALL = {
    "name": "small",
    "data": {"source": "table", "path": "rows.csv", "silo": "site", "label": "died"},
    "training": {"rounds": 2, "batch_size": 32},
    "selection": "all",
    "strategy": "fedavg",
    "tracking": {"uri": "none"},
}
STUDY = {
    "name": "study",
    "data": {"source": "digits"},
    "study": {"alphas": [0.2, 5], "clients": [5], "seeds": [0, 1], "metrics": ["wpsi"]},
}

COMMANDS: dict[str, tuple[list[str], str]] = {
    "audit": (["audit", "run.yaml", "--in-process", "--shadows", "4", "--canaries", "20", "--out", "out"], "out"),
    "study": (["study", "study.yaml", "--out", "out"], "out"),
    "report": (["report", "run", "--out", "out.html"], "out.html"),
    "predict": (["predict", "run", "rows.csv", "--out", "out.csv"], "out.csv"),
    "export": (["export", "run", "--out", "out"], "out"),
}
"""Each with what it writes."""


def stopped_at(number: str, file: str, *arguments: str) -> None:
    """``raysim`` in this process, which gets a signal as it opens its ``file``-th file to write below this folder.

    0: none, and ``opened`` says how many there were.
    """
    from raysim.cli.main import main

    here, seen, count = os.getcwd(), set[str](), [0]

    def hook(event: str, details: tuple[object, ...]) -> None:
        if event != "open" or not isinstance(details[0], str | bytes | os.PathLike):
            return
        path, flags = os.path.abspath(os.fsdecode(details[0])), details[2]
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
        if not (writes and path.startswith(here) and "cache" not in path) or path in seen:
            return
        seen.add(path)
        count[0] += 1
        if count[0] == int(file):
            os.kill(os.getpid(), int(number))

    sys.addaudithook(hook)
    sys.argv = ["raysim", *arguments]
    try:
        main()
    finally:
        if file == "0":
            Path("opened").write_text(str(count[0]))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, its rows and configurations."""
    home = tmp_path_factory.mktemp("made")
    (home / "run.yaml").write_text(yaml.safe_dump(SMALL))
    (home / "study.yaml").write_text(yaml.safe_dump(STUDY))
    rows = [f"h{i % 4},{i * 7 % 3 % 2},{20 + i % 60},{i * 13 % 11}" for i in range(200)]
    (home / "rows.csv").write_text("\n".join(["site,died,age,x", *rows]) + "\n")
    done = call(home, 0, 0, ["run", "run.yaml", "--in-process", "--out", "run"])
    assert done.code == 0, done
    return home


def call(home: Path, number: int, file: int, arguments: list[str]) -> Done:
    settings = {"RAYSIM_CACHE": str(home / "cache")}
    return in_a_process(stopped_at, [str(number), str(file), *arguments], home, settings)


def contents(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {path.name: path.read_bytes()}
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def remove(path: Path) -> None:
    if path.is_dir():
        for each in sorted(path.rglob("*"), reverse=True):
            each.rmdir() if each.is_dir() else each.unlink()
        path.rmdir()
    path.unlink(missing_ok=True)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_stopped_while_it_writes(name: str, made: Path):
    """It ends with 130 or 143, says no more than a line, and leaves whole files or none."""
    arguments, wrote = COMMANDS[name]
    remove(made / wrote)
    done = call(made, 0, 0, arguments)
    assert done.code == 0, done
    files, before = int((made / "opened").read_text()), {*made.iterdir()}
    whole = contents(made / wrote)
    assert files
    moments = sorted({1, (files + 1) // 2, files})
    signals = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
    for at, file in enumerate(moments):
        for number, code in signals if len(moments) == 1 else signals[at % 2 :][:1]:
            remove(made / wrote)
            done = call(made, number, file, arguments)
            assert done.code == code, (file, done)
            assert "Traceback" not in done.err, (file, done)
            left = contents(made / wrote) if (made / wrote).exists() else {}
            assert left.keys() <= whole.keys(), file
            for path, content in left.items():
                if path.endswith(".json"):
                    assert json.loads(content), (file, path)
                elif path.endswith(".html"):
                    assert content.rstrip().endswith(b"</html>"), (file, path)
                elif not path.endswith(".pt2"):
                    assert content == whole[path], (file, path)
            assert {*made.iterdir()} <= before, file
