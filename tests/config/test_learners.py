"""Strategies crossed with models: which pairs, in which order, and what they are called."""

from __future__ import annotations

from typing import Any

import pytest

import raysim
from raysim.config import learners, reading
from raysim.core.errors import ConfigError


def read(**keys: Any) -> Any:
    return reading.resolve({"strategies": ["fedavg", "local"], **keys}, reads=reading.COMPARISON)


def called(config: Any) -> list[str]:
    return [str(each.strategy.label) for each in reading.compared(config)]


def test_linear_models_come_first_and_others_as_they_are_listed():
    small = {"name": "mlp", "hidden": [4], "label": "small"}
    config = read(models=["mlp", small, "logistic_regression"])
    assert called(config) == [
        f"{way}, {learner}" for learner in ("logistic_regression", "mlp", "small") for way in ("fedavg", "local")
    ]
    assert sorted(learners.labels(config)) == sorted(called(config))
    hidden = [each.model.options().get("hidden") for each in reading.compared(config)]
    assert hidden == [None, None, [256, 128], [256, 128], [4], [4]]


def test_without_models_nothing_is_crossed():
    config = read()
    assert called(config) == ["None", "None"]
    assert learners.labels(config) == ["fedavg", "local"]


def test_the_reference_stands_with_the_simplest_model_that_it_is_there_with():
    config = read(models=["mlp", "logistic_regression"])
    labels = called(config)
    assert learners.reference_among(config, labels) == "fedavg, logistic_regression"
    assert learners.reference_among(config, labels[2:]) == "fedavg, mlp"
    named = config.replaced(reference="local, mlp")
    assert learners.reference_among(named, labels) == "local, mlp"
    with pytest.raises(ConfigError, match=r"^reference: 'nobody' is not among .* name one of fedavg, logistic"):
        learners.reference_among(config.replaced(reference="nobody"), labels)


@pytest.mark.parametrize(
    ("models", "line"),
    [
        (["mpl"], r"^models.0.name: 'mpl' is not a known name; did you mean 'mlp'"),
        (["mlp", {"name": "mlp", "hiden": [4]}], r"^models.1.hiden: is not an option of MLP; did you mean 'hidden'"),
        (
            [{"name": "boosted_trees", "rate": 0}],
            r"^models.0.rate: 0 gives trees no effect; write a number above 0",
        ),
        (["mlp", "mlp"], r"^models.1.label: 'mlp' is the label of two models; give one of them another label$"),
        ([{"name": "mlp", "label": "x" * 101}], r"^models.0.label: "),
        ([{"name": "mlp", "label": "x" * 99}], r"^models.label: 'fedavg, x+' has 107 characters"),
    ],
)
def test_a_bad_model_is_one_line(models: list[Any], line: str) -> None:
    with pytest.raises(ConfigError, match=line) as error:
        reading.compared(read(models=models))
    assert "\n" not in str(error.value)


def test_a_strategy_that_brings_its_model_is_not_crossed(tmp_path):
    (tmp_path / "other.yaml").write_text("strategy: fedprox\n")
    config = read(models=["mlp"], strategies=[{"from": str(tmp_path / "other.yaml")}])
    with pytest.raises(ConfigError, match=r"^strategies.0.from: has its own model"):
        reading.compared(config)


def test_a_run_of_one_model_refuses_several() -> None:
    with pytest.raises(ConfigError, match=r"^models: has no effect in raysim run, .*; use raysim compare"):
        raysim.run({"models": ["mlp", "logistic_regression"]}, in_process=True)
