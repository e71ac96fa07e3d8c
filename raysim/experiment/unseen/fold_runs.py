"""Executes the runs without the hospitals of each fold, and makes and removes the folds' data."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from raysim.config import plugins
from raysim.config.schema import Config
from raysim.core.errors import ConfigError, ResourceError
from raysim.core.package import cache_folder
from raysim.data import cache
from raysim.engine.job import Result
from raysim.experiment.entries import Entry, folder_of
from raysim.experiment.one_run import Run
from raysim.experiment.unseen.folds import Fold, LeftOut
from raysim.experiment.unseen.keeping import load, store
from raysim.experiment.unseen.rows import Judged, judge
from raysim.storage import resume
from raysim.storage.manifest import Manifest

SHELF, LOCK = "folds-", ".lock"
"""The prefix of a comparison's folder in the cache, and the suffix of the empty folder that is locked for it."""

STARTING = 60.0
"""Free locks younger than this many seconds are not removed: their comparison may be about to take them."""

COLUMNS = ("prepared", "raw")
"""Names of the two versions of a fold's data in the cache. The first is prepared for the configuration's own model, the
second for models that need other column preparation."""


def host_of(entry: Entry, entries: Sequence[Entry]) -> Entry:
    """Return the strategy whose runs are used to evaluate ``entry`` at hospitals that are left out of training.

    If hospitals train alone under ``entry``, this is a strategy of joint training with the same preparation of data, if
    there is one. In all other cases, it is ``entry``.
    """
    alike = (
        each
        for each in entries
        if entry.strategy.alone and not each.strategy.alone and plugins.prepared_alike(each.config, entry.config)
    )
    return next(alike, entry)


def hosts(entries: Sequence[Entry]) -> list[Entry]:
    """Return the strategies that must be trained again for every fold and seed."""
    return [entry for entry in entries if host_of(entry, entries) is entry]


class FoldRuns:
    """The runs in which the hospitals of a fold are left out of training, for all strategies, seeds and folds.

    The federation of a fold exists only during its runs, because the federations of many folds would fill the disk.
    ``together`` is the number of concurrent runs. Concurrent runs are mostly for different folds or seeds, so that few
    processes make the same federation.
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
        """Prepare the runs for the comparison in ``folder``. Runs whose results are already stored there are not
        repeated.

        ``ticket`` is the id in the comparison's ``resume.json``. ``served`` has, by strategy label, the names of the
        models that are evaluated.
        """
        self._config, self._folder, self._ticket, self._served = config, folder, ticket, served
        self._shelf = f"{SHELF}{ticket}"
        self._guests: dict[str, list[Entry]] = {}
        for entry in entries:
            self._guests.setdefault(host_of(entry, entries).label, []).append(entry)
        self._order = [(fold, seed, e.label) for fold, seed, e in itertools.product(folds, seeds, entries)]
        each = list(itertools.product(folds, seeds))
        groups = [each[i : i + together] for i in range(0, len(each), together)]
        asked = [(fold, seed, entry) for group in groups for entry in hosts(entries) for fold, seed in group]
        self._loaded: dict[Path, list[Judged]] = {}
        for fold, seed, entry in asked:
            folder_of_run = self._folder_of(fold, seed, entry)
            if (found := load(folder_of_run, fold, seed, ticket)) is not None:
                self._loaded[folder_of_run] = found
        self._asked = [each for each in asked if self._folder_of(*each) not in self._loaded]
        self.runs = [self._run(*each) for each in self._asked]

    def judged(self, ended: Iterable[tuple[Run, Result | Exception]], out: Manifest) -> list[Judged]:
        """Evaluate each run that ``ended`` yields, at the hospitals that the run left out.

        Returns the results in the order of folds, then seeds, then strategies.
        """
        waiting = Counter((fold, seed) for fold, seed, _ in self._asked)
        found: dict[tuple[Fold, int, str], Judged] = {}
        for folder, before in self._loaded.items():
            out.add(Manifest.read(folder))
            found |= {(each.fold, each.seed, each.strategy): each for each in before}
        with _own_shelf(self._shelf):
            for (fold, seed, entry), (run, result) in zip(self._asked, ended, strict=True):
                if isinstance(result, Result):
                    out.add(Manifest.read(run.folder))
                    judged = [self._judged(fold, guest, entry, result) for guest in self._guests[entry.label]]
                    with resume.writing(run.folder):
                        store(run.folder, judged, self._ticket)
                    found |= {(fold, seed, each.strategy): each for each in judged}
                waiting[fold, seed] -= 1
                if not waiting[fold, seed]:
                    for columns in COLUMNS:
                        cache.remove(self._shelf, _key(fold, seed, columns))
        return [found[at] for at in self._order if at in found]

    def _judged(self, fold: Fold, entry: Entry, host: Entry, result: Result) -> Judged:
        """Evaluate a strategy at the hospitals of a fold.

        ``result`` is the result of the run of ``host`` (:func:`host_of`).
        """
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
        folder = self._folder_of(fold, seed, entry)
        columns = COLUMNS[0] if plugins.prepared_alike(entry.config, self._config) else COLUMNS[1]
        data = cache.entry(self._shelf, _key(fold, seed, columns))
        name = f"{entry.label}, seed {seed}, fold {fold.number}"
        without = replace(entry, config=fold.of(entry.config))
        return Run(without, seed, data, folder, name, True, first=False, held=fold.held)

    def _folder_of(self, fold: Fold, seed: int, entry: Entry) -> Path:
        return self._folder / "unseen" / folder_of(entry.label) / f"seed-{seed}" / f"fold-{fold.number}"


@contextlib.contextmanager
def _own_shelf(shelf: str) -> Iterator[None]:
    """Lock the cache folder ``shelf`` for this comparison, and remove its content before and afterwards. First removes
    the cache folders of killed comparisons, whose locks are free.
    """
    for lock in cache_folder().glob(f"{SHELF}*{LOCK}"):
        with contextlib.suppress(ConfigError, ResourceError, OSError):
            if time.time() - lock.stat().st_mtime > STARTING:
                with resume.held(lock):
                    cache.remove(lock.name.removesuffix(LOCK))
                    lock.rmdir()
    with resume.held(cache_folder() / f"{shelf}{LOCK}"):
        cache.remove(shelf)
        try:
            yield
        finally:
            cache.remove(shelf)


def _key(fold: Fold, seed: int, columns: str) -> str:
    return f"seed-{seed}-fold-{fold.number}-{columns}"
