"""Runs that stopped half way, for tests that change what they have kept."""

from __future__ import annotations

from functools import partial

import pytest

from tests.storage.tampered import Run, Runs


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Those that the module names in ``RUNS``."""
    return Runs(tmp_path_factory.mktemp("runs"), request.module.RUNS)


@pytest.fixture
def run(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Goes to the folder of a run by its name."""
    return partial(runs.enter, monkeypatch)
