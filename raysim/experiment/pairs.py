"""The pairs of strategies and models that a comparison can combine.

A pair that cannot be combined is left out, with a remark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raysim.core.errors import ConfigError
from raysim.core.registry import of_learner
from raysim.core.words import listed
from raysim.experiment.entries import Entry


@dataclass(frozen=True)
class Unpaired:
    """A strategy and a model that cannot be combined."""

    title: str
    learner: str
    """The model's name in tables."""


def going_together(
    entries: Sequence[Entry], check: Callable[[Entry, str], object]
) -> tuple[list[Entry], tuple[Unpaired, ...]]:
    """Return the entries that ``check`` accepts, and the pairs of strategy and model that it rejects.

    ``check`` takes an entry and the configuration key of its strategy, and raises ``ConfigError`` to reject the entry.
    This error is passed on if a strategy is rejected with every model, or a model with every strategy.
    """
    refused: dict[str, ConfigError] = {}
    strategies = list(dict.fromkeys(entry.strategy_label for entry in entries))
    for entry in entries:
        try:
            check(entry, f"strategies.{strategies.index(entry.strategy_label)}")
        except ConfigError as error:
            refused[entry.label] = error
    accepted = [entry for entry in entries if entry.label not in refused]
    strategies_left, learners_left = {entry.strategy_label for entry in accepted}, {entry.learner for entry in accepted}
    alone = [entry for entry in entries if entry.learner not in learners_left]
    alone += [entry for entry in entries if entry.strategy_label not in strategies_left]
    if alone:
        raise refused[alone[0].label]
    left = [entry for entry in entries if entry.label in refused]
    return accepted, tuple(Unpaired(each.strategy_title, each.learner) for each in left)


def sentences(left: Sequence[Unpaired]) -> list[str]:
    """Return a sentence on the pairs that were left out; empty if there are none."""
    if not left:
        return []
    by_learner: dict[str, list[str]] = {}
    for each in left:
        by_learner.setdefault(each.learner, []).append(each.title)
    pairs = "; ".join(f"{listed(titles)} with {of_learner(learner)}" for learner, titles in by_learner.items())
    return [f"Left out, because they cannot be combined: {pairs}."]
