"""Sums of regressions: hidden by default, and shown only where hospitals have enough rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysim.config.reading import resolve
from raysim.config.sections.secure import SecureSection
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.experiment.jobs import make_job
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.regressions.meta_analysis import MetaAnalysis
from raysim.strategies.regressions.newton import Newton
from raysim.strategies.regressions.odal import Odal
from raysim.strategies.regressions.own_intercepts import OwnIntercepts
from raysim.strategies.regressions.random_intercepts import RandomIntercepts
from raysim.strategies.selections.sampling import All
from tests.conftest import MakeFederation, job_of, run, run_strategy
from tests.equality import same_models
from tests.strategies.regressions.federations import federation_of
from tests.strategies.regressions.tables import table_g

G = table_g()
HIDING = (Newton, MetaAnalysis, Odal, OwnIntercepts, RandomIntercepts)


@pytest.fixture
def binary(tmp_path: Path) -> Federation:
    return federation_of(tmp_path / "g", G, G.y)


@pytest.mark.parametrize("kind", HIDING)
def test_sums_are_secure_where_nothing_else_is_said(binary: Federation, kind: Any) -> None:
    def secure(strategy: Any, **sections: Any) -> SecureSection | None:
        config = resolve({"data": {"source": "synthetic"}, **sections})
        return make_job(config, strategy, All(), binary.folder, 1).secure

    assert secure(kind()) == SecureSection()
    assert secure(kind(sums="clear")) is None
    assert secure(FedAvg()) is None
    assert secure(kind(), secure={"mode": "execute"}) == SecureSection(mode="execute")
    assert secure(kind(), privacy={"epsilon": 1, "delta": 1e-5}) is None
    pooled = {"unit": "patient", "mode": "pooled", "epsilon": 1, "delta": 1e-5}
    assert secure(kind(), privacy=pooled) == SecureSection()
    assert secure(kind(sums="clear"), privacy=pooled) is None


@pytest.mark.parametrize("kind", HIDING)
def test_no_bit_of_a_model_changes_and_bytes_are_counted(binary: Federation, kind: Any) -> None:
    seen = run_strategy(binary, kind(), rounds=3)
    hidden = run(binary, replace(job_of(binary, kind(), rounds=3), secure=SecureSection()), 2)
    same_models(seen, hidden)
    assert hidden.ledger.sent(1) > seen.ledger.sent(1)
    assert hidden.facts["secure_sums"] > 0
    of_rounds = [[entry.program for entry in each.ledger.entries if entry.round == 1] for each in (seen, hidden)]
    assert set(filter(None, of_rounds[0])) == set(filter(None, of_rounds[1])) != set()


@pytest.mark.parametrize("kind", HIDING)
def test_clear_sums_of_few_rows_are_refused_in_a_line(tmp_path: Path, binary: Federation, kind: Any) -> None:
    line = (
        r"^strategy\.sums: clear would let the server reconstruct the 12 rows of hospital 'h0', .* 3 columns needs 30 "
    )
    with pytest.raises(ConfigError, match=line):
        run_strategy(binary, kind(sums="clear"))
    run(binary, replace(job_of(binary, kind(sums="clear")), secure=SecureSection()), 1)  # then nobody sees them
    enough = federation_of(tmp_path / "three", G._replace(hospital=np.repeat([0, 1, 2], [30, 30, 36])), G.y)
    assert run_strategy(enough, kind(sums="clear"), rounds=2).rounds_run


@pytest.mark.parametrize(("features", "fewest"), [(2, 30), (5, 30), (6, 35)])
def test_clear_sums_need_five_rows_a_column_and_thirty(federate: MakeFederation, features: int, fewest: int) -> None:
    assert run_strategy(federate([fewest] * 3, features=features), Newton(sums="clear"), rounds=1).rounds_run
    with pytest.raises(
        ConfigError, match=f"the {fewest - 1} rows of .* {features + 1} columns needs {fewest} rows at each hospital; "
    ):
        run_strategy(federate([fewest, fewest - 1, fewest], features=features), Newton(sums="clear"))


def test_whoever_reads_hospitals_one_by_one_says_so() -> None:
    hides = {name for name in registry.entries("strategies") if registry.load("strategies", name, "")().hides_sums()}
    assert hides == {"newton", "meta_analysis", "odal", "own_intercepts", "random_intercepts"}
