"""MLflow's own pages, from a real server in a real browser: what is recorded can be found and compared there."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

import psutil
import pytest
from mlflow.tracking import MlflowClient
from rich.console import Console

from raysim.cli.commands import compare_all
from raysim.config import reading
from raysim.engine.job import Round
from raysim.tracking.client import Tracker
from tests.browser import CHROMIUM, Page, browser
from tests.conftest import empty_store


@dataclass(frozen=True)
class Served:
    """A store, MLflow's pages of it at ``address`` as ``raysim ui`` serves them, and a browser that shows them."""

    store: str
    experiment: str
    address: str
    line: str
    page: Page


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    folder = tmp_path_factory.mktemp("served")
    store = f"sqlite:///{empty_store(folder) / 'mlflow.db'}"
    tracker = Tracker(store, "raysim")
    tracker.end(tracker.start("first", {}, {}), "FINISHED")  # the address is that of the experiment with the last run
    with ui(folder, store) as (address, line), browser(folder) as page:
        yield Served(store, tracker.experiment, address, line, page)


def test_two_trials_compared_in_mlflow_show_their_own_parameters(served):
    tracker, runs = Tracker(served.store, "raysim"), []
    for lam, auroc in ((0.123, 0.811), (4.567, 0.822)):
        run = tracker.start(f"trial {len(runs) + 1}", {"strategy": {"lam": lam}}, {})
        tracker.rounds(run, [Round(t, 0.1, 5, 10, 20, {"global": {"auroc": auroc - 0.1 / t}}) for t in (1, 2, 3)])
        tracker.finish(run, {"auroc": auroc}, {}, None)
        runs.append(run)
    assert f"/#/experiments/{served.experiment}/runs?workflowType=machine_learning" in served.line
    ids = quote(json.dumps([served.experiment]))
    address = f"{served.address}/#/compare-runs?runs={quote(json.dumps(runs))}&experiments={ids}"
    texts = ("Comparing 2 Runs", "trial 1", "trial 2", "strategy.lam", "0.123", "4.567", "global/auroc")
    shown(served.page, address, *texts)


def test_the_page_that_ui_names_lists_runs_with_data_and_the_answer_is_a_run_s_description(
    served, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    settings = ["data={source: synthetic, hospitals: 6, rows: 400}", "training.rounds=2"]
    settings += [f"tracking.uri={served.store}", "strategies=[fedavg, local]", "name=compared"]
    config = reading.resolve(None, settings, reads=())
    compare_all(config, Console(quiet=True), tmp_path / "out", in_process=True, verbose=False)
    client = MlflowClient(served.store)
    by_name = {run.info.run_name: run for run in client.search_runs([served.experiment])}
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
    # Whose runs are folded below "compared".
    page = shown(served.page, served.line.split()[1], "matching runs", "synthetic", "compared")
    assert "GenAI apps" not in page.partition("compared")[2]
    shown(served.page, f"{served.address}/#/experiments/{served.experiment}/runs/{whole.info.run_id}", "report.html")


def test_lambda_against_the_worst_decile_is_two_clicks_on_the_plot_that_a_sweep_links_to(served):
    tracker = Tracker(served.store, "raysim")
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

    page, link = served.page, of("a", "Compare the trials")
    page.open(f"{served.address}/#/experiments/{served.experiment}/runs/{sweep}")
    page.open(f"{served.address}/" + page.until(f"{link}?.getAttribute('href')"))
    page.click(of("[role=tab]", "Scatter Plot"))
    chosen = page.until("document.getElementById('x-axis-selector')?.textContent")
    page.click("document.getElementById('y-axis-selector')")
    page.click(of("[role=option]", "worst_decile"))
    page.until("document.getElementById('y-axis-selector')?.textContent === 'worst_decile'")
    page.until("[...document.querySelectorAll('.js-plotly-plot text')].some((e) => e.textContent === 'worst_decile')")
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
    family = []
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


def shown(page, address, *texts):
    """The page at an address once all ``texts`` are in it."""
    page.open(address)
    page.until(f"{json.dumps(texts)}.every((text) => document.documentElement?.outerHTML.includes(text))")
    return page.run("document.documentElement.outerHTML")
