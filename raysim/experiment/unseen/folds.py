"""Decides which hospitals are left out together, and configures the runs without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.config.schema import Config
from raysim.config.sections.evaluation import UnseenSection
from raysim.core.errors import ConfigError, nearest
from raysim.core.streams import stream
from raysim.core.words import counted
from raysim.data.federation import Federation
from raysim.data.records import natural
from raysim.engine.job import Result

LEAVE_ONE = 20
"""Largest number of hospitals for which, by default, each hospital is a fold of its own."""

FOLDS = 10
"""Default number of folds if there are more than :data:`LEAVE_ONE` hospitals."""

MANY = 50
"""Above this number of folds, the command suggests fewer."""

FEWEST = 3
"""Smallest number of hospitals that must take part in training."""


@dataclass(frozen=True)
class Fold:
    """Hospitals that are left out of training together."""

    number: int
    """The fold's number, from 1."""
    held: tuple[str, ...]

    def of(self, config: Config) -> Config:
        """Return ``config`` for the runs without the fold's hospitals. All rows of these hospitals become test rows."""
        section = config.evaluation.unseen
        trained_on = config.data.split.trained_on if section is None else section.trained_on
        split = config.data.split.model_copy(update={"unseen": self.held, "trained_on": trained_on})
        evaluation = config.evaluation.model_copy(
            update={"every": 0, "predictions": True, "groups": (), "unseen": None}
        )
        return config.replaced(data=config.data.model_copy(update={"split": split}), evaluation=evaluation)


class LeftOut(NamedTuple):
    """A run that left the hospitals of a fold out of training."""

    fold: Fold
    config: Config
    """The run's configuration."""
    result: Result


def check(config: Config) -> None:
    """Raise ``ConfigError`` if other settings of ``config`` do not allow hospitals to be left out in turn."""
    if config.evaluation.unseen is None:
        return
    if config.tune is not None:
        raise ConfigError(
            "evaluation.unseen: cannot be combined with tune, which chooses values on rows of all hospitals, "
            "including hospitals that are left out; set the values without tune"
        )
    for key, given in (("privacy", config.privacy), ("system", config.system), ("adversary", config.adversary)):
        if given is not None:
            raise ConfigError(f"evaluation.unseen: cannot be combined with {key}; remove one of the two")
    if config.evaluation.part != "test":
        raise ConfigError("evaluation.unseen: uses all rows of a hospital as test rows; set evaluation.part: test")
    if config.data.split.unseen:
        raise ConfigError(
            "evaluation.unseen: leaves hospitals out in turn, but data.split.unseen leaves its hospitals out always; "
            "keep one"
        )


def refuse(config: Config, command: str) -> None:
    """Raise ``ConfigError`` if ``config`` leaves hospitals out in turn, which ``command`` cannot do."""
    if config.evaluation.unseen is not None:
        raise ConfigError(f"evaluation.unseen: raysim {command} leaves no hospital out; use raysim compare")


def cost(folds: Sequence[Fold], strategies: int, seeds: int) -> str:
    """Return a line for the user: how many additional runs are needed to leave hospitals out in turn."""
    runs = len(folds) * strategies * seeds
    line = f"hospitals are left out in {counted(len(folds), 'fold')}: {runs:,} more runs"
    if len(folds) <= MANY:
        return line
    return f"{line}; with evaluation.unseen.folds {FOLDS} they are {FOLDS * strategies * seeds:,}"


def folds_of(section: UnseenSection, federation: Federation, seed: int) -> list[Fold]:
    """Return the folds: the groups of hospitals that are left out of training together.

    Raises ``ConfigError`` if ``section`` does not fit the data.
    """
    names = natural(federation.hospitals)
    if section.onboarding != (0,) and section.joining == "recalibrate" and not federation.sizes("validation").any():
        raise ConfigError(
            "evaluation.unseen.onboarding: recalibrates towards the mean of the other hospitals, which needs their "
            "validation rows; "
            "give data.split.validation a share, or set evaluation.unseen.joining: fine_tune"
        )
    most = int((1 - section.held) * int(federation.totals.max()) + 1e-9)
    asked = max((each for each in section.onboarding if isinstance(each, int)), default=0)
    if asked > most:
        raise ConfigError(
            f"evaluation.unseen.onboarding: {asked:,} is more than the {most:,} labelled rows that a hospital has at "
            f"most with held {section.held:g}; lower onboarding"
        )
    folds = section.folds
    if folds is None:
        folds = "leave_one_out" if len(names) <= LEAVE_ONE else FOLDS
    if folds == "leave_one_out":
        held: list[tuple[str, ...]] = [(name,) for name in names]
    elif isinstance(folds, int):
        if folds > len(names):
            raise ConfigError(
                f"evaluation.unseen.folds: {folds} are more than the {counted(len(names), 'hospital')}; write "
                "leave_one_out"
            )
        shuffled = stream(seed, "folds of hospitals").permutation(len(names))
        held = [tuple(names[i] for i in np.sort(part)) for part in np.array_split(shuffled, folds) if len(part)]
    else:
        held = [(fold,) if isinstance(fold, str) else tuple(fold) for fold in folds]
    present = _with_class(federation)
    for left_out in held:
        for name in left_out:
            if name not in names:
                raise ConfigError(f"evaluation.unseen.folds: '{name}' is not a hospital; {nearest(name, names)}")
        rest = len(names) - len(left_out)
        if rest < FEWEST:
            raise ConfigError(
                f"evaluation.unseen.folds: only {counted(rest, 'hospital')} would take part without "
                f"{', '.join(left_out)}; leave out fewer, so that at least {FEWEST} take part"
            )
        taught = present[~np.isin(federation.hospitals, left_out)].any(axis=0)
        if taught.sum() == 1:
            raise ConfigError(
                f"evaluation.unseen.folds: all training rows without {', '.join(left_out)} have the label "
                f"'{federation.classes[taught.argmax()]}'; leave fewer hospitals out"
            )
    return [Fold(number, left_out) for number, left_out in enumerate(held, start=1)]


def _with_class(federation: Federation) -> NDArray[np.bool_]:
    """Return which classes occur in each hospital's training rows, ``[hospitals, classes]``."""
    present = np.zeros((len(federation.hospitals), len(federation.classes)), np.bool_)
    if federation.classes:
        for h in range(len(present)):
            present[h, federation.y[federation.rows(h, "train")]] = True
    return present
