"""Whether small hospitals gain more: a sentence of the page, by the slope that keeps its size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from raysim.engine.job import Result
from raysim.report.hospital.gains import compared_with
from raysim.report.supplement import gain_by_size
from raysim.report.supplement.gain_by_size import sentence, slope
from raysim.statistics.differences.one_hospital import Sent, one_seed
from raysim.statistics.meta_analysis.gain_slope import GainSlope, gain_slope, smoothed_variances
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.references.local import Local
from tests.conftest import MakeFederation, run_strategy

SIZES = [60, 40, 80, 30, 120, 50, 70, 45, 55, 90, 65, 35]
KEY, ALONE = ("fedavg", "global"), ("local", "personal")


def results(federate: MakeFederation, tmp_path: Path, sizes: list[int]) -> list[Result]:
    federation = federate(sizes, sizes, features=4)
    return [
        Result(label, alone, 7, federation, run_strategy(federation, strategy, rounds=2), tmp_path, alone=alone)
        for label, strategy, alone in (("fedavg", FedAvg(), False), ("local", Local(), True))
    ]


def test_the_slope_is_that_of_gains_over_training_alone(federate: MakeFederation, tmp_path: Path) -> None:
    ours, alone = results(federate, tmp_path, SIZES)
    pair = (
        Sent(ours.outcome.pairs["global"], ours.outcome.sketches["global"]),
        Sent(alone.outcome.pairs["personal"], alone.outcome.sketches["personal"]),
    )
    found, at = slope([pair], ours.federation.totals), ours.federation.task.figures.index("auroc")
    gains = ours.outcome.figures["global"][:, at] - alone.outcome.figures["personal"][:, at]
    events, others = pair[0].pairs.events, pair[0].pairs.non_events
    variance = smoothed_variances(one_seed(*pair).own, events, others, ours.federation.totals)
    assert found == pytest.approx(gain_slope(gains, variance, ours.federation.totals))
    said = sentence([ours, alone], KEY, ALONE)
    assert "small hospitals gain" in said.lower()
    assert f"{found.halving:+.3f}" in said
    assert "HC3" in said


@pytest.mark.parametrize(
    ("found", "begin"),
    [
        (
            GainSlope(-0.02, -0.03, -0.01, 0.001, 0.002),
            "Small hospitals gain more over training alone: halving the size changes the gain in AUROC by +0.014",
        ),
        (GainSlope(0.02, 0.01, 0.03, 0.001, 0.002), "Small hospitals gain less over training alone"),
        (GainSlope(-0.02, -0.03, -0.01, 0.001, 0.2), "Not demonstrated that small hospitals gain more"),
    ],
)
def test_both_tests_must_agree(found: GainSlope, begin: str, federate, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(gain_by_size, "slope", lambda *_: found)
    assert sentence(results(federate, tmp_path, SIZES[:3]), KEY, ALONE).startswith(begin)


def test_few_hospitals_and_no_training_alone(federate: MakeFederation, tmp_path: Path) -> None:
    both = results(federate, tmp_path, SIZES[:5])
    assert sentence(both, KEY, ALONE) == (
        "Whether small hospitals gain more was not tested: 10 judged hospitals of different sizes are needed."
    )
    assert sentence(both[:1], KEY, ALONE) == ""


def test_of_several_models_trained_alone_one_is_compared_with(federate: MakeFederation, tmp_path: Path) -> None:
    ours, alone = results(federate, tmp_path, SIZES[:3])
    both = [ours, alone, replace(alone, label="local, mlp")]
    assert compared_with(both, "fedavg", KEY) == ALONE
    assert compared_with(both, "fedavg", KEY, ("local, mlp", "personal")) == ("local, mlp", "personal")
    assert sentence(both, KEY, None) == ""


def test_the_reference_is_compared_with_by_its_other_model(federate: MakeFederation, tmp_path: Path) -> None:
    """Gains over the recommended model itself, recalibrated or not, would all be 0."""
    ours, alone = results(federate, tmp_path, SIZES[:3])

    def against(models: list[str], recommended: str, run: Result = ours) -> tuple[str, str] | None:
        figures = dict.fromkeys(models, next(iter(run.outcome.figures.values())))
        served = replace(run, outcome=replace(run.outcome, figures=figures))
        return compared_with([served], "fedavg", (run.label, recommended))

    both = ["global", "personal"]
    assert against(both, "global") == ("fedavg", "personal")
    assert against(both, "personal") == ("fedavg", "global")
    assert against([*both, "recalibrated"], "recalibrated") == ("fedavg", "global")
    assert against(["global", "recalibrated"], "recalibrated") is None
    assert against(["global"], "global") is None
    assert against(["personal"], "personal", alone) is None
    assert compared_with([ours], "fedavg", ("chip", "personal")) == KEY
