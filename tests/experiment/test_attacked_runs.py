"""Runs with attacks, rules, compression and secure aggregation: what they write, and that others load nothing of it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

import raysim
from raysim.core.errors import ConfigError

SMALL: dict[str, Any] = {
    "data": {"source": "synthetic", "hospitals": 10, "rows": 900, "features": 4},
    "training": {"rounds": 3, "batch_size": 32, "local_epochs": 1},
    "selection": {"name": "all"},
    "strategy": "fedavg",
    "tracking": {"uri": "none"},
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path.parent / "cache"))


def test_an_attack_is_reported_beside_the_same_run_without_it(tmp_path):
    plain = raysim.run(SMALL, out=tmp_path / "plain", in_process=True)
    sections = {"adversary": {"attack": "label_flip", "share": 0.2}, "aggregation": {"name": "mean", "assumed": 0}}
    raysim.run(SMALL | {"aggregation": sections["aggregation"]}, out=tmp_path / "ruled", in_process=True)
    attacked = raysim.run(SMALL | sections, out=tmp_path / "attacked", in_process=True)
    adversary = attacked.summary["adversary"]
    assert (adversary["attack"], adversary["knowledge"], len(adversary["bad"])) == ("label_flip", "own", 2)
    rows = pd.read_csv(tmp_path / "attacked" / "attack.csv")
    assert set(rows["hospital"][rows["bad"]]) == set(adversary["bad"])
    assert rows["cluster"].isna().all(), "there are no clusters"
    with_attack = pd.read_csv(tmp_path / "attacked" / "hospitals.csv").query("model == 'global'").set_index("hospital")
    without = pd.read_csv(tmp_path / "ruled" / "hospitals.csv").query("model == 'global'").set_index("hospital")
    lost = (without["auroc"] - with_attack["auroc"]).to_numpy()
    np.testing.assert_allclose(rows["harm"], lost, atol=1e-12)
    assert adversary["harm_in"] == pytest.approx(np.nanmean(lost[~rows["bad"]]))
    assert adversary["harm_out"] is None
    page = (tmp_path / "attacked" / "report.html").read_text()
    assert "Attack: label_flip by 2 Byzantine hospitals with knowledge of local data alone" in page
    assert f"harm in clusters with Byzantine hospitals {adversary['harm_in']:.3f}" in page
    assert "Attack:" not in (tmp_path / "plain" / "report.html").read_text()
    assert "adversary" not in plain.summary
    assert not (tmp_path / "plain" / "attack.csv").exists()
    frozen = yaml.safe_load((tmp_path / "attacked" / "config.yaml").read_text())
    assert frozen["adversary"]["attack"] == "label_flip"
    assert "adversary" not in yaml.safe_load((tmp_path / "plain" / "config.yaml").read_text())
    again = raysim.run(tmp_path / "attacked" / "config.yaml", out=tmp_path / "again", in_process=True)
    assert again.summary["adversary"] == adversary


def test_the_cost_of_a_rule_is_measured_without_attack(tmp_path):
    """Against the uniform average, over hospitals that are honest in the attacked run."""
    rule = {"aggregation": {"name": "median", "assumed": 0.2}}
    attack = {"adversary": {"attack": "label_flip", "share": 0.2}}
    adversary = raysim.run(SMALL | rule | attack, out=tmp_path / "attacked", in_process=True).summary["adversary"]
    raysim.run(SMALL | rule, out=tmp_path / "ruled", in_process=True)
    uniform = {"strategy": {"name": "fedavg", "weights": "uniform"}}
    raysim.run(SMALL | uniform, out=tmp_path / "uniform", in_process=True)
    tables = [
        pd.read_csv(tmp_path / name / "hospitals.csv").query("model == 'global'") for name in ("ruled", "uniform")
    ]
    ruled, averaged = (table[~table["hospital"].isin(adversary["bad"])] for table in tables)
    weights = ruled["n_test"].where(ruled["auroc"].notna())
    means = [float((table["auroc"] * weights).sum() / weights.sum()) for table in (ruled, averaged)]
    assert adversary["price"]["auroc"] == pytest.approx(means[0] - means[1], abs=1e-9)
    assert adversary["price"]["auroc"] != 0
    without_rule = raysim.run(SMALL | attack, out=tmp_path / "plain", in_process=True).summary["adversary"]
    assert without_rule["price"] == {}


def test_secure_runs_are_plain_runs(tmp_path):
    plain = raysim.run(SMALL, out=tmp_path / "plain", in_process=True).summary
    for mode in ("model", "execute"):
        secure = raysim.run(SMALL | {"secure": {"mode": mode}}, out=tmp_path / mode, in_process=True).summary
        assert secure["models"] == plain["models"]
        assert secure["facts"] == {"secure_sums": 3.0, "secure_sums_given_up": 0.0}


def test_a_missing_package_is_named_with_the_line_to_type(tmp_path, monkeypatch):
    from raysim.secure import masks

    monkeypatch.setattr(masks, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"secure.mode: execute needs .* pip install 'raysim\[privacy\]'"):
        raysim.run(SMALL | {"secure": {"mode": "execute"}}, out=tmp_path / "run", in_process=True)
    raysim.run(SMALL | {"secure": {"mode": "model"}}, out=tmp_path / "model", in_process=True)


@pytest.mark.surroundings
def test_what_a_run_does_not_use_is_not_imported(tmp_path):
    program = f"""
import sys, raysim
raysim.run({SMALL!r}, out={str(tmp_path / "run")!r}, in_process=True)
rooms = ("cryptography", "raysim.robust.aggregation", "raysim.secure", "raysim.compression",
         "raysim.adversaries.collusion", "raysim.engine.attacks.byzantine", "raysim.engine.attacks.robust_rule",
         "raysim.engine.attacks.colluding", "raysim.engine.pipeline.compressing")
sys.exit(repr([name for name in sys.modules if name.startswith(rooms)]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.strip().endswith("[]"), done.stderr
