"""Raysim as a guest in a notebook or server: results come, and the process is afterwards as it was before."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import in_a_process
from tests.conftest import empty_store

pytestmark = pytest.mark.surroundings

ROOT = Path(__file__).parents[2]


def left_as_it_was(out: str) -> None:
    assert json.loads(out.splitlines()[-1]) == {}
    assert out.count("\n") == 1, "nothing else is printed"


def test_a_host_is_left_as_it_was(tmp_path: Path):
    """Whatever raysim imports, and where MLflow makes its store, which sets loggers."""
    environment = os.environ | {"RAYSIM_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.api.guest", "process", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    left_as_it_was(done.stdout)


@pytest.mark.parametrize("how", ["loop", "thread"])
def test_a_host_of_a_ray_is_left_as_it_was(how: str, tmp_path: Path):
    environment = {"RAYSIM_CACHE": str(tmp_path / "cache")}
    done = in_a_process(guest, [how, str(tmp_path)], empty_store(tmp_path), environment)
    assert done.code == 0, done.err
    left_as_it_was(done.out)


def guest(*arguments: str) -> None:
    """``python -m tests.api.guest`` in a process that has imported libraries already."""
    sys.argv[1:] = arguments
    runpy.run_module("tests.api.guest", run_name="__main__", alter_sys=True)
