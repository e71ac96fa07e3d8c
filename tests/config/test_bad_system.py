"""Unreliable hospitals that cannot be: every refusal is one line that names the field, the value and the remedy."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from rich.console import Console

from raysim.cli import commands
from raysim.config import reading
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.server.job_checks import check_job
from raysim.strategies.fairness.qfedavg import QFedAvg
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.selections.sampling import Uniform
from raysim.strategies.selections.superquantile import Superquantile
from raysim.virtual_time.hospitals import resolve
from tests.conftest import MakeFederation, job_of, run_strategy
from tests.virtual_time.unreliable import CONFIG, SIZES, seconds, system, trace

INF, NAN = float("inf"), float("nan")


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


def refused(values: Any) -> str:
    with pytest.raises(ConfigError) as error:
        reading.resolve({"system": values})
    return str(error.value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rows_per_second": -5}, "system.rows_per_second: -5 is not greater than 0"),
        ({"rows_per_second": {"uniform": [-1, 5]}}, "system.rows_per_second: -1 is not greater than 0"),
        (
            {"rows_per_second": {"uniform": [5, 1]}},
            "system.rows_per_second: uniform takes the smaller number first, but 5 is above 1",
        ),
        ({"rows_per_second": {"gamma": [5, 1]}}, "system.rows_per_second: {'gamma': [5, 1]} is not a number or one of"),
        ({"latency": {"lognormal": [5]}}, "system.latency: lognormal takes two numbers, not 1"),
        ({"latency": {"choice": []}}, "system.latency: choice takes at least one number"),
        ({"latency": "slow"}, "system.latency: 'slow' is not a number or one of {uniform: [...]}"),
        (
            {"rows_per_second": {"uniform": [1, INF]}},
            "system.rows_per_second: uniform takes two finite numbers, not [1",
        ),
        ({"rows_per_second": {"loguniform": [1, INF]}}, "system.rows_per_second: loguniform takes two finite numbers"),
        ({"rows_per_second": {"lognormal": [1, NAN]}}, "system.rows_per_second: lognormal takes two finite numbers"),
        ({"latency": {"lognormal": [1, INF]}}, "system.latency: lognormal takes two finite numbers, not [1, inf]"),
        ({"latency": {"choice": [1, INF]}}, "system.latency: inf is not at least 0 and finite"),
        ({"target": {"auroc": NAN}}, "system.target.auroc: nan is not a finite number"),
        ({"dropout": 1.0}, "system.dropout: 1 is not in [0, 1)"),
        ({"availability": 0}, "system.availability: 0 is not in (0, 1]"),
        ({"hospitals": {"h1": {"uplink": -1}}}, "system.hospitals.h1.uplink: -1 is not greater than 0"),
        ({"hospitals": {"h1": {"speed": 1}}}, "system.hospitals.h1.speed: unknown key"),
        ({"bandwidth": 3}, "system.bandwidth: unknown key"),
        ({"rounds": {"deadlin": 3}}, "system.rounds.deadlin: unknown key; did you mean 'deadline'?"),
        ({"rounds": {"late": "discount"}}, "system.rounds.late: discount, but without a deadline no hospital is late"),
        ({"rounds": {"late": "discount", "deadline": 1, "over_selection": 1}}, "system.rounds.late: discount cannot"),
        ({"rounds": {"minimum_cohort": 0}}, "system.rounds.minimum_cohort: 0 is not at least 1"),
        ({"trace": "t.csv", "availability": 0.5}, "system.trace: cannot be combined with availability"),
        ({"trace_period": 5}, "system.trace_period: there is no trace to repeat"),
    ],
)
def test_impossible_settings_are_refused_by_name(values, said):
    assert refused(values).startswith(said)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["h0,0,5"], "has no line for hospital 'h1'; add one"),
        (["h0,0,5", "h9,1,2"], "line 3: no hospital is called 'h9'; known: h0, h1"),
        (["h0,0,5", "h1,7,3"], "line 3: from 7 to 3 is not an interval; give 0 <= from < to"),
        (["h0,0,5", "h1,noon,3"], "line 3, from: 'noon' is not a number"),
        (["h0,0,5", "h1,1"], "has 2 fields in line 3, but 3 in the first line; correct line 3"),
        (["h0,,", "h1,,"], "has no interval for any hospital; add some"),
        (["h0,0,50", "h1,,"], "line 2: the value 50 of column 'to' is after the end of the period, 40; raise"),
    ],
)
def test_a_wrong_trace_is_refused_by_line(lines, said, tmp_path):
    with pytest.raises(ConfigError) as error:
        resolve(system(trace=str(trace(tmp_path, *lines)), trace_period=40), ("h0", "h1"), 1)
    assert str(error.value).startswith("system.trace: ")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hospital,uplink\nh0,5\n", "has no line for hospital 'h1'; add one"),
        ("hospital,uplink\nh0,5\nh1,-2\n", "line 3, uplink: -2 is not greater than 0"),
        ("hospital,uplink\nh0,5\nh1,fast\n", "line 3, uplink: 'fast' is not a number"),
        ("hospital,uplink\nh0,5\nh0,6\n", "line 3: names 'h0' a second time; keep one line"),
        ("hospital,upink\nh0,5\n", "has an unknown column 'upink'; did you mean 'uplink'?"),
        ("hospital,uplink,uplink\nh0,5,9\nh1,5,9\n", "has two columns named 'uplink'; rename one"),
        ("name,uplink\nh0,5\n", "has no column 'hospital'; it has name, uplink"),
        (None, "does not exist; check the path"),
    ],
)
def test_a_wrong_table_is_refused_by_line(text, said, tmp_path):
    path = tmp_path / "speeds.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as error:
        resolve(system(table=str(path)), ("h0", "h1"), 1)
    assert str(error.value).startswith("system.table: ")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"hospitals": {"h7": {"uplink": 1}}}, "system.hospitals: no hospital is called 'h7'; known: h0, h1"),
        ({"rounds": {"minimum_cohort": 7}}, "system.rounds.minimum_cohort: 7 is more than the 6 hospitals"),
        ({"rounds": {"over_selection": 0.3}}, "system.rounds.over_selection: 0.3, but the selection All has no"),
        ({"dropout": {"lognormal": [0.5, 3.0]}}, "system.dropout: the value sampled for h1 is 3.89804, not in [0, 1)"),
    ],
)
def test_what_does_not_fit_the_federation_is_refused_before_anything_starts(section, said, federation):
    with pytest.raises(ConfigError) as error:
        check_job(job_of(federation, FedAvg(), system=system(**section)), federation)
    assert str(error.value).startswith(said)


def test_a_run_in_which_nothing_can_happen_ends_with_the_reason(federation):
    slow = seconds(3, 4, 5, 6, 7, 8, rounds={"deadline": 2})
    with pytest.raises(ConfigError, match=r"^system.rounds.deadline: 2 s are too short: .* need 3 s until 1 of"):
        run_strategy(federation, FedAvg(), system=slow)
    with pytest.raises(ConfigError, match=r"^system.rounds.deadline: 5 s are too short: .* need 6 s until 4 of"):
        run_strategy(
            federation, FedAvg(), system=seconds(3, 4, 5, 6, 7, 8, rounds={"deadline": 5, "minimum_cohort": 4})
        )
    with pytest.raises(ConfigError, match=r"^system.rounds.minimum_cohort: 4 is more than the 3 hospitals whose"):
        run_strategy(federation, FedAvg(), selection=Uniform(0.5, 1), system=system(rounds={"minimum_cohort": 4}))
    with pytest.raises(ConfigError, match=r"^system.rounds.minimum_cohort: 4 is more than the 3 hospitals whose"):
        run_strategy(
            federation,
            FedAvg(),
            selection=Superquantile(0.5, 0.5, 1),
            system=system(rounds={"minimum_cohort": 4, "retries": 3}),
        )
    with pytest.raises(ConfigError, match=r"^system.rounds: none of 2 rounds brought 6 updates"):
        run_strategy(federation, FedAvg(), rounds=2, system=system(availability=0.1, rounds={"minimum_cohort": 6}))
    with pytest.raises(ConfigError, match=r"^system.rounds: none of 3 rounds brought 6 updates"):
        run_strategy(federation, FedAvg(), system=system(dropout=0.9, rounds={"minimum_cohort": 6}))
    with pytest.raises(ConfigError, match=r"^system: fewer than 6 updates arrived, 1001 times in a row"):
        run_strategy(federation, FedAvg(), system=system(dropout=0.99, rounds={"minimum_cohort": 6, "retries": 2000}))
    late = seconds(1, 1, 9, 1, 1, 1, rounds={"deadline": 5, "late": "discount"})
    with pytest.raises(
        ConfigError,
        match=r"^system.rounds.late: discount is for strategies whose only model is .* start; set late: drop",
    ):
        run_strategy(federation, Chip(clusters=2), system=late)
    with pytest.raises(
        ConfigError, match=r"^system.rounds.late: discount lowers the weights .* have no weights; set late: drop"
    ):
        run_strategy(federation, QFedAvg(), system=late)


def test_a_target_must_have_a_better_and_a_worse(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("size_bias", "auroq", "mae"):
        tree = yaml.safe_load(CONFIG) | {"system": {"target": {name: 1.0}}}
        (tmp_path / "c.yaml").write_text(yaml.safe_dump(tree))
        with pytest.raises(ConfigError, match=rf"^system.target: '{name}' is not a metric to reach; "):
            commands.compare_all(reading.resolve(tmp_path / "c.yaml"), Console(), None, in_process=True, verbose=False)
