"""Runs that several tests of this folder use are made once."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for finished runs and their table; see :mod:`tests.serving.runs`."""
    return tmp_path_factory.mktemp("runs")
