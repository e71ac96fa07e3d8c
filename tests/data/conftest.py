"""Data tests build into a cache of their own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of this test, not there yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("RAYSIM_CACHE", str(folder))
    return folder
