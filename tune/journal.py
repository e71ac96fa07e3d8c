"""The journal of a sweep: one line for every finished trial.

When a trial ends, its line is written to disk before the searcher proposes another trial. The first line of
``journal.jsonl`` identifies the sweep, and each further line is a trial. Lines are appended and synced to disk, and
never changed, so that a killed sweep loses only the trials that were running.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from raysim.config.checking import validated
from raysim.core import bounded
from raysim.core.errors import ConfigError, DataError
from raysim.engine.job import Round
from raysim.tune.spaces import Params
from raysim.tune.trial import Metrics, figures, headline

JOURNAL = "journal.jsonl"

MOST_BYTES = 2**31
"""The size in bytes of the largest journal that can be read."""

Status = Literal["completed", "stopped", "failed"]


@dataclass
class Finished:
    """A trial that has ended: ``completed``, ``stopped`` by the scheduler, or ``failed``.

    A trial is also ``completed`` if ``training.stop`` ended its runs. ``rounds`` has the rounds of each seed's run, and
    ``finals`` its final metrics. In a stopped trial, ``finals`` has the metrics of the run's last evaluated round.
    """

    number: int
    params: Params
    status: Status
    error: str | None = None
    attempts: int = 1
    seconds: float = 0.0
    rounds: dict[int, list[Round]] = field(default_factory=dict)
    finals: dict[int, Metrics] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, tuple[float, float]]:
        """Return the mean and the standard deviation over seeds of each metric of the headline model, and of the
        traffic."""
        return figures([headline(metrics) for metrics in self.finals.values()], self.rounds)

    def means(self) -> dict[str, float]:
        """Return the mean over seeds of each metric of the headline model (the strategy's most personal model), and of
        the traffic."""
        return {name: mean for name, (mean, _) in self.figures.items()}


@dataclass(frozen=True)
class Header:
    """The first line of a journal: digests of ``sweep.yaml`` and of the data, and the folder from which relative paths
    start."""

    sweep: str | None = None
    data: list[str] | None = None
    working: str | None = None


class Journal:
    """The journal of the sweep in ``folder``; an existing file must have the digests in ``header``."""

    def __init__(self, folder: Path, header: Mapping[str, Any]) -> None:
        self._path = folder / JOURNAL
        self.trials: dict[int, Finished] = {}
        if self._path.exists():
            self._read(header)
        else:
            self._append(dict(header))

    def add(self, trial: Finished) -> None:
        """Append a line for ``trial`` to the journal, and return when it is on disk."""
        self._append(_plain(trial))
        self.trials[trial.number] = trial

    def _read(self, header: Mapping[str, Any]) -> None:
        whole, _, rest = _content(self._path).rpartition(b"\n")
        if rest:  # the unfinished line of a killed driver
            os.truncate(self._path, len(whole) + 1 if whole else 0)
        lines = whole.splitlines()
        if not lines:
            self._append(dict(header))
            return
        _check_header(self._path.parent, _header(self._path, lines[0]), header)
        self.trials = _trials(self._path, lines)

    def _append(self, tree: Mapping[str, Any]) -> None:
        with self._path.open("ab") as file:
            file.write(json.dumps(tree).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def digest(path: Path) -> str:
    """Return a digest of a file's content."""
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def working(folder: Path) -> Path:
    """Return the working folder in which the sweep in ``folder`` was begun.

    If the working folder is unknown or missing, the current folder is returned.
    """
    first, whole, _ = _content(folder / JOURNAL).partition(b"\n")
    begun = _header(folder / JOURNAL, first).working if whole else None
    return Path(begun) if begun is not None and Path(begun).is_dir() else Path.cwd()


def _content(path: Path) -> bytes:
    try:
        return bounded.read_bytes(path, MOST_BYTES)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); start another sweep") from None


def _header(path: Path, line: bytes) -> Header:
    try:
        return validated(Header, bounded.json_value(line), f"{path} line 1")
    except ValueError as error:
        raise ConfigError(f"{path} line 1: cannot be read ({error}); start another sweep") from None


def _check_header(folder: Path, written: Header, now: Mapping[str, Any]) -> None:
    if written.sweep != now["sweep"]:
        raise ConfigError(
            f"{folder / 'sweep.yaml'}: changed since the sweep began; restore it, or start another sweep with it"
        )
    if written.data != now["data"]:
        raise DataError(
            f"{folder}: the data changed since the sweep began, so its trials cannot be compared; restore the data, "
            "or start another sweep"
        )


def read_trials(folder: Path) -> dict[int, Finished]:
    """Read the finished trials of the sweep in ``folder``, by number.

    Raises ``ConfigError`` if the journal cannot be read.
    """
    whole, _, _ = _content(folder / JOURNAL).rpartition(b"\n")
    return _trials(folder / JOURNAL, whole.splitlines())


def _trials(path: Path, lines: Sequence[bytes]) -> dict[int, Finished]:
    trials = (_trial(f"{path} line {number}", line) for number, line in enumerate(lines[1:], start=2))
    return {trial.number: trial for trial in trials}


def _plain(trial: Finished) -> dict[str, Any]:
    # Not dataclasses.asdict, whose copying takes longer than writing.
    rounds = {seed: [vars(row) for row in rows] for seed, rows in trial.rounds.items()}
    return {**vars(trial), "rounds": rounds}


def _trial(where: str, line: bytes) -> Finished:
    try:
        trial = validated(Finished, bounded.json_value(line), where)
    except ValueError as error:
        raise ConfigError(f"{where}: cannot be read ({error}); remove the line, and its trial is run again") from None
    except ConfigError as error:
        raise ConfigError(f"{error}; remove the line, and its trial is run again") from None
    return trial
