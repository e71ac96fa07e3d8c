"""The server of ``raysim ui`` answers as MLflow's own does, but for its Assistant."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from raysim.tracking.server import serving
from tests.conftest import empty_store


def test_the_assistant_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own text it runs commands, for whoever asks from this machine."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mlflow.py").write_text("raise SystemExit(3)")  # no module of the working directory is taken
    store = f"sqlite:///{empty_store(tmp_path) / 'mlflow.db'}"
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with serving(store, port) as server:
        for path in ("", "version", "api/2.0/mlflow/experiments/get?experiment_id=0"):
            with urllib.request.urlopen(server.page(path), timeout=60) as answer:
                assert answer.status == 200
        for path in ("config", "providers", "Config", "", "message"):
            for prefix in ("ajax-api/3.0/mlflow/assistant", "ajax-api/3.0/mlflow/%61ssistant"):
                for method in ("GET", "POST"):
                    asked = urllib.request.Request(server.page(f"{prefix}/{path}"), method=method)
                    with pytest.raises(urllib.error.HTTPError) as refused:
                        urllib.request.urlopen(asked, timeout=60)
                    with refused.value as answer:
                        assert answer.code == 403
