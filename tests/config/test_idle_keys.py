"""Keys that the chosen rule, compressor or attack does not use, and numbers that no federation has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import raysim
from raysim.config import reading
from raysim.core.errors import ConfigError
from raysim.experiment import idle_keys
from raysim.strategies.asynchronous.fedasync import FedAsync

SMALL: dict[str, Any] = {
    "data": {"source": "synthetic", "hospitals": 8, "rows": 400, "features": 4},
    "training": {"rounds": 1},
    "selection": "all",
    "tracking": {"uri": "none"},
    "checkpoint": {"every": 0},
}

GUARANTEE: dict[str, Any] = {"unit": "hospital", "epsilon": 2, "delta": 0.01}


@pytest.mark.parametrize(
    ("section", "line"),
    [
        (
            {"compression": {"name": "sign", "ratio": 0.5}},
            "compression.ratio: 0.5 is not used by compression.name: 'sign'",
        ),
        ({"compression": {"name": "top_k", "bits": 4}}, "compression.bits: 4 is not used by compression.name: 'top_k'"),
        (
            {"aggregation": {"name": "median", "kept": 3}},
            "aggregation.kept: 3 is not used by aggregation.name: 'median'",
        ),
        (
            {"aggregation": {"name": "krum", "bound": 2}},
            "aggregation.bound: 2.0 is not used by aggregation.name: 'krum'",
        ),
        (
            {"aggregation": {"name": "median", "cap": 9}},
            "aggregation.cap: 9 is not used by aggregation.weights: 'uniform'",
        ),
        ({"adversary": {"attack": "zero", "std": 2}}, "adversary.std: 2.0 is not used by adversary.attack: 'zero'"),
        (
            {"adversary": {"attack": "units", "rows": 0.5}},
            "adversary.rows: 0.5 is not used by adversary.attack: 'units'",
        ),
        (
            {"aggregation": {"name": "multi_krum", "kept": 100}},
            "aggregation.kept: 100 is more than the 8 hospitals with training rows",
        ),
        ({"secure": {"threshold": 100}}, "secure.threshold: 100 is more than the 8 hospitals with training rows"),
        (
            {"secure": {"neighbours": 100}},
            r"secure.neighbours: 100 is more than the number of other hospitals with training rows \(7\)",
        ),
        (
            {"privacy": GUARANTEE | {"rows_per_patient": 7}},
            "privacy.rows_per_patient: 7 is not used by privacy.unit: 'hospital'",
        ),
        ({"privacy": GUARANTEE | {"equal_epsilon": False}}, "privacy.equal_epsilon: false needs privacy.unit: patient"),
        (
            {"privacy": GUARANTEE | {"declared_public": ["metrics", "sizes", "size"]}},
            "privacy.declared_public: 'size' is named twice",
        ),
        (
            {"privacy": {"epsilon": 2, "unit": "patient", "statistics": {"metric": {}, "metrics": {}}}},
            "privacy.statistics: 'metrics' is named twice, with and without an s",
        ),
        ({"privacy": GUARANTEE, "evaluation": {"importance": 2}}, "evaluation.importance: 2 reveals values of columns"),
    ],
)
def test_what_has_no_effect_is_refused(section: dict[str, Any], line: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=line):
        raysim.run(SMALL | section, out=tmp_path / "run", in_process=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "sections",
    [
        {"compression": {"name": "sign"}, "adversary": {"attack": "gaussian", "std": 2, "baseline": False}},
        {"compression": {"name": "none", "ratio": 0.5}, "aggregation": {"name": "multi_krum", "kept": 3}},
    ],
)
def test_the_configuration_that_a_run_wrote_runs_again(sections: dict[str, Any], tmp_path: Path):
    first = raysim.run(SMALL | sections, out=tmp_path / "first", in_process=True)
    again = raysim.run(tmp_path / "first" / "config.yaml", out=tmp_path / "again", in_process=True)
    written = [yaml.safe_load((result.folder / "config.yaml").read_text()) for result in (first, again)]
    for name, keys in sections.items():
        assert written[0][name] == written[1][name]
        assert written[0][name].items() >= keys.items()


TREES: dict[str, Any] = {"strategy": "federated_trees", "model": {"name": "boosted_trees", "trees": 2}, "training": {}}
PATIENTS: dict[str, Any] = {"unit": "patient", "epsilon": 3, "delta": 1e-4}


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        ({"strategy": "newton", "training": {"batch_size": 64}}, "training.batch_size: 64 has no effect with newton"),
        ({"strategy": "newton", "training": {"stop": {}}}, r"training.stop: .* has no effect with newton"),
        (
            {"strategy": "meta_analysis", "training": {"optimizer": "adam"}},
            "training.optimizer: 'adam' has no effect with meta_analysis; remove the key, or set its default 'sgd'",
        ),
        ({"strategy": "meta_analysis"}, "training.rounds: 1 has no effect with meta_analysis"),
        (
            {"selection": {"name": "all", "fraction": 0.5}},
            "selection.fraction: 0.5 has no effect, because all has no key",
        ),
        (TREES | {"training": {"rounds": 9}}, "training.rounds: 9 has no effect with federated_trees"),
        (TREES | {"data": SMALL["data"] | {"missing_flags": False}}, "data.missing_flags: false has no effect with"),
        (TREES | {"data": SMALL["data"] | {"preprocessing": "median"}}, "data.preprocessing: 'median' has no effect"),
        (
            {"strategy": "local", "compression": {"name": "top_k"}},
            "compression.name: 'top_k' has no effect with local",
        ),
        (
            {"privacy": PATIENTS, "training": {"local_epochs": 2}},
            "training.local_epochs: 2 has no effect .* privacy.mode: pool",
        ),
        (
            {"privacy": PATIENTS, "strategy": {"name": "ifca", "clusters": 2, "averaging": "gradient"}},
            "strategy.averaging: 'gradient' has no effect with ifca without privacy.mode: local; remove the key, or "
            "set its default 'model'",
        ),
        (
            {"privacy": PATIENTS, "strategy": {"name": "fedprox", "straggler_epochs": {"hospital_1": 3}}},
            r"strategy.straggler_epochs: \{hospital_1: 3\} has no effect with fedprox without privacy.mode: local; "
            r"remove the key, or set its default \{\}",
        ),
        (
            {"secure": {"small_clusters": "merge"}},
            "secure.small_clusters: 'merge' has no effect with fedavg; remove the key, or set its default 'refuse'",
        ),
        (
            {"strategy": {"name": "fedprox", "minimum_weight": 0.2}},
            "strategy.minimum_weight: 0.2 has no effect with fedprox without weights: floor; remove the key, or set "
            "its default 0.01",
        ),
        (
            {"strategy": {"name": "fedasync", "slope": 3}},
            "slope: 3.0 has no effect with fedasync without staleness: h",
        ),
        (
            {"strategy": {"name": "fedasync", "staleness": "hinge", "exponent": 3}},
            "exponent: 3.0 has no effect with fedasync without staleness: polynomial",
        ),
        (
            {"strategy": {"name": "fedsoft", "selection": "configured", "fraction": 0.3}},
            "fraction: 0.3 has no effect with fedsoft without selection: importance",
        ),
        ({"strategy": {"name": "clust_psi", "bins": 3}}, r"bins: 3 has no effect with clust_psi without by: \[attrib"),
        (
            {"strategy": {"name": "clust_psi", "clusters": 2, "allow_one": True}},
            "allow_one: true has no effect with clust_psi without clusters: null",
        ),
        (
            {"strategy": {"name": "cs_rcfl", "folds": 3}, "training": {}},
            "folds: 3 has no effect with cs_rcfl without radii",
        ),
        (
            {"strategy": {"name": "cs_rcfl", "transfer": "plain", "radius": 0.1}, "training": {}},
            "radius: 0.1 has no effect with cs_rcfl without robust: true",
        ),
        ({"system": {"wait": 5}}, "system.wait: 5.0 has no effect with fedavg"),
        (
            {"system": {"rounds": {"deadline": 3}}},
            "system.rounds.deadline: 3 s are never exceeded, because nothing takes time",
        ),
        (
            {"strategy": "fedbuff", "system": {"latency": 1, "rounds": {"minimum_cohort": 2}}},
            "system.rounds.minimum_cohort: 2 has no effect with fedbuff",
        ),
        ({"tune": {"training.batch_size": [8, 16]}}, "tune: has no effect in raysim run"),
        ({"recalibrate": "both"}, "recalibrate: has no effect in raysim run"),
        ({"evaluation": {"groups": [], "age_bands": [50]}}, r"evaluation.age_bands: \[50.0\] divide the attribute age"),
        (
            {"adversary": {"attack": "units", "feature": "age", "stuck": True, "factor": 2}},
            "adversary.factor: 2 is not",
        ),
        ({"data": SMALL["data"] | {"rows_per_hospital": 40}}, "data.rows: 400 has no effect with rows_per_hospital"),
        (
            {"data": SMALL["data"] | {"task": "regression"}, "model": "linear_regression"}
            | {"evaluation": {"clinical": {"bins": 5}}},
            "evaluation.clinical: its figures are for two classes, but the label is a number",
        ),
    ],
)
def test_what_no_run_of_a_command_uses_is_refused(sections: dict[str, Any], line: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=line):
        raysim.run(SMALL | sections, out=tmp_path / "run", in_process=True)


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        (
            {"strategies": ["newton", "meta_analysis"], "training": {"batch_size": 8}},
            "with newton and meta_analysis; remove",
        ),
        (
            {"strategies": ["newton", "fedavg"], "models": ["logistic_regression"], "model": "mlp"},
            "model.name: 'mlp' has",
        ),
        (
            {"evaluation": {"unseen": {"joining": "fine_tune"}}},
            "evaluation.unseen.joining: fine_tune needs labelled",
        ),
    ],
)
def test_what_no_strategy_of_a_comparison_uses_is_refused(sections: dict[str, Any], line: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=line):
        raysim.compare(SMALL | {"reference": "newton"} | sections, out=tmp_path / "all", in_process=True)


def test_a_selection_of_a_strategy_that_calls_all_hospitals_is_ignored_and_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    section = {"strategy": "newton", "selection": "haccs", "training": {}}
    result = raysim.run(SMALL | section, out=tmp_path / "run", in_process=True, verbose=True)
    assert "selection: 'haccs' is ignored: with newton all hospitals take part" in capfd.readouterr().out
    written = yaml.safe_load((result.folder / "config.yaml").read_text())
    assert written["selection"]["name"] == "all"


def test_a_key_that_one_strategy_uses_is_written_for_that_strategy_alone(tmp_path: Path):
    used = {"training": {"rounds": 2, "optimizer": "adam", "learning_rate": 0.02}, "selection": {"name": "uniform"}}
    compared = {"strategies": ["newton", "fedavg"], "reference": "newton", "seeds": [1]}
    raysim.compare(SMALL | used | compared, out=tmp_path / "all", in_process=True)
    for name, optimizer, selection in (("newton", "sgd", "all"), ("fedavg", "adam", "uniform")):
        path = tmp_path / "all" / "runs" / name / "seed-1" / "config.yaml"
        written = yaml.safe_load(path.read_text())
        assert (written["training"]["optimizer"], written["selection"]["name"]) == (optimizer, selection)
        again = raysim.run(path, out=tmp_path / name, in_process=True)
        assert yaml.safe_load((again.folder / "config.yaml").read_text()) == written


def test_what_a_run_leaves_out_of_a_comparison_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    compared = {"strategies": ["newton", "local"], "reference": "local", "seeds": [1, 2]}
    result = raysim.run(SMALL | compared, out=tmp_path / "run", in_process=True, verbose=True)
    said = "strategies, seeds and reference: not used by raysim run, which trains 'fedavg' with seed 42; raysim compare"
    assert f"{said} uses them" in " ".join(capfd.readouterr().out.split())
    raysim.run(result.folder / "config.yaml", out=tmp_path / "again", in_process=True, verbose=True)
    assert "not used" not in capfd.readouterr().out


def test_a_section_that_only_an_audit_uses_is_said():
    config = reading.resolve(SMALL | {"privacy": GUARANTEE | {"audit": {"canaries": 9}}})
    assert idle_keys.remarks([(config, FedAsync())]) == ["privacy.audit: not used here; raysim audit uses it"]
    assert idle_keys.remarks([(config.replaced(privacy=None), FedAsync())]) == []


def test_a_sweep_may_search_what_only_some_trials_use(tmp_path: Path):
    strategy = FedAsync(slope=3.0)
    config = reading.resolve(SMALL | {"strategy": {"name": "fedasync", "slope": 3.0}})
    hinge = replace(strategy, staleness="hinge")
    idle_keys.check([(config, strategy), (config, hinge)])
    with pytest.raises(ConfigError, match=r"slope: 3.0 has no effect"):
        idle_keys.check([(config, strategy)])
    assert "slope" not in idle_keys.without(config, strategy).strategy.options()
    assert idle_keys.without(config, hinge).strategy.options()["slope"] == 3.0
