"""The strategies that an experiment compares."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from raysim.config import plugins
from raysim.config.schema import Config
from raysim.core.errors import ConfigError
from raysim.core.registry import of_learner
from raysim.strategies.base import Selection, Strategy


@dataclass(frozen=True, eq=False)
class Entry:
    """A strategy of an experiment with its label and the configuration of its runs."""

    label: str
    config: Config
    strategy: Strategy
    selection: Selection

    @property
    def learner(self) -> str:
        """The name of the strategy's model in tables."""
        return self.config.model.learner

    @property
    def strategy_label(self) -> str:
        """The strategy's label, without the name of the model."""
        return self.label.removesuffix(f", {self.learner}")

    @property
    def title(self) -> str:
        """The strategy's readable name. If a comparison runs every strategy with every model, the model's name is
        appended, unless the readable name already contains it.
        """
        learner, words = of_learner(self.learner), re.split(r"\W+", self.strategy_title.casefold())
        named = self.strategy_label == self.label or learner.split()[-1].casefold() in words
        return self.strategy_title if named else f"{self.strategy_title} with {learner}"

    @property
    def strategy_title(self) -> str:
        """The strategy's readable name: the label in its configuration or, without a label, the title of the strategy's
        class. If the label begins with the strategy's name, the title replaces this name.

        A class without a title has its own name as title.
        """
        cls, section = type(self.strategy), self.config.strategy
        title = vars(cls).get("title")
        title = title if isinstance(title, str) and title else cls.__name__
        if section.label and f"{self.strategy_label}, ".startswith(f"{section.name}, "):
            return title + self.strategy_label.removeprefix(str(section.name))
        return self.strategy_label if section.label else title


def folder_of(label: str) -> str:
    """Return the name of the folder with the runs of the strategy ``label``."""
    return re.sub(r"^\.+|[^\w.-]+", "_", label)


def entries(configs: Sequence[Config]) -> list[Entry]:
    """Make an :class:`Entry` for each of ``configs``. Raises ``ConfigError`` if two share a label or a folder."""
    by_label: dict[str, Entry] = {}
    folders: dict[str, str] = {}
    for i, config in enumerate(configs):
        label = plugins.label(config.strategy)
        if label in by_label:
            raise ConfigError(f"strategies.{i}.label: '{label}' names two strategies; give one of them another label")
        folder = folder_of(label)
        other = folders.setdefault(folder.casefold(), label)  # some file systems ignore case
        if other != label:
            raise ConfigError(
                f"strategies.{i}.label: '{label}' and '{other}' would share the folder runs/{folder}; "
                "give one of them a label that differs in letters or digits"
            )
        strategy = plugins.build_strategy(config.strategy, model=config.model)
        selection = plugins.build_selection(config.selection)
        by_label[label] = Entry(label, config, strategy, selection)
    return list(by_label.values())
