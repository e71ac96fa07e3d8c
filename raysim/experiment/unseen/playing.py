"""The runs without the hospitals of each fold: where their data are made and removed, and what stays of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from raysim.config import plugins
from raysim.config.schema import Config
from raysim.data import cache
from raysim.engine.job import Result
from raysim.experiment.entries import Entry, folder_of
from raysim.experiment.one_run import Run
from raysim.experiment.unseen.folds import Fold, LeftOut
from raysim.experiment.unseen.rows import Judged, judge
from raysim.storage.manifest import Manifest

COLUMNS = ("prepared", "raw")
"""The columns that models use of a fold: those of the configuration's own model, or other ones."""


def host_of(entry: Entry, entries: Sequence[Entry]) -> Entry:
    """Return the strategy whose runs without hospitals also serve to judge ``entry``.

    It is ``entry``. But hospitals that train alone learn nothing from the others, so that no run of theirs is needed:
    another strategy's run has prepared the rows of those left out.
    """
    alike = (
        each
        for each in entries
        if entry.strategy.alone and not each.strategy.alone and plugins.prepared_alike(each.config, entry.config)
    )
    return next(alike, entry)


def hosts(entries: Sequence[Entry]) -> list[Entry]:
    """Return the strategies that are trained once more for every fold and seed."""
    return [entry for entry in entries if host_of(entry, entries) is entry]


class FoldRuns:
    """The runs of all strategies and seeds without the hospitals of each fold.

    The federation of a fold is made where its first run begins, and removed after its last run: a federation for each
    of many folds would fill the disk. ``together`` folds take turns, which are as many as runs execute concurrently,
    so that no two processes make the same one.
    """

    def __init__(
        self,
        config: Config,
        folds: Sequence[Fold],
        seeds: Sequence[int],
        entries: Sequence[Entry],
        folder: Path,
        ticket: str,
        together: int,
        served: Mapping[str, Sequence[str]],
    ) -> None:
        """Make the runs of a comparison in ``folder``.

        The ``ticket`` is the id of its ``resume.json``; ``served`` are the models used of each strategy.
        """
        self._config, self._folder, self._shelf, self._served = config, folder, f"folds-{ticket}", served
        self._guests: dict[str, list[Entry]] = {}
        for entry in entries:
            self._guests.setdefault(host_of(entry, entries).label, []).append(entry)
        self._order = [(fold, seed, e.label) for fold, seed, e in itertools.product(folds, seeds, entries)]
        each = list(itertools.product(folds, seeds))
        groups = [each[i : i + together] for i in range(0, len(each), together)]
        self._asked = [(fold, seed, entry) for group in groups for entry in hosts(entries) for fold, seed in group]
        self.runs = [self._run(*asked) for asked in self._asked]

    def judged(self, played: Iterable[tuple[Run, Result | Exception]], out: Manifest) -> list[Judged]:
        """Judge the hospitals that were left out as soon as a run has ended; ``played`` executes the runs in order.

        Returns what was found in the order of folds, then seeds, then strategies. The runs' files enter ``out``.
        """
        waiting = Counter((fold, seed) for fold, seed, _ in self._asked)
        found = {}
        cache.remove(self._shelf)  # of an earlier start
        try:
            for (fold, seed, entry), (run, result) in zip(self._asked, played, strict=True):
                if isinstance(result, Result):
                    out.add(Manifest.read(run.folder))
                    for guest in self._guests[entry.label]:
                        found[fold, seed, guest.label] = self._judged(fold, guest, entry, result)
                waiting[fold, seed] -= 1
                if not waiting[fold, seed]:
                    for columns in COLUMNS:
                        cache.remove(self._shelf, _key(fold, seed, columns))
        finally:
            cache.remove(self._shelf)
        return [found[at] for at in self._order if at in found]

    def _judged(self, fold: Fold, entry: Entry, host: Entry, result: Result) -> Judged:
        """Judge the hospitals of a fold by a strategy, given the ``result`` of its host's run."""
        section = self._config.evaluation.unseen
        assert section is not None  # there are folds
        if entry is not host:
            unknown = np.full_like(next(iter(result.outcome.predictions.values())), np.nan)
            nobody = dict.fromkeys(self._served[entry.label], unknown)
            outcome = replace(
                result.outcome, predictions=nobody, untrained={}, validation_scores={}, cluster=None, private=None
            )
            result = replace(result, label=entry.label, alone=True, outcome=outcome)
        return judge(LeftOut(fold, fold.of(entry.config), result), section)

    def _run(self, fold: Fold, seed: int, entry: Entry) -> Run:
        folder = self._folder / "unseen" / folder_of(entry.label) / f"seed-{seed}" / f"fold-{fold.number}"
        columns = COLUMNS[0] if plugins.prepared_alike(entry.config, self._config) else COLUMNS[1]
        data = cache.entry(self._shelf, _key(fold, seed, columns))
        name = f"{entry.label}, seed {seed}, fold {fold.number}"
        without = replace(entry, config=fold.of(entry.config))
        return Run(without, seed, data, folder, name, True, first=False, held=fold.held)


def _key(fold: Fold, seed: int, columns: str) -> str:
    return f"seed-{seed}-fold-{fold.number}-{columns}"
