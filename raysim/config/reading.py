"""Reads a YAML file, a mapping or a configuration into a complete and checked configuration."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from raysim.config import last_steps, learners, loading, plugins
from raysim.config.checking import validated
from raysim.config.overrides import laid_over, parsed
from raysim.config.paths import anchored, display_path, expanded
from raysim.config.schema import Config
from raysim.config.sections.plugin_sections import StrategySection
from raysim.core import registry
from raysim.core.errors import ConfigError, TableGiven
from raysim.core.words import as_yaml, of_type

Source = str | PathLike[str] | Mapping[str, Any] | Config
"""What a configuration is read from: the path of a YAML file, a mapping with its content, or a configuration."""

SHARED = ("data", "model", "selection")
"""The sections with plug-ins that a run and a comparison both read."""

RUN = (*SHARED, "strategy")
"""The sections with plug-ins that a run reads."""

COMPARISON = (*SHARED, "strategies", "models")
"""The sections with plug-ins that a comparison reads."""


OF_ALL = ("privacy", "secure", "compression", "aggregation", "adversary", "system")
"""The optional sections that change training and that all strategies of a comparison share."""

TABLES = (".csv", ".tsv", ".gz", ".parquet", ".pq", ".xlsx", ".xls", ".ods", ".zip", ".sqlite", ".db", ".duckdb")
"""The file extensions of tables: such a file is not a configuration."""

SEEDS = 3
"""The default number of seeds of a comparison."""


def resolve(source: Source | None = None, overrides: Sequence[str] = (), *, reads: Collection[str] = RUN) -> Config:
    """Return the complete configuration of ``source`` (None: all defaults), changed by overrides such as ``a.b=value``.

    In the sections that ``reads`` names, the keys of plug-ins are checked, and their defaults are filled in. If
    ``reads`` includes ``strategy``, the strategy that ``strategy.from`` names is inserted. Raises ``ConfigError`` for
    an invalid configuration.
    """
    config = source if isinstance(source, Config) and not overrides else checked(read_tree(source, overrides))
    if "strategy" in reads:
        config = _with_strategy(config, config.strategy, "strategy")
    return plugins.completed(config, reads)


def over_seeds(config: Config) -> Config:
    """Return the configuration of a comparison with :data:`SEEDS` seeds: its own seed and the next ones.

    If ``seed`` or ``seeds`` is set, or if the data are split into folds, ``config`` is returned unchanged.
    """
    if {"seed", "seeds"} & config.model_fields_set or config.data.split.folds is not None:
        return config
    return config.replaced(seeds=tuple(range(config.seed, config.seed + SEEDS)))


def compared(config: Config) -> tuple[Config, ...]:
    """Return the complete configuration of each strategy that ``config`` compares, with each listed model.

    It is not checked whether a strategy and a model fit together.
    """
    taken = [_with_strategy(config, section, f"strategies.{i}") for i, section in enumerate(config.strategies)]
    if config.recalibrate == "both":
        taken = [
            each.replaced(strategy=last_steps.recalibrated(each.strategy, f"strategies.{i}"))
            for i, each in enumerate(taken)
        ]
    whole = [plugins.completed(each, RUN, f"strategies.{i}") for i, each in enumerate(taken)]
    return learners.crossed(plugins.completed(config, ("models",)), whole)


def read_tree(
    source: Source | None, overrides: Sequence[str] = (), values: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the configuration in ``source`` as nested mappings, not yet checked.

    The overrides are applied first, and then ``values``, which maps dotted keys to values. Paths of input files become
    absolute.
    """
    tree: Mapping[str, Any] = {}
    folder, settings = Path.cwd(), parsed(overrides)
    if isinstance(source, Config):
        tree = source.model_dump(mode="json", by_alias=True, exclude_unset=True)
    elif isinstance(source, Mapping):
        tree = source
    elif not isinstance(source, str | PathLike | None):
        raise ConfigError(
            f"config: {of_type(source)} is neither a path nor keys and values; give a YAML file or a mapping (pass a "
            "data frame as data=frame)"
        )
    elif source is not None:
        path = expanded(source)
        tree, folder = _loaded(path), path.parent
    tree = laid_over(laid_over(tree, settings, "--set "), values or {}, "overrides: ")
    return anchored(tree, folder, {*settings, *(values or {})})


def checked(tree: Mapping[str, Any]) -> Config:
    """Return the configuration in the nested mappings ``tree``, after a check of all keys except those of plug-ins."""
    for command in registry.entries("commands"):
        if command in tree and command not in Config.model_fields:
            raise ConfigError(f"{command}: is read by 'raysim {command}'; use that command, or remove the section")
    return validated(Config, tree, "")


def _loaded(path: Path) -> dict[str, Any]:
    if path.name.lower().endswith(TABLES) and path.is_file():
        raise _table_given(path)
    if path.is_dir() and (
        tables := sorted(each.suffix for each in path.iterdir() if each.suffix in (".csv", ".parquet"))
    ):
        pattern = shlex.quote(str(path / f"*{tables[0]}"))
        raise ConfigError(
            f"{path}: is a folder of tables; write a configuration for them: raysim new {pattern} --out sites.yaml"
        )
    try:
        tree: Any = loading.read(path) or {}
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); name a YAML file") from None
    except loading.InvalidConfiguration as error:
        raise ConfigError(f"{path}: {error}") from None
    except ValueError as error:
        raise ConfigError(
            f"{path}: cannot be read as YAML ({' '.join(str(error).split())}); correct the file"
        ) from None
    if not isinstance(tree, dict):
        raise ConfigError(
            f"{path}: contains {of_type(tree)}, not keys and values; write sections such as data and strategy"
        )
    return tree


def _table_given(path: Path) -> ConfigError:
    from raysim.config.proposed import four_lines, look

    looked = look(path)
    return TableGiven(
        f"{path}: is a table, not a configuration; a configuration describes the columns of a table, as in the next "
        f"lines; 'raysim new {shlex.quote(str(path))} --out {looked.name}.yaml' writes a whole configuration",
        four_lines(looked),
    )


def _with_strategy(config: Config, section: StrategySection, where: str) -> Config:
    """Return ``config`` with the strategy that ``section`` describes.

    If its key ``from`` names another configuration, that configuration's strategy, training, selection and model are
    used. Raises ``ConfigError`` if that configuration has other data or sets one of the sections :data:`OF_ALL`
    differently.
    """
    if section.from_path is None:
        return config.replaced(strategy=section)
    if section.name or section.class_path or section.options():
        raise ConfigError(
            f"{where}.from: '{display_path(section.from_path)}' already gives the strategy; remove the other keys "
            "except label"
        )
    other = checked(read_tree(section.from_path))
    theirs, ours = (plugins.completed(each, ("data",)).data.frozen() for each in (other, config))
    for key in [*ours, *theirs]:
        if theirs.get(key) != ours.get(key):
            raise ConfigError(
                f"{where}.from: {display_path(section.from_path)} has other data (data.{key} is "
                f"{as_yaml(theirs.get(key))}, here {as_yaml(ours.get(key))}); give the comparison the same data section"
            )
    for key in OF_ALL:
        if getattr(other, key) not in (None, getattr(config, key)):
            raise ConfigError(
                f"{where}.from: {display_path(section.from_path)} has its own section {key}, but all strategies of a "
                "comparison share one; write the same section in both files, or remove it from that file"
            )
    strategy = other.strategy.model_copy(update={"label": section.label or other.strategy.label})
    return config.replaced(strategy=strategy, training=other.training, selection=other.selection, model=other.model)
