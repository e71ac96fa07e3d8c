"""The commands that tests fork are as commands that a shell starts."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.commands import Running, in_a_process, raysim


def tell(*arguments: str) -> None:
    print(*arguments, Path.cwd(), os.environ.get("HERE"), os.environ.get("RAY_ADDRESS"), os.getsid(0) == os.getpid())
    print("an error", file=sys.stderr)
    atexit.register(print, "after all")
    sys.exit(7)


def test_a_fork_has_its_own_folder_environment_and_streams_and_ends_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RAY_ADDRESS", "nowhere")
    done = in_a_process(tell, ["a", "b"], tmp_path, {"HERE": "set"})
    assert done == (7, f"a b {tmp_path} set None True\nafter all\n", "an error\n")
    monkeypatch.setenv("HERE", "inherited")
    assert " inherited None True" in in_a_process(tell, [], tmp_path, {}).out


def wait_for(name: str) -> None:
    Path(name).touch()
    signal.pause()


@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, -15), (signal.SIGINT, 1)])
def test_a_fork_is_reached_by_signals(how: signal.Signals, code: int, tmp_path: Path):
    waiting = Running(wait_for, ["ready"], tmp_path, {})
    while not (tmp_path / "ready").exists():
        assert not waiting.ended()
    os.killpg(waiting.pid, how)
    done = waiting.wait()
    assert waiting.ended()
    assert done.code == code
    assert ("KeyboardInterrupt" in done.err) == (how is signal.SIGINT)


def test_a_command_runs_there_as_from_a_shell(tmp_path: Path):
    assert raysim(["list", "models"], tmp_path, {}).out.startswith("cifar_cnn ")
    done = raysim(["run", "missing.yaml"], tmp_path, {})
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("raysim: missing.yaml")
