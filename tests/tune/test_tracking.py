"""MLflow as a sweep leaves it, and a store that goes away."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from urllib.parse import quote, unquote

import pytest

from raysim.tracking import recording
from raysim.tracking.charts import VIEW_TAG, charts_page, view_of
from raysim.tune import tracking as trackings
from raysim.tune.plan import make_plan
from raysim.tune.tracking import Conclusion, SweepTracker
from tests.conftest import empty_store
from tests.tune.conftest import small_tree
from tests.tune.test_results import trial


@pytest.fixture
def sweep(tmp_path):
    plan, config = make_plan(small_tree(seeds=[1, 2], tracking__uri=f"sqlite:///{empty_store(tmp_path)}/mlflow.db"))

    def courier():
        return SweepTracker(tmp_path, plan, config, "fingerprint")

    return courier


ONE = trial(1, 0.9, 0.1, spread=0.01, **{"strategy.lam": 0.25, "strategy.alpha": 0.5})
TWO = trial(2, 0.8, 0.2, **{"strategy.lam": 0.75, "strategy.alpha": 0.5})
BAD = trial(3, 0, 0, "failed", **{"strategy.lam": 0.5, "strategy.alpha": 0.5})


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_sweep_trial_and_seed_are_nested_runs_that_can_be_compared(sweep, tmp_path):
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "a.png").write_bytes(b"png")
    with sweep() as tracker:
        for each in (ONE, TWO, BAD):
            tracker.finished(each)
        files = {"plots/a.png": tmp_path / "plots" / "a.png"}
        tracker.conclude(Conclusion({1: True, 2: False}, 1, {"hypervolume": 0.25}, files, "said"))
    assert (tracker.pending, tracker.error) == (0, "")

    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("raysim").experiment_id
    runs = {run.info.run_name: run for run in client.search_runs([experiment])}
    assert len(runs) == 1 + 3 + 4
    whole, first, second = runs["small: trial 1 is recommended"], runs["trial 1, recommended"], runs["trial 2"]
    assert first.data.tags["mlflow.parentRunId"] == whole.info.run_id
    assert runs["trial 1, seed 2"].data.tags["mlflow.parentRunId"] == first.info.run_id
    assert (first.data.params["strategy.lam"], second.data.params["strategy.lam"]) == ("0.25", "0.75")
    assert (first.data.tags["pareto"], second.data.tags["pareto"]) == ("true", "false")
    assert [run.data.tags["verdict"] for run in (whole, first, second)] == [
        "trial 1 is recommended",
        "recommended",
        "dominated",
    ]
    assert whole.data.tags["seed"] == "1, 2"
    assert first.data.tags["strategy"] == "chip"
    assert first.data.tags["data"] == "fingerprint"
    assert first.data.tags["code"].startswith("0.")
    assert first.data.metrics["auroc"] == pytest.approx(0.9)
    assert first.data.metrics["spread/auroc"] == pytest.approx(0.01 * math.sqrt(2))
    assert [m.step for m in client.get_metric_history(first.info.run_id, "auroc")] == [2]
    assert runs["trial 1, seed 1"].data.metrics["personal/auroc"] == pytest.approx(0.91)
    assert runs["trial 3"].info.status == "FAILED"
    assert runs["trial 3"].data.tags["error"] == "OSError: no"
    assert whole.data.metrics == {"hypervolume": 0.25}
    said, links = whole.data.tags["mlflow.note.content"].split("\n\n")
    assert said == "said"
    charts, link = re.findall(r"\(([^)]*)\)", links)
    assert charts == charts_page(experiment, whole.info.run_id)
    view = client.get_experiment(experiment).tags[f"{VIEW_TAG}{whole.info.run_id}"]
    objectives = make_plan(small_tree())[0].sweep.objectives
    assert view == view_of(whole.info.run_id, ["log10 strategy.lam", "strategy.alpha"], [], objectives)
    compared = re.findall(r"[0-9a-f]{32}", unquote(link))
    assert compared[0] == first.info.run_id, "the Pareto set comes first"
    assert set(compared) == {runs[k].info.run_id for k in ("trial 1, recommended", "trial 2", "trial 3")}
    assert f"experiments={quote(json.dumps([experiment]))}" in link
    searched = {"strategy.lam", "log10 strategy.lam", "strategy.alpha"}
    assert first.data.params.keys() == searched, "what all trials share is the sweep's"
    assert float(first.data.params["log10 strategy.lam"]) == pytest.approx(math.log10(0.25))
    assert {data.dataset.digest for data in first.inputs.dataset_inputs} == {"fingerprint"}
    assert [a.path for a in client.list_artifacts(whole.info.run_id, "plots")] == ["plots/a.png"]

    # Going on with the sweep sends nothing twice, and an attempt made again takes the place of the first.
    with sweep() as again:
        again.catch_up([ONE, TWO, BAD])
        again.finished(trial(3, 0.7, 0.1, **{"strategy.lam": 0.5}))
        again.conclude(Conclusion({1: True, 2: True, 3: True}, 2, {}, {}, "said"))
    runs = {run.info.run_name: run for run in client.search_runs([experiment])}
    assert len(runs) == 1 + 3 + 6
    assert runs["trial 3"].info.status == "FINISHED"
    assert runs["trial 1"].info.run_id == first.info.run_id
    assert runs["trial 1"].data.tags["verdict"] == "not dominated"
    assert runs["trial 2, recommended"].info.run_id == second.info.run_id
    assert runs["small: trial 2 is recommended"].info.run_id == whole.info.run_id


class Away:
    """A store that answers only while it is up."""

    up = False
    started: tuple[str, ...] = ()

    def __init__(self, uri, experiment, answered):
        self._check()

    def _check(self):
        if not Away.up:
            raise ConnectionError("refused")

    def start(self, name, params, tags, parent=None):
        self._check()
        Away.started += (name,)
        return name

    def nested(self, run_id):
        return []

    def __getattr__(self, name):
        return lambda *arguments: self._check()


def test_an_outage_costs_nothing_and_what_was_kept_is_sent_later(sweep, monkeypatch, tmp_path):
    monkeypatch.setattr(recording, "Tracker", Away)
    monkeypatch.setattr(trackings, "WAITS", (0.01,))
    Away.up, Away.started = False, ()
    with sweep() as tracker:
        tracker.finished(ONE)
        tracker.finished(TWO)
        time.sleep(0.05)
    assert tracker.pending == 2
    assert tracker.error == "ConnectionError: refused"
    assert Away.started == ()

    with sweep() as tracker:
        tracker.catch_up([ONE, TWO])
        time.sleep(0.05)
        Away.up = True  # it comes back while the sweep goes on
        limit = time.monotonic() + 600
        while "trial 2" not in Away.started and time.monotonic() < limit:
            time.sleep(0.01)
    assert tracker.pending == 0
    assert [name for name in Away.started if "seed" not in name] == ["small", "trial 1", "trial 2"]
    assert json.loads((tmp_path / "mlflow.json").read_text())["trials"] == {"1": "trial 1", "2": "trial 2"}


def test_a_call_that_never_comes_back_is_left_behind(sweep, monkeypatch):
    """Whatever MLflow does inside of it: the sweep ends, and says what was not sent."""
    entered, never = threading.Event(), threading.Event()

    class Hanging(Away):
        def start(self, name, params, tags, parent=None):
            entered.set()
            never.wait()
            return name

    monkeypatch.setattr(recording, "Tracker", Hanging)
    monkeypatch.setattr(recording, "CLOSING_SECONDS", 0.2)
    Away.up = True
    with sweep() as tracker:
        tracker.finished(ONE)
        tracker.finished(TWO)
        entered.wait()
    never.set()
    assert (tracker.pending, tracker.error) == (2, "it did not answer within 0.2 s")


def test_a_sweep_that_is_stopped_is_not_running_until_it_goes_on(sweep, tmp_path):
    from mlflow.tracking import MlflowClient

    def status():
        client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
        experiment = client.get_experiment_by_name("raysim")
        runs = [] if experiment is None else client.search_runs([experiment.experiment_id])
        return {run.info.run_name: run.info.status for run in runs}

    def stopped(by, number, of):
        with sweep() as tracker:
            tracker.finished(of)
            while number not in status():
                time.sleep(0.05)
            assert status()["small"] == "RUNNING"
            raise by

    with pytest.raises(KeyboardInterrupt):
        stopped(KeyboardInterrupt(), "trial 1", ONE)
    assert (status()["small"], status()["trial 1"]) == ("KILLED", "FINISHED")
    with pytest.raises(OSError, match="no room"):
        stopped(OSError("no room"), "trial 2", TWO)
    assert (status()["small"], status()["trial 2"]) == ("FAILED", "FINISHED")
    with sweep() as tracker:
        tracker.conclude(Conclusion({1: True, 2: False}, None, {}, {}, "said"))
    assert status()["small"] == "FINISHED"
