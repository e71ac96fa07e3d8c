"""MLflow's own pages, from a real server in a real browser: what is recorded can be found and compared there."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
from urllib.parse import quote

import psutil
import pytest
from mlflow.tracking import MlflowClient
from rich.console import Console

from raysim.cli.commands import compare_all
from raysim.config import reading
from raysim.engine.job import Round
from raysim.tracking.client import Tracker
from tests.browser import CHROMIUM, browser


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
    with ui(tmp_path, store) as (address, line):
        ids = quote(json.dumps([experiment.experiment_id]))
        page = shown(f"{address}/#/compare-runs?runs={quote(json.dumps(runs))}&experiments={ids}", tmp_path)
    assert f"/#/experiments/{experiment.experiment_id}/runs?workflowType=machine_learning" in line
    assert "Comparing 2 Runs" in page
    for text in ("trial 1", "trial 2", "strategy.lam", "0.123", "4.567", "global/auroc"):
        assert text in page, text


def test_the_page_that_ui_names_lists_runs_with_data_and_the_answer_is_a_run_s_description(tmp_path, monkeypatch):
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    settings = ["data={source: synthetic, hospitals: 6, rows: 400}", "training.rounds=2", f"tracking.uri={store}"]
    config = reading.resolve(None, [*settings, "strategies=[fedavg, local]", "name=compared"], reads=())
    compare_all(config, Console(quiet=True), tmp_path / "out", in_process=True, verbose=False)
    client = MlflowClient(store)
    kept = client.get_experiment_by_name("raysim")
    assert kept is not None
    by_name = {run.info.run_name: run for run in client.search_runs([kept.experiment_id])}
    whole, run = by_name["compared"], by_name["fedavg, seed 42"]
    assert {"auroc/fedavg", "auroc/local", "worst_decile/fedavg"} <= set(whole.data.metrics)
    assert {"auroc", "worst_decile", "hospitals/gini", "global/auroc", "traffic/bytes_up", "time/seconds"} <= set(
        run.data.metrics
    )
    (answer, *_) = json.loads((tmp_path / "out" / "answer.json").read_text())["reasons"]
    note = whole.data.tags["mlflow.note.content"]
    assert answer in note
    assert str(tmp_path / "out" / "report.html") in note
    (data,) = run.inputs.dataset_inputs
    assert (data.dataset.name, data.dataset.digest) == ("synthetic", run.data.tags["data"])
    with ui(tmp_path, store) as (address, line):
        page = shown(line.split()[1], tmp_path)
        described = shown(f"{address}/#/experiments/{kept.experiment_id}/runs/{whole.info.run_id}", tmp_path)
    for text in ("matching runs", "synthetic", "compared"):  # whose runs are folded below it
        assert text in page, text
    assert "GenAI apps" not in page.partition("compared")[2]
    assert "report.html" in described


def test_lambda_against_the_worst_decile_is_two_clicks_on_the_plot_that_a_sweep_links_to(tmp_path):
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    tracker = Tracker(store, "raysim")
    sweep, runs = tracker.start("sweep", {}, {}), []
    for lam in (0.01, 0.1, 1.0):
        run = tracker.start(f"trial {len(runs)}", {"strategy.lam": lam}, {}, sweep)
        tracker.metrics(run, [("auroc", 0.8, 0), ("gini", 0.1, 0), ("worst_decile", 0.6 - lam / 10, 0)])
        tracker.end(run, "FINISHED")
        runs.append(run)
    tracker.tag(sweep, {"mlflow.note.content": f"[Compare the trials]({tracker.side_by_side(runs)})"})
    tracker.end(sweep, "FINISHED")

    def of(selector, text):
        return f"[...document.querySelectorAll('{selector}')].find((e) => e.textContent.trim() === '{text}')"

    with ui(tmp_path, store) as (address, _), browser(tmp_path) as page:
        page.open(f"{address}/#/experiments/{tracker.experiment}/runs/{sweep}")
        page.open(address + "/" + page.until(f"{of('a', 'Compare the trials')}?.getAttribute('href')"))
        page.click(of("[role=tab]", "Scatter Plot"))
        chosen = page.until("document.getElementById('x-axis-selector')?.textContent")
        page.click("document.getElementById('y-axis-selector')")
        page.click(of("[role=option]", "worst_decile"))
        page.until("document.getElementById('y-axis-selector')?.textContent === 'worst_decile'")
        page.until(
            "[...document.querySelectorAll('.js-plotly-plot text')].some((e) => e.textContent === 'worst_decile')"
        )
    assert chosen == "strategy.lam"


@contextlib.contextmanager
def ui(folder, store):
    """``raysim ui``: its address and the line that it prints once it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "raysim", "ui", "--uri", store, "--port", str(port)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line.startswith(f"MLflow: http://127.0.0.1:{port}/#/experiments/"), (line, server.poll())
        family = psutil.Process(server.pid).children(recursive=True)
        assert sum("uvicorn" in " ".join(each.cmdline()) for each in family) <= 2, "one worker, and who started it"
        yield f"http://127.0.0.1:{port}", line
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=60)
        assert server.returncode == 130
        assert not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in family)


def shown(address, folder):
    """The page at an address as a browser has built it."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=30000", "--dump-dom"]
    command = [CHROMIUM, *flags, f"--user-data-dir={folder / 'profile'}", "--window-size=1600,1200", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
