"""From a section of the configuration to the strategy, selection or source that it names, made from its own keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import BaseModel, TypeAdapter

from raysim.config.reading import read, validated
from raysim.config.schema import Config, DataSection, PlugIn, SelectionSection, StrategySection
from raysim.config.sizes import SIZE_KEYS
from raysim.core import registry
from raysim.core.errors import ConfigError, nearest
from raysim.data.federation import Federation
from raysim.strategies.base import Selection, Strategy

if TYPE_CHECKING:
    from raysim.data.records import Source


def build_strategy(section: StrategySection, where: str = "strategy") -> Strategy:
    """The strategy of a section, made from the section's own keys and checked by its class.

    Raises ``ConfigError`` for a section that names another configuration: :func:`taken_from` reads it, or nobody does.
    """
    check_written_out(section, where)
    strategy = construct(_plugin("strategies", section, where), section.own(), where)
    if not isinstance(strategy, Strategy):
        raise ConfigError(f"{where}.class: '{section.class_path}' is not a Strategy; derive it from raysim.Strategy")
    return strategy


def check_written_out(section: StrategySection, where: str) -> None:
    """Raise ``ConfigError`` where a strategy that must stand here is to be taken from another configuration."""
    if section.from_path is not None:
        raise ConfigError(
            f"{where}.from: '{section.from_path}' is read by run, compare and plan alone, and by them once; "
            "write out the strategy that it names"
        )


def strategy_keys(section: StrategySection, where: str) -> frozenset[str]:
    """The keys that the strategy of a section takes."""
    cls = _plugin("strategies", section, where)
    return frozenset(field.name for field in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else frozenset()


def build_selection(section: SelectionSection) -> Selection:
    """The selection of a section. ``fraction`` and ``minimum`` are ignored by a selection that takes none."""
    cls = _plugin("selections", section, "selection")
    takes = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    own = {key: value for key, value in section.own().items() if key in takes | {*section.own()} - SIZE_KEYS}
    selection: Selection = construct(cls, own, "selection")
    return selection


def build_source(section: DataSection) -> Source:
    """The data source that ``data.source`` names, made from the keys of ``data`` that are its own."""
    cls = registry.load("sources", section.source, "data.source")
    source: Source = construct(cls, section.own(), "data", beside=tuple(DataSection.model_fields))
    return source


def build_federation(section: DataSection, source: Source, seed: int) -> Federation:
    """The federation that a run with ``seed`` learns on, made of ``source`` as ``section`` says."""
    from raysim.data.build import build

    return build(source, section.split, section.preprocessing, seed, minimum=section.minimum, largest=section.largest)


def fields_of(plugin: Any) -> dict[str, Any]:
    """A plug-in's settings as plain YAML types, defaults included."""
    tree: dict[str, Any] = TypeAdapter(type(plugin)).dump_python(plugin, mode="json", exclude_none=True)
    return tree


def _plugin(kind: str, section: PlugIn, where: str) -> Any:
    if section.class_path is not None:
        return registry.load_class(section.class_path, f"{where}.class")
    return registry.load(kind, section.name or section.default, f"{where}.name")


def taken_from(config: Config, section: StrategySection, where: str) -> Config:
    """``config`` with ``section`` as its strategy; what ``from`` names brings its training, selection and model.

    Raises ``ConfigError`` where that configuration is about other data, for then a comparison would mean nothing.
    """
    if section.from_path is None:
        return config.model_copy(update={"strategy": section})
    if section.name or section.class_path or section.own():
        raise ConfigError(f"{where}.from: '{section.from_path}' stands beside keys of its own; keep only a label")
    other = read(section.from_path)
    theirs, ours = described_data(other.data), described_data(config.data)
    for key in [*ours, *theirs]:
        if theirs.get(key) != ours.get(key):
            raise ConfigError(
                f"{where}.from: {section.from_path} is about other data (data.{key} is {theirs.get(key)!r}, here "
                f"{ours.get(key)!r}); give the comparison the same data section"
            )
    strategy = other.strategy.model_copy(update={"label": section.label or other.strategy.label})
    parts = {"training": other.training, "selection": other.selection, "model": other.model}
    return config.model_copy(update={"strategy": strategy, **parts})


def described_data(section: DataSection) -> dict[str, Any]:
    """Everything that decides what rows there are, defaults of the source included."""
    return section.model_dump(mode="json", exclude_none=True) | fields_of(build_source(section))


def construct(cls: Any, own: Mapping[str, Any], where: str, beside: Sequence[str] = ()) -> Any:
    """An instance of a plug-in's dataclass or pydantic model from configuration keys.

    ``beside``: keys of the same section that are read elsewhere; a typing error may mean one of them.
    """
    if dataclasses.is_dataclass(cls):
        _refuse_unknown(cls, own, where, beside)
    elif not (isinstance(cls, type) and issubclass(cls, BaseModel)):
        raise ConfigError(f"{where}: '{getattr(cls, '__name__', cls)}' takes no configuration; make it a dataclass")
    return validated(TypeAdapter(cls), dict(own), where, beside)


def label(section: StrategySection) -> str:
    """How tables call a strategy: its label, or its name, or its class."""
    return section.label or section.name or (section.class_path or "").rpartition(".")[2]


def _refuse_unknown(cls: Any, own: Mapping[str, Any], where: str, beside: Sequence[str] = ()) -> None:
    hints = get_type_hints(cls)
    known = {field.name for field in dataclasses.fields(cls)}
    for key, value in own.items():
        if key not in known:
            remedy = nearest(key, [*known, *beside]) if known or beside else "it takes none"
            raise ConfigError(f"{where}.{key}: unknown key; {remedy}")
        if dataclasses.is_dataclass(hints[key]) and isinstance(value, Mapping):
            _refuse_unknown(hints[key], value, f"{where}.{key}")
