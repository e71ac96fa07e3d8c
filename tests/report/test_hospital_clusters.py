"""Clusters of hospitals on a page: the shares and the means of signatures, by hand."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from raysim.engine.job import Outcome, Result
from raysim.report import svg
from raysim.report.supplement import hospital_clusters
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.shared.signatures import Signature
from tests.conftest import MakeFederation, run_strategy

NAMES = {("chip", "global"): "CHiP-FL, global model", ("fedavg", "global"): "FedAvg"}


@pytest.fixture
def ran(federate: MakeFederation, tmp_path: Path) -> Result:
    """Two clusters of four hospitals, with a region each."""
    federation = federate([40, 30, 20, 30], [8, 8, 8, 8])
    federation = dataclasses.replace(federation, attributes={"region": ["west", "west", "", "east"]})
    outcome = run_strategy(federation, Chip(clusters=2), rounds=1)
    outcome.cluster = np.array([1, 1, 2, 2])
    return Result("chip", False, 0, federation, outcome, tmp_path)


def test_shares_and_means_are_those_of_the_cluster_s_hospitals(ran: Result) -> None:
    (figure,) = hospital_clusters.clusters([ran], NAMES)
    shares, means = figure.charts
    assert shares.y.texts == ("region: unknown", "region: east", "region: west")
    assert [cells(shares)[row] for row in range(3)] == [["0%", "50%"], ["0%", "50%"], ["100%", "0%"]]
    assert (shares.title, means.title) == ("CHiP-FL", "CHiP-FL: signatures")
    federation = ran.federation
    rows = [federation.rows(h, "train") for h in range(4)]
    sizes = [at.stop - at.start for at in rows]
    assert cells(means)[0] == [f"{np.sqrt(sizes[0] * sizes[1]):,.0f}", f"{np.sqrt(sizes[2] * sizes[3]):,.0f}"]
    prevalence = [float(federation.y[at].mean()) for at in rows]
    assert cells(means)[1] == [f"{np.mean(prevalence[:2]):.1%}", f"{np.mean(prevalence[2:]):.1%}"]
    missing = [1 - float(federation.observed[at].mean()) for at in rows]
    assert cells(means)[2] == [f"{np.mean(missing[:2]):.1%}", f"{np.mean(missing[2:]):.1%}"]
    assert "values are means over a cluster" in figure.caption


def test_features_are_in_deviations_and_the_most_different_come_first(ran: Result) -> None:
    federation = ran.federation
    answers = hospital_clusters.signatures(federation)
    columns = federation.observed.shape[1]
    rows = np.array([1, 1, 2, 2])
    names, far, texts = hospital_clusters.cluster_means(federation, answers, rows, np.array([1, 2]))
    mean = answers[:, 2 + columns : 2 + 2 * columns]
    z = (mean - mean.mean(axis=0)) / mean.std(axis=0)
    by_hand = np.stack([z[:2].mean(axis=0), z[2:].mean(axis=0)], axis=1)
    order = np.argsort(-np.ptp(by_hand, axis=1), kind="stable")[: hospital_clusters.FEATURES]
    assert names[3:] == [f"mean {federation.features[j]}" for j in order]
    np.testing.assert_allclose(far[3:], by_hand[order], atol=1e-9)
    assert texts[3][0] == f"{by_hand[order[0], 0]:+.1f}".replace("-", "−")


def test_signatures_are_those_that_left_the_hospitals_and_shown_only_where_they_did(
    ran: Result, federate: MakeFederation, tmp_path: Path
) -> None:
    kinds = {kind for _, kind, *_ in ran.outcome.ledger.entries}
    assert Signature.name in kinds
    other: Outcome = run_strategy(ran.federation, FedAvg(), rounds=1)
    other.cluster = np.array([1, 1, 2, 2])
    untold = Result("fedavg", False, 0, ran.federation, other, tmp_path)
    (figure,) = hospital_clusters.clusters([untold], NAMES)
    assert [chart.title for chart in figure.charts] == ["FedAvg"]
    assert "told" not in figure.caption
    (both,) = hospital_clusters.clusters([ran, untold], NAMES)
    titles = ["CHiP-FL and FedAvg", "CHiP-FL and FedAvg: signatures"]
    assert [chart.title for chart in both.charts] == titles, "of the same clusters there is one map"
    other.cluster = np.array([1, 2, 2, 2])
    (apart,) = hospital_clusters.clusters([ran, untold], NAMES)
    assert [chart.title for chart in apart.charts] == ["CHiP-FL", "CHiP-FL: signatures", "FedAvg"]
    other.cluster = None
    assert hospital_clusters.clusters([untold], NAMES) == []


def cells(chart: svg.Chart) -> list[list[str]]:
    """The texts of a heat map's cells, row by row."""
    texts = re.findall(r'class="value" text-anchor="middle">([^<]*)<', str(chart.markup()))
    return [texts[i : i + 2] for i in range(0, len(texts), 2)]
