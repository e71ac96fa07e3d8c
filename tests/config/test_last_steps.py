"""``strategy.personalization``: one step or a list in order, for every strategy, written out in full; a comparison adds
recalibration to each strategy that lacks it.
"""

from __future__ import annotations

from typing import Any

import pytest

from raysim.config import plugins, reading
from raysim.config.schema import Config
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.personal.fine_tuning import FineTuning
from raysim.strategies.shared.personalization import LastSteps, Personalization, Recalibration

SECTIONS = {"name": "recalibrate", "method": "eb", "rows": "validation"}
TUNED = {"epochs": 2, "learning_rate": 0.03}


def resolved(strategy: Any) -> Config:
    return reading.resolve({"strategy": strategy})


def as_section(strategy: Any) -> Any:
    return resolved(strategy).frozen()["strategy"].get("personalization")


@pytest.mark.parametrize("name", sorted(registry.entries("strategies")))
def test_every_strategy_takes_it_and_is_the_same_strategy(name: str) -> None:
    plain, config = resolved(name), resolved({"name": name, "personalization": {"name": "recalibrate"}})
    assert plugins.build_strategy(config.strategy) == plugins.build_strategy(plain.strategy)
    assert plugins.build_last_steps(config.strategy) == LastSteps(recalibration=Recalibration())
    assert plugins.build_last_steps(plain.strategy) == LastSteps()
    # What is written can be read again, and is then the same.
    again = reading.resolve(config.frozen())
    assert again.frozen() == config.frozen()
    assert plugins.build_last_steps(again.strategy) == LastSteps(recalibration=Recalibration())


def test_what_is_written_has_all_keys() -> None:
    assert as_section("fedavg") is None
    assert as_section({"name": "fedavg", "personalization": None}) is None
    assert as_section({"name": "fedavg", "personalization": []}) is None
    assert as_section({"name": "fedavg", "personalization": "recalibrate"}) == SECTIONS
    assert as_section({"name": "fedavg", "personalization": {"epochs": 2}}) == TUNED
    assert as_section({"name": "fedavg", "personalization": [{"epochs": 2}, "recalibrate"]}) == [TUNED, SECTIONS]
    assert as_section({"name": "chip", "personalization": {"epochs": 2}}) == TUNED
    closed = {"name": "recalibrate", "method": "closed"}
    # A strategy that fine-tunes by itself goes on doing so.
    assert as_section({"name": "chip", "personalization": closed}) == [
        {"epochs": 1, "learning_rate": 0.03},
        SECTIONS | {"method": "closed"},
    ]


def test_who_fine_tunes_by_itself_gets_the_step_without_a_name() -> None:
    section = resolved({"name": "fine_tuning", "personalization": [{"epochs": 2}, "recalibrate"]}).strategy
    assert plugins.build_strategy(section) == FineTuning(personalization=Personalization(2))
    assert plugins.build_last_steps(section) == LastSteps(None, Recalibration())
    other = resolved({"name": "fedavg", "personalization": [{"epochs": 2}, "recalibrate"]}).strategy
    assert plugins.build_strategy(other) == FedAvg()
    assert plugins.build_last_steps(other) == LastSteps(Personalization(2), Recalibration())


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({"name": "recalibrat"}, "strategy.personalization.name: 'recalibrat' is not a step after the last round; use"),
        ({"name": "recalibrate", "method": "isotonic"}, "strategy.personalization.method: 'isotonic'"),
        ({"name": "recalibrate", "rows": "train"}, "strategy.personalization.rows: 'train'"),
        ({"name": "recalibrate", "epochs": 1}, "strategy.personalization.epochs: unknown key"),
        ({"epoch": 1}, "strategy.personalization.epoch: unknown key; did you mean 'epochs'?"),
        ({"epochs": -1}, "strategy.personalization.epochs: -1 is not at least 0"),
        (3, "strategy.personalization: 3 is not a step"),
        (["recalibrate", {"epochs": 1}], "strategy.personalization.1: comes after recalibrate, which must be the last"),
        (["recalibrate", "recalibrate"], "strategy.personalization.1: comes after recalibrate, which must be the last"),
        ([{"epochs": 1}, {"epochs": 2}], "strategy.personalization.1: fine-tunes a second time"),
    ],
)
def test_other_steps_are_refused_in_a_line(steps: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        resolved({"name": "fedavg", "personalization": steps})
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_comparison_adds_it_where_it_is_missing() -> None:
    strategies = ["fedavg", {"name": "fedprox", "personalization": {"name": "recalibrate", "method": "closed"}}, "chip"]
    config = reading.resolve({"strategies": strategies, "recalibrate": "both"}, reads=reading.COMPARISON)
    steps = [plugins.build_last_steps(each.strategy).recalibration for each in reading.compared(config)]
    assert steps == [Recalibration(), Recalibration("closed"), Recalibration()]
    without = reading.resolve({"strategies": strategies}, reads=reading.COMPARISON)
    steps = [plugins.build_last_steps(each.strategy).recalibration for each in reading.compared(without)]
    assert steps == [None, Recalibration("closed"), None]
    with pytest.raises(ConfigError, match=r"^recalibrate: "):
        reading.resolve({"recalibrate": "all"})


def test_a_strategy_from_python_is_recalibrated_too() -> None:
    config = reading.resolve({"strategies": [FineTuning(mu=0)], "recalibrate": "both"}, reads=reading.COMPARISON)
    (only,) = reading.compared(config)
    assert plugins.build_strategy(only.strategy) == FineTuning(mu=0)
    assert plugins.build_last_steps(only.strategy) == LastSteps(None, Recalibration())
