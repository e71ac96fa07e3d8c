"""From what a caller gives in Python to a checked configuration."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from raysim.config import reading
from raysim.config.checking import validated
from raysim.config.overrides import laid_over
from raysim.config.paths import anchored
from raysim.config.reading import Source
from raysim.config.schema import Config
from raysim.config.sections.plugin_sections import StrategySection
from raysim.config.written import is_elsewhere
from raysim.core import host
from raysim.core.errors import ConfigError
from raysim.data.sources.frame import data_section
from raysim.strategies.base import Strategy

if TYPE_CHECKING:
    import pandas as pd

WARNS, WIDE = "warning: ", 10_000
"""How lines begin that warn, and a width that no line reaches."""

StrategyLike = str | Mapping[str, Any] | Strategy | type[Strategy]
"""A registered name, what stands in a section ``strategy``, a strategy, or its class."""

Strategies = Sequence[StrategyLike] | Mapping[str, StrategyLike]
"""Several of them; a mapping has them by the label that tables call them by."""

Overrides = Mapping[str, Any] | Sequence[str]
"""Values by dotted key, or as ``--set`` takes them: ``a.b=value``."""


def configuration(
    source: Source | None,
    *,
    strategy: StrategyLike | None = None,
    strategies: Strategies | None = None,
    data: pd.DataFrame | None = None,
    seed: int | None = None,
    overrides: Overrides | None = None,
) -> Config:
    """The configuration of ``source`` with all else laid over it; plug-ins have not been looked at yet."""
    given = (strategy, strategies, data, seed, overrides)
    if isinstance(source, Config) and all(each is None for each in given):
        return source
    return reading.checked(
        tree_of(source, strategy=strategy, strategies=strategies, data=data, seed=seed, overrides=overrides)
    )


def tree_of(
    source: Source | None,
    *,
    strategy: StrategyLike | None = None,
    strategies: Strategies | None = None,
    data: pd.DataFrame | None = None,
    seed: int | None = None,
    overrides: Overrides | None = None,
) -> dict[str, Any]:
    """The same before it is checked, with sections that belong to one command alone."""
    settings = overrides if not isinstance(overrides, Mapping) else ()
    values = dict(overrides) if isinstance(overrides, Mapping) else {}
    if seed is not None:
        values |= {"seed": seed, "seeds": []}
    if strategy is not None:
        values["strategy"] = strategy
    if strategies is not None:
        values["strategies"] = _labelled(strategies)
    tree = anchored(laid_over(reading.read_tree(source, settings or ()), values, "overrides: "), Path.cwd())
    if data is not None:
        tree["data"] = data_section(data, _keys(tree.get("data", {})))
    return tree


def importable(section: Any) -> Any:
    """A section for other processes, which make the strategy themselves.

    Raises ``ConfigError`` for a class that they do not find.
    """
    checked = validated(StrategySection, section, "strategy")
    if checked.given is None:
        return section
    cls = type(checked.given)
    if not is_elsewhere(cls):
        raise ConfigError(
            f"strategy: '{cls.__name__}' is defined in a notebook or a function, where the processes of trials do not "
            "find it; put it into a module"
        )
    return checked.frozen()


def _labelled(strategies: Strategies) -> list[Any]:
    if isinstance(strategies, str) or not isinstance(strategies, Mapping | Sequence):
        raise ConfigError(f"strategies: {strategies!r} is not a list; put it in one")
    if not isinstance(strategies, Mapping):
        return list(strategies)
    sections = {label: validated(StrategySection, each, "strategies") for label, each in strategies.items()}
    return [section.model_copy(update={"label": label}) for label, section in sections.items()]


def _keys(section: Any) -> Mapping[str, Any]:
    """``data`` as keys: a name alone is that of a source."""
    return section if isinstance(section, Mapping) else {"source": section}


def silent_or(console: Console | None, verbose: bool) -> Console:
    """Where progress is shown: as asked for, or with ``verbose`` on standard output, or nowhere.

    Where nothing is shown, warnings go to the logger ``raysim``.
    """
    return console or (Console() if verbose else Console(file=_Warnings(), width=WIDE, force_jupyter=False))


class _Warnings(io.StringIO):
    """Passes on the lines that warn, and keeps none."""

    def write(self, text: str) -> int:
        for line in text.splitlines():
            if line.startswith(WARNS):
                logging.getLogger("raysim").warning(line.removeprefix(WARNS))
        return len(text)


@contextlib.contextmanager
def manners() -> Iterator[None]:
    """A call from somebody else's process: what it looks for modules in is as it was afterwards."""
    with host.searched(os.getcwd()):
        yield


def path_of(out: str | os.PathLike[str] | None) -> Path | None:
    """A folder to write into."""
    return None if out is None else Path(out)
