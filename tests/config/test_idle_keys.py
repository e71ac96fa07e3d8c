"""Keys that the chosen rule, compressor or attack does not use, and numbers that no federation has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import raysim
from raysim.core.errors import ConfigError

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
        ({"secure": {"neighbours": 100}}, "secure.neighbours: 100 is more than each of the 8 hospitals with training"),
        (
            {"privacy": GUARANTEE | {"rows_per_patient": 7}},
            "privacy.rows_per_patient: 7 is not used by privacy.unit: 'hospital'",
        ),
        ({"privacy": GUARANTEE | {"equal_epsilon": False}}, "privacy.equal_epsilon: false is for noise of each"),
        (
            {"privacy": GUARANTEE | {"declared_public": ["metrics", "sizes", "size"]}},
            "privacy.declared_public: 'size' is named twice",
        ),
        (
            {"privacy": {"epsilon": 2, "unit": "patient", "statistics": {"metric": {}, "metrics": {}}}},
            "privacy.statistics: 'metrics' is there twice, with and without an s",
        ),
        ({"privacy": GUARANTEE, "evaluation": {"importance": 2}}, "evaluation.importance: 2 reveals values of columns"),
    ],
)
def test_what_has_no_effect_is_refused(section: dict[str, Any], line: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=line):
        raysim.run(SMALL | section, out=tmp_path / "run", in_process=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "section",
    [
        {"compression": {"name": "sign"}},
        {"compression": {"name": "none", "ratio": 0.5}},
        {"aggregation": {"name": "multi_krum", "kept": 3}},
        {"adversary": {"attack": "gaussian", "std": 2, "baseline": False}},
    ],
)
def test_the_configuration_that_a_run_wrote_runs_again(section: dict[str, Any], tmp_path: Path):
    first = raysim.run(SMALL | section, out=tmp_path / "first", in_process=True)
    again = raysim.run(tmp_path / "first" / "config.yaml", out=tmp_path / "again", in_process=True)
    name = next(iter(section))
    written = [yaml.safe_load((result.folder / "config.yaml").read_text())[name] for result in (first, again)]
    assert written[0] == written[1]
    assert written[0].items() >= section[name].items()
