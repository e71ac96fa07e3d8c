"""Runs and comparisons under a guarantee: what they write, say and refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

import raysim
from raysim.core.errors import ConfigError
from raysim.privacy.accountant import epsilon
from raysim.privacy.events import Gaussian
from raysim.privacy.statement import Statement, together
from raysim.report.supplement.privacy import sentences

SMALL: dict[str, Any] = {
    "data": {"source": "synthetic", "hospitals": 6, "rows": 400, "features": 4},
    "training": {"rounds": 3, "batch_size": 32, "local_epochs": 1},
    "selection": {"name": "poisson", "fraction": 0.5},
    "strategy": "fedavg",
    "tracking": {"uri": "none"},
    "checkpoint": {"every": 0},
    "privacy": {
        "unit": "hospital",
        "epsilon": 3,
        "delta": 1e-3,
        "clip": 0.5,
        "declared_public": ["sizes", "metrics", "preprocessing", "choice"],
    },
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path.parent / "cache"))


@pytest.mark.parametrize(
    "guarantee",
    [
        {"unit": "hospital"},
        {"unit": "patient"},
        {"unit": "patient", "mode": "local", "equal_epsilon": False},
        {"unit": "patient", "mode": "local"},
    ],
)
def test_a_run_without_rounds_needs_no_noise_and_runs_again(tmp_path, guarantee):
    keys = {"epsilon": 3, "delta": 1e-3, "declared_public": ["sizes", "metrics", "preprocessing"]}
    changes = {"training": {"rounds": 0}, "selection": "all", "privacy": guarantee | keys}
    first = raysim.run(SMALL | changes, out=tmp_path / "first", in_process=True)
    assert first.summary["privacy"]["epsilon"] == 0.0
    again = raysim.run(tmp_path / "first" / "config.yaml", out=tmp_path / "again", in_process=True)
    assert again.summary["privacy"] == first.summary["privacy"]


def test_without_rounds_a_patient_at_two_hospitals_pays_for_both_statistics(tmp_path):
    keys = {"unit": "patient", "epsilon": 3, "delta": 1e-3, "sizes": "noisy"}
    keys |= {"declared_public": ["metrics", "preprocessing"], "statistics": {"size": {"epsilon": 0.3}}}
    changes = {"training": {"rounds": 0}, "selection": "all", "privacy": keys}
    statement = raysim.run(SMALL | changes, out=tmp_path / "run", in_process=True).summary["privacy"]
    assert statement["epsilon"] == pytest.approx(0.3, rel=0.01)
    assert statement["epsilon_at_two_hospitals"] == pytest.approx(0.6, rel=0.01)


def test_a_peer_needs_another_hospital(tmp_path):
    guarantee = {"unit": "patient", "epsilon": 3, "delta": 1e-3, "against": "peer"}
    changes = {"data": SMALL["data"] | {"hospitals": 1}, "selection": "all", "privacy": guarantee}
    changes |= {"training": {"rounds": 1}}
    with pytest.raises(ConfigError, match=r"privacy.against: peer knows its share of the noise, and only one hospital"):
        raysim.run(SMALL | changes, out=tmp_path / "run", in_process=True)


def test_a_run_writes_its_guarantee_and_runs_again_from_its_configuration(tmp_path):
    first = raysim.run(SMALL, out=tmp_path / "first", in_process=True)
    statement = first.summary["privacy"]
    assert {"unit", "against", "epsilon", "delta", "covers", "declared_public", "not_private"} <= statement.keys()
    assert statement["epsilon"] == pytest.approx(3, rel=1e-3)
    assert (statement["covers"], statement["not_private"]) == (["update"], [])
    assert statement["declared_public"] == SMALL["privacy"]["declared_public"]
    frozen = yaml.safe_load((tmp_path / "first" / "config.yaml").read_text())
    assert frozen["privacy"]["noise_multiplier"] == statement["noise_multiplier"]
    assert frozen["strategy"]["weights"] == "uniform"
    again = raysim.run(tmp_path / "first" / "config.yaml", out=tmp_path / "again", in_process=True)
    assert again.summary["privacy"] == statement
    models = [np.array(_tensors(tmp_path / name)) for name in ("first", "again")]
    assert (models[0] == models[1]).all()
    assert "Privacy: epsilon = 3" in (tmp_path / "first" / "report.html").read_text()


def _tensors(folder: Path) -> list[float]:
    from safetensors.numpy import load_file

    return [x for tensor in load_file(folder / "models.safetensors").values() for x in np.ravel(tensor).tolist()]


def test_a_noise_multiplier_gives_the_epsilon_that_is_written(tmp_path):
    privacy = {key: value for key, value in SMALL["privacy"].items() if key != "epsilon"} | {"noise_multiplier": 4.0}
    raysim.run(SMALL | {"privacy": privacy}, out=tmp_path / "run", in_process=True)
    frozen = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["privacy"]
    statement = json.loads((tmp_path / "run" / "summary.json").read_text())["privacy"]
    assert 0 < frozen["epsilon"] == pytest.approx(statement["epsilon"])


def test_what_was_not_declared_makes_epsilon_infinite_and_is_named(tmp_path):
    privacy = SMALL["privacy"] | {"declared_public": ["metrics"]}
    statement = raysim.run(SMALL | {"privacy": privacy}, out=tmp_path / "run", in_process=True).summary["privacy"]
    assert statement["epsilon"] == "inf"
    assert statement["not_private"] == ["size", "preprocessing"]
    assert statement["epsilon_of_covered"] == pytest.approx(3, rel=1e-3)


def test_a_comparison_says_what_it_costs_to_have_seen_all_of_its_runs(tmp_path):
    tree = SMALL | {"strategies": ["fedavg", "fedavgm"], "seeds": [0, 1], "reference": "fedavg"}
    del tree["strategy"]
    raysim.compare(tree, out=tmp_path / "all", in_process=True)
    said = json.loads((tmp_path / "all" / "answer.json").read_text())["reasons"]
    (whole,) = [line for line in said if "An observer of all 4 runs" in line]
    assert "epsilon = " in whole
    assert "infinite" not in whole
    assert "holds only with privacy.noise: system" in whole


def test_runs_that_share_their_noise_have_no_guarantee_for_independent_noise():
    """What one seed's runs say of the same rows under the same noise differs by no noise at all."""
    one = Statement("patient", "pooled", "outsider", 1e-5, {"outsider": 2.0}, noise="seeded")

    def said(noise, seeds):
        statement = replace(one, noise=noise)
        outcome = SimpleNamespace(privacy=statement)
        return sentences([SimpleNamespace(label="a", seed=seed, outcome=outcome) for seed in seeds])[-1]

    assert "can be subtracted" in said("seeded", [0, 0])
    assert "can be subtracted" not in said("seeded", [0, 1])
    assert "can be subtracted" not in said("system", [0, 0])


def test_known_events_compose_to_less_than_the_sum_and_others_add_up():
    one = Statement(
        "patient", "pooled", "outsider", 1e-5, {"outsider": 2.0}, releases={"outsider": [[("normal", 5.0, 0.5, 40)]]}
    )
    whole, delta, against = together([one, one])
    assert (delta, against) == (1e-5, "outsider")
    assert 0 < whole < 4.0
    other = Statement("patient", "local", "outsider", 1e-5, {"outsider": 2.0})
    assert together([one, other]) == (4.0, 2e-5, "outsider")


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (
            {"aggregation": {"name": "median"}},
            "aggregation.name: 'median' needs single updates.*privacy.unit: 'hospital'",
        ),
        ({"compression": {"name": "top_k"}}, "compression.name: 'top_k'.*privacy.mode: central"),
        ({"adversary": {"attack": "alie"}}, "adversary.attack: 'alie' needs single updates.*privacy.unit: 'hospital'"),
    ],
)
def test_sections_that_need_single_updates_are_refused(tmp_path, keys, line):
    with pytest.raises(ConfigError, match=line):
        raysim.run(SMALL | keys, out=tmp_path / "run", in_process=True)


def test_explicit_weights_by_rows_are_refused(tmp_path):
    tree = SMALL | {"strategy": {"name": "fedavg", "weights": "samples"}}
    with pytest.raises(ConfigError, match=r"strategy.weights: 'samples'.*privacy.unit: hospital"):
        raysim.run(tree, out=tmp_path / "run", in_process=True)


def test_a_statement_in_a_file_has_what_hospitals_have_of_their_own_and_nothing_else():
    of_all = Statement(
        "patient",
        "local",
        "outsider",
        1e-5,
        {"outsider": 2.0, "server": float("inf")},
        {"outsider": 2.0, "server": 3.0},
        noise_multiplier=1.5,
        clip=0.5,
    )
    written = of_all.as_json()
    assert (written["epsilon"], written["epsilons"]) == (2.0, {"outsider": 2.0, "server": "inf"})
    assert (written["delta"], written["clip"], written["noise_multiplier"]) == (1e-5, 0.5, 1.5)
    assert not {"by_hospital", "epsilon_at_two_hospitals"} & written.keys()
    with_hospitals = replace(
        of_all, by_hospital={"least": (1.0, 2.5), "most": (float("inf"), 4.0)}, at_two_hospitals=3.5
    ).as_json()
    assert with_hospitals["by_hospital"] == {
        "least": {"epsilon": 1.0, "noise_multiplier": 2.5},
        "most": {"epsilon": "inf", "noise_multiplier": 4.0},
    }
    assert with_hospitals["epsilon_at_two_hospitals"] == 3.5


def test_what_several_runs_cost_together():
    def run(epsilon, **keys):
        epsilons = {"outsider": epsilon, "server": 2 * epsilon}
        return Statement("patient", "pooled", **{"against": "outsider", "delta": 1e-5} | keys, epsilons=epsilons)

    assert together([run(1.0), run(2.0, delta=1e-6)]) == (3.0, pytest.approx(1.1e-5), "outsider")
    assert together([run(1.0), run(2.0, against="server")]) == (6.0, 2e-5, "server")
    assert together([run(1.0), run(float("inf"), delta=1e-4)]) == (float("inf"), 1e-4, "outsider")
    with_events = run(2.0, releases={"outsider": [[("normal", 5.0, 0.5, 40)]], "server": [[("normal", 4.0, 0.5, 40)]]})
    whole = together([with_events, with_events])
    assert whole == (pytest.approx(epsilon([Gaussian(5.0, 0.5, 80)], 1e-5)), 1e-5, "outsider")
    assert together([with_events, replace(with_events, unit="hospital")]) == (float("inf"), 1e-5, "outsider")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"declared_public": ["prepocessing"]},
            "privacy.declared_public: 'prepocessing' is not a kind of message that ",
        ),
        (
            {"declared_public": ["updates"]},
            "privacy.declared_public: 'updates' is computed from patients' data in training",
        ),
        ({"declared_public": ["foo"]}, "privacy.declared_public: 'foo' is not a kind of message .*; known: choice, "),
        (
            {"unit": "patient", "clip": 1.0, "declared_public": [], "statistics": {"nothing": {"epsilon": 1.5}}},
            "privacy.statistics: 'nothing' is not a kind of message that hospitals release; known: ",
        ),
        (
            {"epsilon": None, "noise_multiplier": 1e308},
            r"privacy.noise_multiplier: 1e\+308 is neither 0 nor from 1e-06",
        ),
        ({"epsilon": None, "noise_multiplier": 1e-320}, "privacy.noise_multiplier: .*is neither 0 nor from 1e-06"),
    ],
)
def test_words_and_numbers_without_a_meaning_are_refused(tmp_path, changes, line):
    with pytest.raises(ConfigError, match=line):
        raysim.run(SMALL | {"privacy": SMALL["privacy"] | changes}, out=tmp_path / "run", in_process=True)


@pytest.mark.parametrize(("strategy", "shown"), [("local", None), ("ditto", {"global"})])
def test_models_that_stay_at_hospitals_are_in_no_table_under_a_guarantee(tmp_path, strategy, shown):
    tree = SMALL | {"strategy": strategy, "selection": "all"}
    result = raysim.run(tree, out=tmp_path / "run", in_process=True)
    if shown is None:
        assert not (result.folder / "coefficients.csv").exists()
    else:
        assert set(result.coefficients["model"]) == shown
    without = raysim.run({k: v for k, v in tree.items() if k != "privacy"}, out=tmp_path / "open", in_process=True)
    assert any(model.startswith("personal/") for model in without.coefficients["model"])


def test_a_kind_that_was_never_released_is_said(tmp_path):
    statement = raysim.run(SMALL, out=tmp_path / "run", in_process=True).summary["privacy"]
    assert statement["unreleased"] == ["choice"]
    assert "named but never released: choice" in statement["statement"]
