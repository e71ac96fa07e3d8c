"""Makes the strategy, selection, source or model that a section names, from the section's own keys."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, PydanticUserError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from raysim.config import last_steps
from raysim.config.checking import adapter, hints, validated
from raysim.config.paths import anchored, display_path
from raysim.config.schema import Config
from raysim.config.sections.plugin_sections import DataSection, ModelSection, PlugIn, SelectionSection, StrategySection
from raysim.config.sections.privacy import PREPROCESSING, RowUnit
from raysim.config.sections.secure import OF_PREPROCESSING
from raysim.config.serialise import fields_of
from raysim.config.sizes import SIZE_KEYS
from raysim.core import importing, registry
from raysim.core.errors import ConfigError, nearest
from raysim.core.words import as_yaml
from raysim.data.federation import Federation
from raysim.data.fitted import RAW
from raysim.data.records import Naming
from raysim.privacy.scaler import ScalerNoise
from raysim.strategies.base import Selection, Strategy
from raysim.strategies.shared.personalization import LastSteps, Personalization, Recalibration
from raysim.strategies.shared.weights import Weighted
from raysim.training.models import configured, find_family, takes_raw

if TYPE_CHECKING:
    from raysim.data.records import Source


def build_strategy(section: StrategySection, where: str = "strategy", model: ModelSection | None = None) -> Strategy:
    """Return the strategy that a section describes, in its version for boosted trees if ``model`` is boosted trees.

    Raises ``ConfigError`` if the section still has the key ``from``, which names another configuration, or if a setting
    of the strategy has no meaning for boosted trees.
    """
    check_written_out(section, where)
    strategy = section.given or section.once(lambda: _made_strategy(section, where))
    if model is None or not takes_raw(model_class(model)):
        return strategy
    try:
        return strategy.with_trees()
    except ValueError as error:
        raise ConfigError(f"{where}.{error}") from None


def rounds(config: Config) -> int:
    """Return the number of rounds of a run: ``training.rounds``, or ``model.trees`` if the model is boosted trees.

    With ``training.rounds: 0`` boosted trees have no rounds either.
    """
    cls, training = model_class(config.model), config.training
    if not takes_raw(cls) or not training.rounds:
        return training.rounds
    return int(configured(cls, config.model.options()).trees)


def _made_strategy(section: StrategySection, where: str) -> Strategy:
    cls, options = _plugin("strategies", section, where), section.options()
    fine_tuning = last_steps.split(options.pop(last_steps.KEY, None), f"{where}.{last_steps.KEY}").fine_tuning
    if fine_tuning is not None and last_steps.takes_fine_tuning(cls):
        options[last_steps.KEY] = fine_tuning
    strategy = construct(cls, options, where)
    if not isinstance(strategy, Strategy):
        named = section.class_path or section.name
        raise ConfigError(f"{where}: '{named}' is not a Strategy; derive it from raysim.Strategy")
    return strategy


def build_last_steps(section: StrategySection, where: str = "strategy") -> LastSteps:
    """Return the steps after the last round (fine-tuning, recalibration) that the strategy does not do itself."""
    field = f"{where}.{last_steps.KEY}"
    fine_tuning, recalibration = last_steps.split(section.options().get(last_steps.KEY), field)
    cls: Any = type(section.given) if section.given is not None else _plugin("strategies", section, where)
    own = fine_tuning is None or last_steps.takes_fine_tuning(cls)
    return LastSteps(
        None if own else construct(Personalization, _step(fine_tuning, field), field),
        None if recalibration is None else construct(Recalibration, recalibration, field),
    )


def _step(keys: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(keys, Mapping):
        raise ConfigError(
            f"{where}: {as_yaml(keys)} is not a step; write its keys, such as {{epochs: 1, learning_rate: 0.03}}"
        )
    return keys


def check_written_out(section: StrategySection, where: str) -> None:
    """Raise ``ConfigError`` if a strategy's section has the key ``from``, which names another configuration."""
    if section.from_path is not None:
        raise ConfigError(
            f"{where}.from: only run, compare and plan accept this key ('{display_path(section.from_path)}'), and not "
            "in a file that another 'from' names; write the strategy's own keys instead"
        )


def strategy_keys(section: StrategySection, where: str) -> frozenset[str]:
    """Return the names of the keys that a section's strategy has."""
    cls: Any = type(section.given) if section.given is not None else _plugin("strategies", section, where)
    return frozenset(field.name for field in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else frozenset()


def build_selection(section: SelectionSection) -> Selection:
    """Return the selection that a section describes.

    Raises ``ConfigError`` if the section sets ``fraction`` or ``minimum``, and the selection has no such key.
    """
    return section.once(lambda: _made_selection(section))


def _made_selection(section: SelectionSection) -> Selection:
    options = section.options()
    if idle := sorted(options.keys() - fitting_selection(section).options().keys()):
        raise ConfigError(
            f"selection.{idle[0]}: {as_yaml(options[idle[0]])} has no effect, because {section.name or 'the class'} "
            f"has no key {idle[0]}; remove it, or choose a selection with this key (selection.name: uniform)"
        )
    selection = construct(_plugin("selections", section, "selection"), options, "selection")
    if not isinstance(selection, Selection):
        named = section.class_path or section.name
        raise ConfigError(f"selection: '{named}' is not a Selection; derive it from raysim.Selection")
    return selection


def fitting_selection(section: SelectionSection) -> SelectionSection:
    """Return the section without the keys ``fraction`` and ``minimum``, unless its selection has them."""
    cls = _plugin("selections", section, "selection")
    takes = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    return section.having({k: v for k, v in section.options().items() if k in takes or k not in SIZE_KEYS})


def build_source(section: DataSection) -> Source:
    """Return the data source that a section describes."""
    return section.once(lambda: _made_source(section))


def _made_source(section: DataSection) -> Source:
    cls = registry.load("sources", section.source, "data.source")
    source: Source = construct(cls, section.options(), "data", other_keys=tuple(DataSection.model_fields))
    return source


def predicted(section: DataSection) -> str:
    """Return a phrase for what the model predicts, such as "death in hospital".

    It is ``data.predicts``, else the phrase of the data source, else ``the label``.
    """
    if section.predicts is not None:
        return section.predicts
    source = build_source(section)
    return source.predicts if isinstance(source, Naming) and source.predicts else "the label"


def build_federation(config: Config, source: Source, seed: int, shelf: tuple[str, str] | None = None) -> Federation:
    """Return the federation for a run with ``seed``, made of the rows of ``source`` as the section ``data`` says.

    ``shelf`` is described in :func:`raysim.data.build.build`.
    """
    from raysim.data.build import build

    section = config.data
    if config.hides_rows and config.privacy and section.split.column and getattr(source, "stratified", False):
        raise ConfigError(
            f"data.split.column: '{section.split.column}' of source {section.source} is a stratified holdout, which "
            f"divides all rows again when one row is removed, so privacy.unit: {config.privacy.unit} cannot be "
            "guaranteed; replace the key by data.split.train, validation and test"
        )
    if config.hides_sizes and getattr(source, "selected_by_size", False):
        raise ConfigError(
            f"data.source: {section.source} leaves out hospitals by their number of rows, which privacy.sizes: "
            "noisy hides; leave one of the two out"
        )
    raw = takes_raw(model_class(config.model))
    return build(
        source,
        section.split.by_itself() if config.hides_rows else section.split,
        RAW if raw else section.preprocessing,
        seed,
        minimum=section.minimum,
        largest=section.largest,
        ranges=None if raw and section.preprocessing != "declared" else section.ranges,
        noise=None if raw else _scaler_noise(config),
        missing_flags=section.missing_flags and not raw,
        scores=section.scores or (),
        shelf=shelf,
    )


def prepared_alike(one: Config, other: Config) -> bool:
    """Return whether the models of two configurations need the same preparation of columns.

    Boosted trees use the recorded columns, and all other models use preprocessed columns.
    """
    return takes_raw(model_class(one.model)) == takes_raw(model_class(other.model))


def model_class(section: ModelSection) -> Any:
    """Return the class of the model that a section names."""
    return _plugin("models", section, "model")


def _scaler_noise(config: Config) -> ScalerNoise | None:
    privacy = config.privacy
    statistic = None if privacy is None else privacy.noise_of(PREPROCESSING)
    if privacy is None or statistic is None:
        return None
    unit: RowUnit = "example" if privacy.unit == "example" else "patient"
    rows = 1 if unit == "example" else privacy.rows_per_patient
    hidden = None if config.secure is None else config.secure.of_setup(OF_PREPROCESSING)
    return ScalerNoise(statistic.mechanism(privacy.noise), unit, rows, hidden is not None, hidden)


def completed(config: Config, sections: Collection[str], where: str = "strategy") -> Config:
    """Check the keys of the plug-ins in ``sections``, and return ``config`` with the defaults of these keys filled in.

    An entry of ``strategies`` with the key ``from``, which names another configuration, is left unchanged.
    """
    whole: dict[str, Any] = {}
    if "data" in sections:
        source = build_source(config.data)
        options = fields_of(source)
        named = anchored({"data": {"source": config.data.source, **options}}, Path.cwd())["data"]
        absolute = {key: named[key] for key in options}
        whole["data"] = config.data.having(absolute, source if absolute == options else None)
    if "model" in sections:
        whole["model"] = config.model.having(_options(config.model, "model"))
    if "models" in sections:
        whole["models"] = tuple(
            section.having(_options(section, f"models.{i}")) for i, section in enumerate(config.models)
        )
    if "selection" in sections:
        selection = build_selection(config.selection)
        whole["selection"] = config.selection.having(fields_of(selection), selection)
    if "strategy" in sections:
        whole["strategy"] = _completed_strategy(config, config.strategy, where)
    if "strategies" in sections:
        whole["strategies"] = tuple(
            section if section.from_path is not None else _completed_strategy(config, section, f"strategies.{i}")
            for i, section in enumerate(config.strategies)
        )
    return config.replaced(**whole)


def _completed_strategy(config: Config, section: StrategySection, where: str) -> StrategySection:
    if config.privacy is not None and config.privacy.unit == "hospital" and section.given is None:
        keys = strategy_keys(section, where)
        # Weights by rows depend on the other participants, so weights are uniform unless the key is set.
        if issubclass(_plugin("strategies", section, where), Weighted) and "weights" in keys - section.options().keys():
            section = section.having({**section.options(), "weights": "uniform"})
    if config.privacy is not None and "signature" in config.privacy.statistics and section.given is None:
        keys = strategy_keys(section, where)
        # The more features a signature has, the more noise is on each of its entries.
        if "signature" in keys - section.options().keys():
            section = section.having({**section.options(), "signature": ["size", "prevalence"]})
    strategy, steps = build_strategy(section, where), build_last_steps(section, where)
    fields = fields_of(strategy)
    fine_tuning = fields.pop(last_steps.KEY, None)
    if steps.fine_tuning is not None:
        fine_tuning = fields_of(steps.fine_tuning)
    recalibration = None if steps.recalibration is None else fields_of(steps.recalibration)
    return section.having(fields | last_steps.written(fine_tuning, recalibration), strategy)


def _options(section: ModelSection, where: str) -> dict[str, Any]:
    """Return the options of a model, with all defaults that can be written in YAML."""
    given, cls = section.options(), find_family(section.class_path or section.name or "", where)
    if dataclasses.is_dataclass(cls):
        family = configured(cls, given, where)
        options = given | {field.name: getattr(family, field.name) for field in dataclasses.fields(cls)}
    else:
        keywords = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        parameters = inspect.signature(cls).parameters.items()
        options = {name: each.default for name, each in parameters if each.kind in keywords} | given
    return {name: value for name, value in map(_plain, options.items()) if value is not None or name in given}


def _plain(item: tuple[str, Any]) -> tuple[str, Any]:
    name, value = item
    try:
        return name, to_jsonable_python(value)
    except PydanticSerializationError:
        return name, None


def _plugin(kind: str, section: PlugIn, where: str) -> Any:
    if section.class_path is not None:
        cls = registry.load_class(section.class_path, f"{where}.class")
    else:
        cls = registry.load(kind, section.name or "", f"{where}.name")
    fields = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    for name, field in type(section).model_fields.items():
        if (key := field.alias or name) in fields:
            raise ConfigError(
                f"{where}.{key}: is a key of every {where}, and a field of '{cls.__name__}'; rename the field"
            )
    return cls


def construct(cls: Any, options: Mapping[str, Any], where: str, other_keys: Sequence[str] = ()) -> Any:
    """Return an instance of a plug-in's class ``cls`` (a dataclass or pydantic model), made from configuration keys.

    ``where`` is the name of the section in errors. ``other_keys`` are keys of the section that do not belong to
    ``cls``; an error for a misspelled key may suggest them.
    """
    has_fields = dataclasses.is_dataclass(cls) or (isinstance(cls, type) and issubclass(cls, BaseModel))
    if not has_fields:
        raise ConfigError(f"{where}: '{getattr(cls, '__name__', cls)}' takes no configuration; make it a dataclass")
    try:
        hints(cls)
        adapter(cls)
    except (PydanticUserError, NameError) as error:
        raise ConfigError(
            f"{where}: a field of '{cls.__name__}' has a type that no key can have ({str(error).splitlines()[0]}); use "
            "numbers, texts, truth values or lists of these"
        ) from error
    if dataclasses.is_dataclass(cls):
        _refuse_unknown(cls, options, where, other_keys)
    try:
        instance: Any = validated(cls, dict(options), where, other_keys)
    except SystemExit as error:
        if not importing.ended_by_plugin(error):
            raise
        raise ConfigError(
            f"{where}: '{cls.__name__}' {importing.exit_call(error)} when it was constructed; raise a ValueError"
        ) from None
    return instance


def label(section: StrategySection) -> str:
    """Return a strategy's label in tables: the configured label, else its name, else its class."""
    return section.label or section.name or (section.class_path or "").rpartition(".")[2]


def _refuse_unknown(cls: Any, options: Mapping[str, Any], where: str, other_keys: Sequence[str] = ()) -> None:
    types = hints(cls)
    fields = {field.name for field in dataclasses.fields(cls)}
    for key, value in options.items():
        if key not in fields:
            if (instead := getattr(cls, "instead", {}).get(key)) is not None:
                raise ConfigError(f"{where}.{key}: {as_yaml(value)} {instead}")
            remedy = (
                nearest(key, [*fields, *other_keys]) if fields or other_keys else "remove it; this part has no keys"
            )
            raise ConfigError(f"{where}.{key}: unknown key; {remedy}")
        if dataclasses.is_dataclass(types[key]) and isinstance(value, Mapping):
            _refuse_unknown(types[key], value, f"{where}.{key}")


def origin(source: str) -> str:
    """Return a text that says whether a program invents the rows of a data source; empty for an unregistered source."""
    sources = registry.entries("sources")
    if source not in sources:
        return ""
    return (
        "invented by a program"
        if getattr(sources[source].load(), "invented", False)
        else "rows as the source gives them"
    )
