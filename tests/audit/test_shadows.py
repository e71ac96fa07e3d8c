"""Federations side by side are what each is alone, and an audit's page says what was found."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from raysim.config.reading import resolve
from raysim.core.streams import stream
from raysim.data.derived.rearranged import copies, halves
from raysim.experiment.audits import shadows
from raysim.experiment.runs import Experiment
from raysim.experiment.session import open_session
from raysim.report.pages.audit import by_size, lead
from tests.audit.test_command import ROOT, audited, federation

SMALL = ["data.hospitals=8", "data.rows=300", "training.rounds=3", "training.batch_size=0", "evaluation.every=0"]


@pytest.mark.parametrize(
    ("strategy", "selection", "at_once"),
    [
        ("fedavg", "all", True),
        ("fedavg", "{name: uniform, fraction: 0.4}", True),
        ("{name: fedprox, mu: 0.1}", "all", True),
        ("fine_tuning", "all", True),
        ("{name: hierarchical, clusters: 2}", "all", True),
        ("{name: chip, clusters: 2}", "all", True),
        ("ditto", "all", True),
        ("fedper", "all", True),
        ("local", "all", True),
        ("{name: ifca, clusters: 2}", "all", True),
        ("scaffold", "all", False),
        ("centralized", "all", False),
        ("{name: fedgmc, clusters: 2}", "all", False),
        ("fedbuff", "all", False),
    ],
)
def test_federations_side_by_side_are_what_each_is_alone(tmp_path, monkeypatch, strategy, selection, at_once):
    model = ["model={name: mlp, hidden: [4]}"] if strategy == "fedper" else []
    settings = [*SMALL, *model, f"selection={selection}", f"strategy={strategy}"]
    config = resolve(ROOT / "experiments" / "audit.yaml", settings)
    experiment = Experiment(config, [config], (config.seed,), tmp_path / "run")
    data, job = experiment.federations[config.seed], experiment.job(config.seed)
    asked = job.evaluation.model_copy(update={"every": 0, "predictions": True, "groups": ()})
    job = replace(job, evaluation=asked)
    count = 3 if at_once else 2
    trained = np.stack([halves(data, stream(5, "shadow", j)) for j in range(count)])

    def outputs(name):
        (tmp_path / name).mkdir()
        said: list[str] = []
        each = shadows.outputs_of_shadows(
            job,
            data,
            trained,
            lambda played: open_session(played.totals, config.resources, in_process=True, verbose=False),
            tmp_path / name,
            said.append,
        )
        return each, said

    together, said = outputs("together")
    monkeypatch.setattr(shadows, "can_be_together", lambda job: False)
    alone, in_turn = outputs("alone")
    assert together.shape[:2] == (count, len(data.y))
    assert len(in_turn) == count
    assert len(said) == (1 if at_once else count)
    np.testing.assert_array_equal(together, alone)
    assert not np.array_equal(alone[0], alone[1])


def test_more_than_fits_is_played_in_parts(tmp_path, monkeypatch):
    config = resolve(ROOT / "experiments" / "audit.yaml", [*SMALL, "selection=all"])
    experiment = Experiment(config, [config], (config.seed,), tmp_path / "run")
    data, job = experiment.federations[config.seed], experiment.job(config.seed)
    job = replace(job, evaluation=job.evaluation.model_copy(update={"every": 0, "predictions": True, "groups": ()}))
    trained = np.stack([halves(data, stream(5, "shadow", j)) for j in range(5)])
    monkeypatch.setattr(shadows, "MOST", 2 * data.X.size)
    said: list[str] = []
    shadows.outputs_of_shadows(
        job,
        data,
        trained,
        lambda played: open_session(played.totals, config.resources, in_process=True, verbose=False),
        tmp_path,
        said.append,
    )
    assert said == ["shadow 2 of 5", "shadow 4 of 5", "shadow 5 of 5"]


def test_copies_train_on_rows_of_their_own(tmp_path):
    before = federation(tmp_path, [(2, 1, 2), (1, 0, 3)])
    (tmp_path / "copies").mkdir()
    trained = np.zeros((2, 9), bool)
    trained[0, [0, 4, 5]] = True
    trained[1, [3, 8]] = True
    after = copies(before, trained, tmp_path / "copies")
    assert after.hospitals == ("h0, 0", "h1, 0", "h0, 1", "h1, 1")
    expected = [[0, 4], [5], [9 + 3], [9 + 8]]
    assert [after.source_rows[after.rows(h, "train")].tolist() for h in range(4)] == expected
    assert [after.source_rows[after.rows(h, "validation")].tolist() for h in range(4)] == [[2], [], [9 + 2], []]
    np.testing.assert_array_equal(np.sort(after.source_rows), np.arange(18))
    np.testing.assert_array_equal(after.X, before.X[after.source_rows % 9])
    np.testing.assert_array_equal(after.people, after.source_rows % 9)


def test_the_page_says_and_shows_what_was_found(tmp_path):
    shown = audited(tmp_path, "--shadows", "8", "--set", "selection=all")
    assert shown.code == 0, shown.err
    page = (tmp_path / "a" / "audit.html").read_text()
    summary = json.loads((tmp_path / "a" / "audit.json").read_text())
    for sentence in lead(summary):
        assert sentence.replace("'", "&#39;") in page
    assert re.findall(r'<figure id="([^"]+)"', page) == ["inversion", "by-size"]
    assert page.count(' class="c9 open"') == 22 + 1, "a feature each, and the legend"
    assert "No privacy guarantee is claimed against an auditor who sees the last model." in page
    table = pd.read_csv(tmp_path / "a" / "membership.csv")
    assert f"{table.loc[table['hospital'] == '(all)', 'auroc'].iloc[-1]:.3f}" in page


def test_what_is_said_of_size_needs_an_interval():
    figures = {"auroc": 0.6, "auroc_low": 0.55, "auroc_high": 0.65, "slope_per_doubling": -0.02}
    figures |= {"slope_low": -0.03, "slope_high": -0.01, "smaller_leak_more": True, "larger_leak_more": False}
    assert "smaller hospitals leak more: -0.0200 for twice the rows (-0.0300 to -0.0100)." in by_size("lira", figures)
    open_ended = figures | {"slope_high": 0.01, "smaller_leak_more": False}
    assert "cannot be shown" in by_size("lira", open_ended)
    assert "fewer than ten hospitals" in by_size("lira", figures | {"slope_low": None})


def test_a_broken_promise_leads_the_page():
    bound = {"sees": "each sum of every round", "right": 99, "guesses": 100, "canaries": 200, "ceiling": 3.6}
    broken = lead({"one_run": bound | {"epsilon_at_least": 2.9, "epsilon_claimed": 1.0}})
    assert broken[0].endswith("The run claims 1: its guarantee is broken, and its models are not to go out.")
    kept = lead({"one_run": bound | {"epsilon_at_least": 0.4, "epsilon_claimed": 1.0}})
    assert kept[-1].endswith(
        "That does not refute the epsilon of 1 that the run claims; so many records can show 3.60 at most."
    )
