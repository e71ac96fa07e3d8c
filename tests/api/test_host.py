"""Raysim as a guest in a notebook or server: results come, and the process is afterwards as it was before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import empty_store

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("how", ["process", "loop", "thread"])
def test_a_host_is_left_as_it_was(how: str, tmp_path: Path):
    environment = os.environ | {"RAYSIM_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    if how != "process":  # one makes MLflow's store itself, which sets loggers
        empty_store(tmp_path)
    command = [sys.executable, "-m", "tests.api.guest", how, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {}
    assert done.stdout.count("\n") == 1, "nothing else is printed"
