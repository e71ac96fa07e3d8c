"""MLflow's own pages, from a real server in a real browser: what is recorded can be compared there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from urllib.parse import quote

import pytest
from mlflow.tracking import MlflowClient

from raysim.engine.job import Round
from raysim.tracking.client import Tracker

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


def test_two_trials_compared_in_mlflow_show_their_own_parameters(tmp_path):
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    tracker = Tracker(store, "raysim")
    runs = []
    for lam, auroc in ((0.123, 0.811), (4.567, 0.822)):
        run = tracker.start(f"trial {len(runs) + 1}", {"strategy": {"lam": lam}}, {})
        tracker.rounds(run, [Round(t, 0.1, 5, 10, 20, {"global": {"auroc": auroc - 0.1 / t}}) for t in (1, 2, 3)])
        tracker.finish(run, {"auroc": auroc}, {}, None)
        runs.append(run)
    experiment = MlflowClient(store).get_experiment_by_name("raysim")
    assert experiment is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "raysim", "ui", "--uri", store, "--port", str(port)],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(f"{address}/health", server)
        shown = f"runs={quote(json.dumps(runs))}&experiments={quote(json.dumps([experiment.experiment_id]))}"
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=30000", "--dump-dom"]
        page = subprocess.run(
            [CHROMIUM, *flags, f"--user-data-dir={tmp_path / 'profile'}", f"{address}/#/compare-runs?{shown}"],
            capture_output=True,
            text=True,
            timeout=120,
        ).stdout
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)
    assert "Comparing 2 Runs" in page
    for text in ("trial 1", "trial 2", "strategy.lam", "0.123", "4.567", "global.auroc"):
        assert text in page, text


def _wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(240):
        assert server.poll() is None, "the server ended"
        try:
            urllib.request.urlopen(address, timeout=2).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.25)
        else:
            return
    raise AssertionError(f"{address} does not answer")
