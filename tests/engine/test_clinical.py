"""Counts of scores in a run: from each hospital's rows, in the ledger, kept for later, and off where not asked for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from raysim.config.sections.evaluation import ClinicalSection, EvaluationSection
from raysim.engine.job import Outcome
from raysim.storage.clinical_tables import tables
from raysim.storage.finished import load_finished, save_finished
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.personal.ditto import Ditto
from raysim.traffic.ledger import MEASURED
from tests.conftest import MakeFederation, run_strategy

TRAIN, TEST, VALIDATION = [30, 20, 0, 25, 40], [60, 40, 5, 0, 50], [20, 20, 0, 4, 16]


def counts_of(outcome: Outcome, model: str) -> list[list[object]]:
    return [[part.tolist() for part in counts] for counts in (outcome.scores[model], outcome.validation_scores[model])]


def test_counts_are_those_of_the_predictions(federate: MakeFederation) -> None:
    federation = federate(TRAIN, TEST, validation=VALIDATION)
    outcome = run_strategy(federation, FedAvg(), rounds=3, predictions=True)
    z = outcome.predictions["global"]
    for part, counts in (("test", outcome.scores["global"]), ("validation", outcome.validation_scores["global"])):
        for h in range(5):
            rows = federation.rows(h, part)
            y = federation.y[rows]
            assert counts.rows[h] == len(y)
            assert counts.events[h] == y.sum()
            if part == "test":
                called = z[rows] >= 0
                assert counts.at_least[h, 2].tolist() == [
                    (called & (y == 1)).sum(),
                    (called & (y == 0)).sum(),
                ]
            assert counts.hospital(h).positives.sum() == y.sum()
    assert outcome.scores["global"].at_least.shape == (5, 3, 2)


def test_every_byte_of_them_is_in_the_ledger_and_no_traffic(federate: MakeFederation) -> None:
    federation = federate(TRAIN, TEST, validation=VALIDATION)
    on, off = (
        run_strategy(federation, FedAvg(), rounds=2, clinical=clinical) for clinical in (ClinicalSection(), None)
    )
    plain = [(t, kind, b.tolist()) for t, kind, _, b, _ in off.ledger.entries]
    sent = [(t, kind, b.tolist()) for t, kind, _, b, _ in on.ledger.entries]
    both = (on.scores["global"], on.validation_scores["global"])
    for entry in plain:
        sent.remove(entry)
    assert sent == [(2, MEASURED, (4 * counts.scalars).tolist()) for counts in both]
    assert not off.scores
    assert [row.bytes_up for row in on.rounds] == [row.bytes_up for row in off.rounds]
    assert np.array_equal(on.figures["global"], off.figures["global"], equal_nan=True)


def test_neither_processes_nor_a_pause_change_them(federate: MakeFederation, tmp_path) -> None:
    federation = federate(TRAIN, TEST, validation=VALIDATION)
    alone, spread = (run_strategy(federation, Ditto(), rounds=2, actors=actors) for actors in (1, 4))
    assert set(alone.scores) == set(alone.figures)
    for model in alone.scores:
        assert counts_of(alone, model) == counts_of(spread, model)
    save_finished(tmp_path, alone)
    again = load_finished(tmp_path)
    assert again is not None
    for model in alone.scores:
        assert counts_of(alone, model) == counts_of(again, model)


def test_of_several_classes_there_are_none(federate: MakeFederation) -> None:
    federation = federate(TRAIN, TEST, classes=3)
    outcome = run_strategy(federation, FedAvg(), rounds=1)
    assert not outcome.scores
    assert tables(federation, outcome, ClinicalSection()) == {}


def test_the_tables_say_what_is_undefined_and_of_whom(federate: MakeFederation) -> None:
    federation = federate(TRAIN, TEST, validation=VALIDATION)
    asked = ClinicalSection(thresholds=(0.3,), act_at=0.2, bins=5)
    outcome = run_strategy(federation, FedAvg(), rounds=3, clinical=asked)
    written = tables(federation, outcome, asked)
    clinical = written["clinical.csv"]
    assert list(clinical.columns) == [
        *("hospital", "model", "figure", "at", "threshold", "value", "low", "high", "n", "events", "of", "undefined")
    ]
    assert list(dict.fromkeys(clinical["hospital"])) == ["", *(federation.hospitals[h] for h in (0, 1, 2, 4))]
    assert (clinical["value"].isna() == (clinical["undefined"] != "")).all()
    sensitivity = clinical[clinical["figure"] == "sensitivity"]
    for _, of_one in sensitivity.groupby("hospital"):
        assert of_one["threshold"].tolist() == [0.2, 0.3], "one threshold to act at, and one more that was asked for"
    clinical = clinical[clinical["threshold"] != 0.2]
    together = clinical[clinical["hospital"] == ""].set_index("figure")
    assert together.loc["sensitivity", "n"] == sum(TEST)
    one = clinical[clinical["hospital"] == federation.hospitals[2]].set_index("figure")
    assert one.loc["calibration_slope", "undefined"] in ("fewer than 10 events or other rows", "one class only")
    # Sums over hospitals are the counts of all together.
    cells = clinical[(clinical["figure"] == "sensitivity") & (clinical["hospital"] != "")]
    right = (cells["value"] * cells["of"]).sum()
    assert together.loc["sensitivity", "value"] == pytest.approx(right / cells["of"].sum())
    bins = written["calibration.csv"]
    assert (bins["n"] > 0).all()
    for columns in (["from", "to"], ["low", "observed", "high"]):
        assert (bins[columns].diff(axis=1).iloc[:, 1:] >= -1e-12).all().all()
    assert bins.loc[bins["hospital"] == "", "n"].sum() == sum(TEST)
    curve = written["net_benefit.csv"]
    assert curve.groupby("hospital", sort=False).size().tolist() == [99, 19, 19, 19, 19]
    equity = written["clinical_equity.csv"]
    called = equity[equity["figure"] == "sensitivity"]
    assert called["at"].tolist() == [0.2, 0.3]
    assert (called["hospitals"] + called["undefined"] == 4).all()
    chosen = pd.unique(clinical.loc[clinical["figure"] == "sensitivity_at_specificity", "threshold"])
    assert len(chosen) == 1


def test_the_section_refuses_what_no_probability_is() -> None:
    for bad in ({"thresholds": [0.5, 0.2]}, {"thresholds": [0]}, {"specificity": 1}, {"bins": 1}):
        with pytest.raises(ValueError, match="clinical"):
            EvaluationSection.model_validate({"clinical": bad})
    assert EvaluationSection.model_validate({"clinical": None}).clinical is None
    assert EvaluationSection.model_validate({"clinical": {"bins": 5}}).clinical == ClinicalSection(bins=5)
