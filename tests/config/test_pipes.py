"""Commands whose output nobody reads, and what is said of a command that there is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def piped(shell: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a line of bash that calls ``$R`` for raysim leaves; its exit code is that of the first command of a pipe."""
    return subprocess.run(
        ["bash", "-c", f"{shell}; exit ${{PIPESTATUS[0]}}"],
        cwd=folder,
        env={**os.environ, "R": f"{sys.executable} -m raysim", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("command", ["list strategies", "--help"])
def test_a_pipe_that_is_closed_ends_a_command_in_silence(command: str, tmp_path: Path):
    done = piped(f"$R {command} | true", tmp_path)
    assert done.returncode in (0, 141)
    assert done.stderr == ""


@pytest.mark.surroundings
@pytest.mark.parametrize("where", [">&-", "2>&1 | true"])
def test_a_run_whose_output_is_closed_goes_on(where: str, tmp_path: Path):
    small = "--set data.hospitals=4 --set data.rows=200 --set training.rounds=1 --set tracking.uri=none"
    done = piped(f"$R run --in-process {small} --out out {where}", tmp_path, RAYSIM_CACHE=str(tmp_path / "cache"))
    assert done.returncode in (0, 141), done.stderr
    assert (tmp_path / "out" / "report.html").is_file()
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("swep", "raysim: 'swep' is not a command; did you mean 'sweep'?; see 'raysim --help'\n"),
        (
            "list strategy",
            "raysim: list: 'strategy' cannot be listed; did you mean 'strategies'?; see 'raysim list --help'\n",
        ),
    ],
)
def test_what_is_no_command_is_answered_with_the_nearest(command: str, said: str, tmp_path: Path):
    done = piped(f"$R {command}", tmp_path)
    assert (done.returncode, done.stderr) == (2, said)
