"""Turns the arguments of Python calls into a checked configuration."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from raysim.config import reading
from raysim.config.checking import validated
from raysim.config.paths import expanded
from raysim.config.reading import Source
from raysim.config.schema import Config
from raysim.config.sections.plugin_sections import StrategySection
from raysim.config.serialise import is_importable
from raysim.core import host
from raysim.core.errors import ConfigError, ResourceError
from raysim.core.words import as_yaml
from raysim.data.sources.frame import data_section
from raysim.strategies.base import Strategy

if TYPE_CHECKING:
    import pandas as pd

WARNS, WIDE = "warning: ", 10_000
"""The beginning of a printed warning; and a console width, in characters, that no line reaches."""

StrategyLike = str | Mapping[str, Any] | Strategy | type[Strategy]
"""The forms in which a strategy can be given: its registered name, the content of a section ``strategy``, an instance,
or a class.
"""

Strategies = Sequence[StrategyLike] | Mapping[str, StrategyLike]
"""Several strategies: a list, or a mapping whose keys are the strategies' labels in tables."""

Overrides = Mapping[str, Any] | Sequence[str]
"""Changes of a configuration: values by dotted key, or texts such as ``a.b=value``, as for ``--set``."""


def configuration(
    source: Source | None,
    *,
    strategy: StrategyLike | None = None,
    strategies: Strategies | None = None,
    data: pd.DataFrame | None = None,
    seed: int | None = None,
    overrides: Overrides | None = None,
) -> Config:
    """Return the configuration from ``source``, with values replaced by the other arguments.

    Keys of plug-ins are checked later, not here.
    """
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
    """Return the configuration as an unchecked mapping, with sections such as ``sweep`` that only one command reads."""
    if not isinstance(overrides, Mapping | Sequence | None) or any(
        not isinstance(each, str) for each in overrides or ()
    ):
        raise ConfigError(f"overrides: {as_yaml(overrides)} is neither a mapping nor a list of texts; give one of them")
    settings = overrides if not isinstance(overrides, Mapping) else ()
    values = dict(overrides) if isinstance(overrides, Mapping) else {}
    if seed is not None:
        values |= {"seed": seed, "seeds": []}
    if strategy is not None:
        values["strategy"] = strategy
    if strategies is not None:
        values["strategies"] = _labelled(strategies)
    tree = reading.read_tree(source, settings or (), values)
    if data is not None:
        tree["data"] = data_section(data, _keys(tree.get("data", {})))
    return tree


def importable(section: Any) -> Any:
    """Return the section ``strategy`` in a form from which another process can build the strategy.

    Raises ``ConfigError`` if another process cannot import the strategy's class.
    """
    checked = validated(StrategySection, section, "strategy")
    if checked.given is None:
        return section
    cls = type(checked.given)
    if not is_importable(cls):
        raise ConfigError(
            f"strategy: '{cls.__name__}' is defined in a notebook or a function, from which the processes of trials "
            "cannot import it; define it in a module"
        )
    return checked.frozen()


def _labelled(strategies: Strategies) -> list[Any]:
    if isinstance(strategies, str) or not isinstance(strategies, Mapping | Sequence):
        raise ConfigError(f"strategies: {as_yaml(strategies)} is not a list; give a list of strategies")
    if not isinstance(strategies, Mapping):
        return list(strategies)
    sections = {label: validated(StrategySection, each, "strategies") for label, each in strategies.items()}
    return [section.model_copy(update={"label": label}) for label, section in sections.items()]


def _keys(section: Any) -> Mapping[str, Any]:
    return section if isinstance(section, Mapping) else {"source": section}


def console_or_warnings(console: Console | None, verbose: bool) -> Console:
    """Return the console on which progress is printed.

    It is ``console`` if given, else standard output if ``verbose`` or in a notebook. In all other cases, the console
    sends warnings to the logger ``raysim``, and drops all other lines.
    """
    if console is not None:
        return console
    usual = Console()
    if usual.is_jupyter:
        return Console(force_jupyter=False, force_terminal=False)  # plain lines form a single output of a cell
    return usual if verbose else Console(file=_Warnings(), width=WIDE, force_jupyter=False)


class _Warnings(io.StringIO):
    """A stream that sends warnings to the logger ``raysim``, and drops all other lines."""

    def write(self, text: str) -> int:
        for line in text.splitlines():
            if line.startswith(WARNS):
                logging.getLogger("raysim").warning(line.removeprefix(WARNS))
        return len(text)


_connecting = threading.RLock()


@contextlib.contextmanager
def alone_on_ray(in_process: bool) -> Iterator[None]:
    """Let only one thread at a time connect this process to Ray, because all threads share one connection.

    Raises ``ResourceError`` if another thread's call has opened the connection. Calls with ``in_process`` may run
    concurrently, and so may calls in a process that was connected to Ray before.
    """
    if in_process:
        yield
        return
    if not _connecting.acquire(blocking=False):
        raise ResourceError(
            "resources: another call in this process has connected to Ray, and disconnects when it returns; wait "
            "until then, pass in_process=True, or call ray.init before both calls"
        )
    with contextlib.ExitStack() as held:
        held.callback(_connecting.release)
        if "ray" in sys.modules and sys.modules["ray"].is_initialized():
            held.close()
        yield


@contextlib.contextmanager
def search_path_restored() -> Iterator[None]:
    """Restore ``sys.path`` after a call that may add the working directory to it, to import plug-ins from there."""
    with host.searched(os.getcwd()):
        yield


def path_of(out: str | os.PathLike[str] | None) -> Path | None:
    return None if out is None else expanded(out)
