"""A strategy that is written wrong ends a run with exit code 2 and one line that names it, the round and the field."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysim.cli import main as cli
from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.core.errors import HospitalFailed, StrategyError
from raysim.engine.job import Round
from raysim.engine.server.coordinator import JobRun
from raysim.strategies.base import Bound, Context, FederationView, Keep, Send, State, Statistic, Strategy, statistics_of
from raysim.strategies.one_model.fedavg import FedAvg
from tests.commands import refusal
from tests.conftest import MakeFederation, job_of, run_strategy
from tests.strategies import wrong

SMALL = {
    "data.hospitals": 5,
    "data.rows": 300,
    "training.rounds": 2,
    "selection": "{name: all}",
    "tracking.uri": "none",
}

LINES = {
    "ForgetsWeight": "round 1: upload.weight: is None, so updates would be lost; give each hospital a weight, or set "
    "single=True",
    "ForgetsUpload": "round 1: upload: is None, and the result is not kept, so it would be lost; give "
    "Upload(weight), or LocalTraining(keep=True)",
    "DividesByZero": "round 1: upload.weight: the value at index 0 is not finite; give finite numbers",
    "CountsFromOne": "round 1: start: 1 is not a row of state.models; give 0 to 0, or OWN",
    "CountsFromTheEnd": "round 1: start: -1 is not a row of state.models; give 0 to 0, or OWN",
    "StartsFromNothing": "round 1: start: is LAST, but no problem precedes this one; name a row of state.models",
    "MixesNothing": "round 1: start: is MIXTURE, but mixture returns None; define mixture, or name a row of "
    "state.models",
    "SumsTooFew": "round 1: upload.sum_index: 1 is not the number of a sum; give numbers from 0 to 0, or raise sums",
    "ProximalTowardsItself": "round 1: objective.proximal.0.towards: -2 is not a row of state.models; give 0 to 0",
    "ForgetsComma": "round 1: objective.proximal: a Proximal is not a tuple of Proximal; write (term,)",
    "Unsorted": "round 1: select: the ids are not ascending, or contain duplicates; return ascending ids "
    "without duplicates",
    "InvitesStrangers": "round 1: select: 5 is not a hospital's id; give ids from 0 to 4",
    "Reshapes": "round 1: models: the rows have 68 parameters; give each row the 69 parameters of a model",
    "Explodes": "round 2: models: row 0 is not finite; take smaller steps at the server",
    "ForgetsReturn": "round 1: state: None is not a State; return one",
    "AveragesAll": "round 1: upload.sums: 1 is not the number of models, 2; give each model a sum, or override "
    "aggregate",
    "ServesNobody": "serve: serve.global: has 4 values; give an array of whole numbers, one for each of 5 hospitals",
    "ServesWhatIsNot": "serve: serve.cluster: 1 is not a row of state.models; give 0 to 0, or OWN",
    "SendsAtTheEnd": "personalize: upload: nothing is aggregated after the last round; leave upload out",
    "Wanders": "setup: cluster: 1 is not a row of state.models; give 0 to 0",
}


def refused(settings: dict[str, object], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the command line in this process; check that it refuses properly, and return what it said."""
    words = [word for key, value in (SMALL | settings).items() for word in ("--set", f"{key}={value}")]
    monkeypatch.setattr(sys, "argv", ["raysim", "run", "--in-process", "--out", "out", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    error = capsys.readouterr().err
    assert ended.value.code == 2, error
    assert not Path("out").exists(), "there is nothing to resume"
    return refusal(error)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, where anything that is written would be seen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", LINES)
def test_a_mistake_is_answered_in_one_line(name, capsys, monkeypatch):
    line = refused({"strategy.class": f"tests.strategies.wrong.{name}"}, capsys, monkeypatch)
    assert line == f"strategy '{name}', {LINES[name]}"


def test_the_line_has_the_label_and_counts(capsys, monkeypatch):
    strategy = "{class: tests.strategies.wrong.WeighsEverybody, label: mine}"
    three = "{name: uniform, fraction: 0.5, minimum: 3}"
    line = refused({"strategy": strategy, "selection": three}, capsys, monkeypatch)
    assert line == (
        "strategy 'mine', round 1: upload.weight: has 5 values; give an array of numbers, one for each of 3 hospitals"
    )


def test_a_selection_that_picks_others_than_its_candidates(capsys, monkeypatch):
    line = refused({"selection": "{class: tests.strategies.wrong.PicksStrangers}"}, capsys, monkeypatch)
    assert "round 1: select: selection PicksStrangers picks array([1, 2, 3, 4, 5]); pick ascending ids out of" in line


def test_every_mistake_is_tried():
    written = {name for name, cls in vars(wrong).items() if getattr(cls, "__module__", "") == wrong.__name__}
    assert written == {*LINES, "WeighsEverybody", "PicksStrangers"}


@dataclass(frozen=True)
class Stumbles(Strategy):
    """Its own code raises."""

    in_round: int = 2

    def aggregate(self, view, state, update):
        if view.round == self.in_round:
            raise KeyError("momentum")
        return super().aggregate(view, state, update)


def test_an_error_of_its_own_code_keeps_its_traceback_and_says_where(federate: MakeFederation):
    with pytest.raises(KeyError) as raised:
        run_strategy(federate([6, 5]), Stumbles())
    assert raised.value.__notes__ == ["strategy 'Stumbles', round 2: raised by aggregate"]
    assert raised.traceback[-1].name == "aggregate"


@dataclass(frozen=True)
class Fails(Statistic):
    """Cannot be computed."""

    name = "fails"
    sent = Send((), how="each")

    def value(self, at: Context) -> np.ndarray:
        raise RuntimeError("no disk")


@dataclass(frozen=True)
class AsksInVain(FedAvg):
    def setup(self, view: FederationView) -> State:
        statistics_of(view, Fails())
        return super().setup(view)


FAILS = (
    "^hospital 'h0' failed while running strategy 'AsksInVain', before round 1, program 'fails': RuntimeError: no disk$"
)


def test_an_error_of_a_hospital_stays_that_hospitals(federate: MakeFederation):
    with pytest.raises(HospitalFailed, match=FAILS):
        run_strategy(federate([6, 5]), AsksInVain())


@dataclass(frozen=True)
class LateMistake(FedAvg):
    """Its mistake comes in round 3."""

    def problem(self, view, state, ids):
        return super().problem(view, state, ids if view.round < 3 else ids[:-1])


def test_a_mistake_of_a_later_round_says_which(federate: MakeFederation):
    """Round 1 has been reported by then; round 2 would be once its models have been evaluated, in round 3."""
    federation = federate([6, 5, 9])
    pool = LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu")
    events = JobRun(pool, job_of(federation, LateMistake(), rounds=5)).run()
    first = next(events)
    assert isinstance(first, Round)
    assert first.round == 1
    with pytest.raises(StrategyError, match=r"^strategy 'LateMistake', round 3: start: has 2 values; give an array of"):
        next(events)


@dataclass(frozen=True)
class AtOnce(FedAvg):
    """Calls hospitals before training."""

    program: Any = None

    def setup(self, view: FederationView) -> State:
        statistics_of(view, self.program)
        return super().setup(view)


@dataclass(frozen=True)
class Sends(Statistic):
    """Sends an array, declared as it may be."""

    declared: Send
    array: Any
    stored: Mapping[str, Keep] = field(default_factory=dict)
    name = "sends"

    @property
    def keeps(self) -> Mapping[str, Keep]:
        return self.stored

    @property
    def sent(self) -> Send:
        return self.declared

    def value(self, at: Context) -> Any:
        return self.array


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (
            Sends(Send(), 1.0),
            "program 'sends': sends: only calls within a round can send sums; set how: each in its Send",
        ),
        (
            Sends(Send(how="each"), 1.0, {"own": Keep()}),
            "program 'sends': only calls within a round can store values; remove keeps= from it",
        ),
        (Sends(Send((2,), how="each"), np.ones(3)), "hospital 'h0': sends: has shape [3] but [2] is declared"),
        (Sends(Send(how="each"), np.nan), "hospital 'h0': sends: has an entry that is not finite; send finite numbers"),
        (
            Sends(Send(how="each", undefined=True), np.inf),
            "hospital 'h0': sends: has an infinite entry; use NaN for undefined values",
        ),
        (
            Sends(Send(undefined=True), 1.0),
            "program 'sends': sends.undefined: a sum cannot have undefined entries; set how: each, or leave "
            "undefined out",
        ),
        (
            Sends(Send(how="each", bound=Bound("row", 1.0)), 1.0),
            "program 'sends': sends.bound.unit: 'row' does not fit by: 'hospital' and how: 'each'; set by: 'row', or "
            "choose another unit",
        ),
        (
            Sends(Send(how="each", by="row", bound=Bound("hospital", 1.0)), 1.0),
            "program 'sends': sends.bound.unit: 'hospital' does not fit by: 'row' and how: 'each'; set by: 'hospital' "
            "and how: 'summed', or choose another unit",
        ),
    ],
)
def test_a_wrong_program_of_a_call_at_once_is_one_line(federate: MakeFederation, program: Sends, line: str):
    with pytest.raises(StrategyError) as raised:
        run_strategy(federate([6, 5]), AtOnce(program=program))
    assert str(raised.value).startswith("strategy 'AtOnce', ") or str(raised.value).startswith("strategy 'AtOnce': ")
    assert str(raised.value).endswith(line)
