"""What is predicted, as reports call it, and where rows are counted to say whether acting is worth it."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import raysim
from raysim.config import plugins, reading
from raysim.config.sections.evaluation import ClinicalSection
from raysim.config.sections.plugin_sections import DataSection
from raysim.core.errors import ConfigError


@pytest.mark.parametrize(
    ("section", "phrase"),
    [
        ({"source": "synthetic"}, "death in hospital"),
        ({"source": "synthetic", "task": "regression"}, "logit of death in hospital"),
        ({"source": "synthetic", "predicts": " death within a year "}, "death within a year"),
        ({"source": "eicu", "path": "x", "task": "mortality"}, "death in hospital"),
        ({"source": "eicu", "path": "x", "task": "aki"}, "acute kidney injury within 48 hours"),
        ({"source": "yaib", "path": "x/sepsis", "eicu": "y"}, "sepsis"),
        ({"source": "table", "path": "x.csv", "silo": "site", "label": "died_early"}, "died early"),
        ({"source": "table", "path": "x.csv", "silo": "s", "label": "end", "positive": "dead"}, "end (dead)"),
        ({"source": "digits"}, "handwritten digit"),
    ],
)
def test_what_is_predicted(section: dict[str, object], phrase: str) -> None:
    assert plugins.predicted(DataSection.model_validate(section)) == phrase


@pytest.mark.parametrize("phrase", ["''", "'  '", '"two\\nlines"', "x" * 101])
def test_a_phrase_is_one_line(phrase: str) -> None:
    with pytest.raises(ConfigError, match=r"data\.predicts: .*write a phrase of 1 to 100 characters in one line"):
        reading.resolve(None, [f"data.predicts={phrase}"])


@pytest.mark.parametrize("at", [0, 1, -0.1])
def test_nobody_acts_at_no_risk_or_at_certainty(at: float) -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.clinical\.act_at"):
        reading.resolve(None, [f"evaluation.clinical.act_at={at}"])


def test_rows_are_counted_where_somebody_acts() -> None:
    assert ClinicalSection().counted_at == (0.1, 0.2, 0.5), "no further count by default"
    assert ClinicalSection(thresholds=(0.1, 0.5), act_at=0.3).counted_at == (0.1, 0.3, 0.5)
    assert ClinicalSection(thresholds=(), act_at=0.3).counted_at == (0.3,)


def test_a_run_answers_at_a_threshold_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    config = {
        "name": "mine",
        "data": {"source": "synthetic", "hospitals": 12, "rows": 1500, "features": 5, "predicts": "a bad end"},
        "strategy": "fedavg",
        "training": {"rounds": 3},
        "evaluation": {"clinical": {"act_at": 0.07}},
        "tracking": {"uri": "none"},
    }
    result = raysim.run(config, out=tmp_path / "run", in_process=True)
    tree = json.loads((tmp_path / "run" / "answer.json").read_text())
    assert tree == dict(result.answer)
    figure = next(line["figure"] for line in tree["lines"] if line["fact"] == "quality")
    clinical = pd.read_csv(tmp_path / "run" / "clinical.csv")
    here = clinical[clinical["hospital"].isna() & (clinical["at"] == 0.07)].set_index("figure")["value"]
    better = max(0.0, here["net_benefit_of_all"])
    assert figure["act_at"] == 0.07
    assert figure["net_benefit"] == pytest.approx(here["net_benefit"] - better, abs=1e-12)
    ratio = clinical[clinical["hospital"].isna() & (clinical["figure"] == "observed_over_expected")].iloc[0]
    pooled = tree["calibration"]
    assert (pooled["estimate"], pooled["low"], pooled["high"]) == pytest.approx(tuple(ratio[["value", "low", "high"]]))
    assert (tree["predicts"], tree["recommended"], tree["federate"]) == ("a bad end", None, "not tested")
    assert tree["what"].startswith("a bad end, 12 hospitals, 1,500 rows with ")
    assert "a bad end" in (tmp_path / "run" / "report.html").read_text()
    assert {line["fact"] for line in tree["lines"]} >= {"predicts", "quality", "federate", "calibration", "unseen"}
