"""MLflow's own pages, from a real server in a real browser: what is recorded can be found and compared there.

The server answers as MLflow's own does, but for its Assistant.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from urllib.parse import quote

import psutil
import pytest
from mlflow.tracking import MlflowClient
from rich.console import Console

from raysim.cli import main as cli
from raysim.cli.commands import compare_all
from raysim.config import reading
from raysim.engine.job import Round
from raysim.experiment.notes import TITLE
from raysim.tracking import server as servers
from raysim.tracking.charts import LONGEST, charts_page, table_page, view_of
from raysim.tracking.client import Tracker
from raysim.tracking.server import TrackingServer
from tests.browser import CHROMIUM, Page, browser
from tests.commands import raysim, started
from tests.conftest import empty_store
from tests.waiting import until

pytestmark = pytest.mark.surroundings


@dataclass(frozen=True)
class Served:
    """A store, MLflow's pages of it at ``address`` as ``raysim ui`` serves them, and a browser that shows them."""

    store: str
    experiment: str
    address: str
    line: str
    page: Page


@pytest.fixture(scope="module")
def answering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str, str]]:
    """A store, its experiment, the address at which ``raysim ui`` serves them, and the line that it printed."""
    folder = tmp_path_factory.mktemp("served")
    store = f"sqlite:///{empty_store(folder) / 'mlflow.db'}"
    tracker = Tracker(store, "raysim")
    tracker.end(tracker.start("first", {}, {}), "FINISHED")  # the address is that of the experiment with the last run
    (folder / "mlflow.py").write_text("raise SystemExit(3)")  # no module of the working directory is taken
    with ui(folder, store) as (address, line):
        yield store, tracker.experiment, address, line


@pytest.fixture(scope="module")
def served(answering: tuple[str, str, str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield Served(*answering, page)


def test_the_server_answers_as_mlflows_own_but_for_its_assistant(answering):
    """By its own text the assistant runs commands, for whoever asks from this machine."""
    _, _, address, _ = answering
    for path in ("", "version", "api/2.0/mlflow/experiments/get?experiment_id=0"):
        with urllib.request.urlopen(f"{address}/{path}", timeout=60) as answer:
            assert answer.status == 200
    for path in ("config", "providers", "Config", "", "message"):
        for prefix in ("ajax-api/3.0/mlflow/assistant", "ajax-api/3.0/mlflow/%61ssistant"):
            for method in ("GET", "POST"):
                asked = urllib.request.Request(f"{address}/{prefix}/{path}", method=method)
                with pytest.raises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(asked, timeout=60)
                with refused.value as answer:
                    assert answer.code == 403


def test_two_trials_compared_in_mlflow_show_their_own_parameters(served):
    tracker, runs = Tracker(served.store, "raysim"), []
    for lam, auroc in ((0.123, 0.811), (4.567, 0.822)):
        run = tracker.start(f"trial {len(runs) + 1}", {"strategy": {"lam": lam}}, {})
        tracker.rounds(run, [Round(t, 0.1, 5, 10, 20, {"global": {"auroc": auroc - 0.1 / t}}) for t in (1, 2, 3)])
        tracker.finish(run, {"auroc": auroc}, {}, None)
        runs.append(run)
    assert f"/{table_page(served.experiment)}" in served.line
    ids = quote(json.dumps([served.experiment]))
    address = f"{served.address}/#/compare-runs?runs={quote(json.dumps(runs))}&experiments={ids}"
    texts = ("Comparing 2 Runs", "trial 1", "trial 2", "strategy.lam", "0.123", "4.567", "global/auroc")
    shown(served.page, address, *texts)


def test_the_page_that_ui_names_is_a_table_of_figures_in_which_runs_are_named_by_their_answers(
    served, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    settings = ["data={source: synthetic, hospitals: 6, rows: 400}", "training.rounds=2"]
    settings += [f"tracking.uri={served.store}", "strategies=[fedavg, ditto, local]", "name=compared", "seeds=[42]"]
    config = reading.resolve(None, settings, reads=())
    compare_all(config, Console(quiet=True), tmp_path / "out", in_process=True, verbose=False)
    client = MlflowClient(served.store)
    by_name = {run.info.run_name: run for run in client.search_runs([served.experiment])}
    run = by_name["fedavg, seed 42"]
    (whole,) = [each for name, each in by_name.items() if name.startswith("compared")]
    assert {"auroc/fedavg", "auroc/local", "worst_decile/fedavg"} <= set(whole.data.metrics)
    assert {"auroc", "worst_decile", "hospitals/gini", "global/auroc", "traffic/bytes_up", "time/seconds"} <= set(
        run.data.metrics
    )
    answered = json.loads((tmp_path / "out" / "answer.json").read_text())
    (answer, *_) = answered["reasons"]
    verdict = whole.data.tags["verdict"]
    assert verdict == answered.get("headline", answer)
    assert whole.info.run_name.startswith(f"compared: {verdict[:40]}")
    assert len(whole.info.run_name) <= TITLE
    assert (whole.data.tags["strategy"], whole.data.tags["seed"]) == (answered["recommended"], "42")
    assert whole.data.tags["predicts"] == run.data.tags["predicts"] == answered["predicts"]
    taken = by_name[f"{answered['recommended']}, seed 42"]
    for name in ("auroc", "worst_decile", "observed_over_expected"):
        assert whole.data.metrics[name] == taken.data.metrics[name] > 0
    note = whole.data.tags["mlflow.note.content"]
    assert answer in note
    assert str(tmp_path / "out" / "report.html") in note
    (data,) = run.inputs.dataset_inputs
    assert (data.dataset.name, data.dataset.digest) == ("synthetic", run.data.tags["data"])
    # Whose runs are folded below "compared".
    page = shown(served.page, served.line.split()[1], "matching runs", "compared: ")
    assert "GenAI apps" not in page.partition("compared")[2]
    columns = ["metrics.`auroc`", "metrics.`worst_decile`", "metrics.`observed_over_expected`", "tags.`strategy`"]
    seen = "[...new Set([...document.querySelectorAll('[col-id]')].map((e) => e.getAttribute('col-id')))]"
    served.page.until(f"{json.dumps(columns)}.every((name) => {seen}.includes(name))")
    shown(served.page, f"{served.address}/#/experiments/{served.experiment}/runs/{whole.info.run_id}", "report.html")


def test_every_searched_key_is_drawn_against_the_worst_decile_without_a_click(served, tmp_path, monkeypatch):
    tracker = Tracker(served.store, "raysim")
    sweep = tracker.start("sweep", {}, {})
    for k, lam in enumerate((0.01, 0.1, 1.0)):
        run = tracker.start(f"drawn {k}", {"training.rounds": k + 3, "strategy.lam": lam}, {}, sweep)
        tracker.metrics(run, [("auroc", 0.8, 0), ("gini", 0.1, 0), ("worst_decile", 0.6 - lam / 10, 0)])
        tracker.end(tracker.start(f"seed of {k}", {}, {}, run), "FINISHED")
        tracker.end(run, "FINISHED")
    keys = ["training.rounds", "strategy.lam"]
    tracker.show(sweep, view_of(sweep, keys, [], {"worst_decile": "max", "gini": "min"}))
    tracker.end(sweep, "FINISHED")
    (tmp_path / "mlflow.json").write_text(json.dumps({"sweep": sweep, "trials": {}}))
    address = named_by_ui(served, tmp_path, monkeypatch)
    assert address == f"{served.address}/{charts_page(served.experiment, sweep)}"
    served.page.open(address)
    titles = "[...document.querySelectorAll('.js-plotly-plot')].map((e) => e.querySelector('{}')?.textContent)"
    axes = ", ".join(titles.format(f".{axis}title") for axis in "xy")
    drawn = [[key, figure] for key in keys for figure in ("worst_decile", "hospitals/gini")]
    shown = f"(([x, y]) => x.map((key, i) => [key, y[i]]))([{axes}])"
    served.page.until(f"{json.dumps(drawn)}.every((e) => {shown}.some((d) => d[0] === e[0] && d[1] === e[1]))")
    text = served.page.run("document.body.innerText")
    assert "3 matching runs" in " ".join(text.split()), "trials alone: neither the sweep nor their seeds"
    assert text.index("drawn 0") < text.index("drawn 1") < text.index("drawn 2"), "the best worst decile on top"


@pytest.mark.parametrize(
    ("held", "said"),
    [("{}", "MLflow has no sweep of this folder"), ('{"sweep": "gone"}', "does not hold this sweep")],
)
def test_a_folder_whose_charts_mlflow_does_not_have_is_one_line(served, tmp_path, held, said):
    (tmp_path / "mlflow.json").write_text(held)
    done = raysim(["ui", ".", "--uri", served.store, "--port", "0", "--no-open"], tmp_path, {})
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert said in done.err


def test_a_view_of_very_many_keys_is_cut_to_what_mlflow_takes():
    digests = [hashlib.sha256(str(k).encode()).hexdigest() for k in range(800)]
    few, many = (view_of("run", digests[:count], [], {"auroc": "max"}) for count in (2, 800))
    assert [section["name"] for section in unpacked(few)["compareRunSections"]] == [*digests[:2], "All searched keys"]
    assert LONGEST - 200 < len(many) <= LONGEST
    assert len(unpacked(many)["compareRunCharts"]) == len(unpacked(many)["compareRunSections"]) > 100


def unpacked(view):
    """A view as MLflow reads it."""
    return json.loads(zlib.decompress(base64.b64decode(view.removeprefix("deflate;"))))


def named_by_ui(served, folder, monkeypatch):
    """The page that ``raysim ui`` names for the sweep in a folder, with the server that stands in place of its own."""
    standing, asked = TrackingServer(served.address, SimpleNamespace(wait=lambda: 0)), []
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["raysim", "ui", ".", "--uri", served.store, "--port", "7"])
    monkeypatch.setattr(servers, "serving", lambda *place: asked.append(place) or contextlib.nullcontext(standing))
    with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, asked) == (0, [(served.store, 7)])
    return printed.getvalue().removeprefix("MLflow: ").split()[0]


@contextlib.contextmanager
def ui(folder, store):
    """``raysim ui``: its address and the line that it prints once it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = started(["ui", "--uri", store, "--port", str(port)], folder, {})
    family = []
    try:
        until(lambda: server.printed().endswith("\n") or server.ended())
        line = server.printed()
        assert line.startswith(f"MLflow: http://127.0.0.1:{port}/#/experiments/"), (line, server.ended())
        family = psutil.Process(server.pid).children(recursive=True)
        assert sum("uvicorn" in " ".join(each.cmdline()) for each in family) <= 2, "one worker, and who started it"
        yield f"http://127.0.0.1:{port}", line
    finally:
        os.kill(server.pid, signal.SIGINT)
        assert server.wait().code == 130
        assert not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in family)


def shown(page, address, *texts):
    """The page at an address once all ``texts`` are in it."""
    page.open(address)
    page.until(f"{json.dumps(texts)}.every((text) => document.documentElement?.outerHTML.includes(text))")
    return page.run("document.documentElement.outerHTML")
