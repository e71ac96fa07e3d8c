"""Defaults stand in the packaged YAML alone: every key of the schema has one there, and nothing else stands there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel

from raysim.config.reading import resolve
from raysim.config.schema import Config
from raysim.config.sections.plugin_sections import ModelSection, StrategySection
from raysim.core import registry
from raysim.core.defaults import Default, default, table
from raysim.data.split import Split
from raysim.experiment.curves.curve import Curve
from raysim.strategies.shared.psi import EPSILON
from raysim.study.settings import Study
from raysim.tune.settings import Sweep

BESIDE: dict[str, type[BaseModel]] = {"sweep.": Sweep, "study.": Study, "curve.": Curve}
"""Sections that commands of these names read beside a configuration, by where they stand."""

NAMED: dict[str, type[BaseModel]] = {"strategy.": StrategySection, "model.": ModelSection}
"""Sections that stand in lists, too, and have the same defaults there."""

BY_LABEL = "sweep.objectives"
"""A default that depends on the kind of label: see :func:`raysim.tune.settings.fitted`."""


def sections(model: type[BaseModel], place: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Every section below ``model`` with where it stands; what stands under any name is at ``*``."""
    yield place, model
    for name, field in model.model_fields.items():
        at = f"{place}{field.alias or name}"
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in NAMED.values():
                yield from sections(kind, f"{at}.*." if get_args(field.annotation)[:1] == (str,) else f"{at}.")
    if model is Config:
        for at, kind in NAMED.items():
            yield from sections(kind, at)


def keys() -> dict[str, Any]:
    """The fields of all sections that are no section themselves, by dotted key."""
    return {
        f"{place}{field.alias or name}": field
        for place, model in (*sections(Config), *itertools.chain.from_iterable(map(sections, BESIDE.values(), BESIDE)))
        for name, field in model.model_fields.items()
        if field.default_factory not in (field.annotation, *get_args(field.annotation))
        and not (only_in_files(field) or field.is_required() or is_a_tag(field) or f"{place}{name}" == BY_LABEL)
    }


def is_a_tag(field: Any) -> bool:
    """Whether a field can have one value alone, which says what section it is in."""
    return get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1


def only_in_files(field: Any) -> bool:
    """Whether a field is a section that a configuration has only where it is written, whose keys have the defaults."""
    kinds = [kind for kind in get_args(field.annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return bool(kinds) and field.default_factory is None and field.default is None


def test_every_key_of_the_schema_has_its_default_in_the_yaml_and_nothing_else_stands_there():
    fields = keys()
    assert "data.split.folds" in fields
    assert "system.hospitals.*.uplink" in fields
    assert "resources.per_hospital.*.cpus" in fields
    assert "strategy.from" in fields
    assert {"sweep.scheduler.grace", "study.alphas", "curve.scale"} <= fields.keys()
    assert {key: field.default_factory for key, field in fields.items()} == {key: Default(key) for key in table()}


def test_the_packaged_defaults_are_a_configuration_the_default_one():
    path = files("raysim.config") / "defaults.yaml"
    assert yaml.safe_load(path.read_text())["training"]["rounds"] == 50
    assert resolve(str(path)) == resolve() == resolve({})
    assert resolve().training.rounds == 50


def test_a_study_smooths_as_everything_does():
    assert table()["study.epsilon"] == Study().epsilon == EPSILON


def test_what_the_defaults_name_exists():
    tree = resolve()
    for kind, names in (
        ("sources", [tree.data.source]),
        ("models", [tree.model.name]),
        ("selections", [tree.selection.name]),
        ("strategies", [tree.strategy.name, tree.reference, *(section.name for section in tree.strategies)]),
    ):
        assert set(names) <= set(registry.entries(kind))


def test_a_default_is_nobody_elses():
    resolve().resources.per_hospital["mine"] = None
    assert resolve().resources.per_hospital == {}
    assert Default("evaluation.age_bands")() == [45.0, 65.0, 80.0]
    Default("evaluation.age_bands")().append(1)
    assert Default("evaluation.age_bands")() == [45.0, 65.0, 80.0]


def test_a_key_without_a_default_is_noticed_as_soon_as_it_is_declared():
    with pytest.raises(KeyError, match=r"training\.round: has no default in defaults.yaml or optional.yaml"):
        default("training.round", ge=0)


def test_what_is_left_out_has_its_default_however_deep():
    config = resolve({"data": {"split": {"by": "row"}}, "system": {"latency": 1, "rounds": {"deadline": 3}}})
    assert config.data.split == Split(by="row")
    assert config.data.split.train == 0.8
    assert config.system is not None
    assert (config.system.wait, config.system.rounds.deadline, config.system.rounds.late) == (60.0, 3, "drop")
    assert resolve().system is None


@pytest.mark.parametrize("given", [{}, {"strategies": []}])
def test_no_strategies_are_the_default_ones(given):
    named = [section.name for section in resolve(given).strategies]
    assert named == yaml.safe_load((files("raysim.config") / "defaults.yaml").read_text())["strategies"]
    assert len(named) == 8
