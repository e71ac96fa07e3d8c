"""The file ``resume.json``, from which a stopped run or comparison is resumed; it is in the folder from the start.

It contains:

- the settings that determine the result, so that a changed configuration is detected;
- the folder or URI of checkpoints;
- the working directory, from which relative paths start;
- the id by which MLflow identifies the run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raysim.config.checking import validated
from raysim.core import bounded
from raysim.core.atomic import remove_stray, write_json
from raysim.core.errors import ConfigError, ResourceError
from raysim.core.words import flatten
from raysim.data.federation import Federation
from raysim.engine.job import EarlierStarts, Outcome
from raysim.storage import checkpoints, manifest
from raysim.storage.file_store import file_store
from raysim.storage.finished import FINISHED, load_finished, save_finished
from raysim.storage.manifest import Kind, Manifest, check_plain
from raysim.storage.results import write_config

FILE = "resume.json"
PENDING_MLFLOW = "unsent.json"
CHECKPOINTS = "checkpoints"
OWNER = "owner.json"
"""Name of a file next to checkpoints that are outside the run's folder. It names the run that owns the checkpoints."""
FORMAT = 1

KINDS = ("run", "compare", "curve")

FREE = ("name", "resources", "tracking", "checkpoint")
"""Sections of a configuration that do not affect results."""

_PLAIN = {"None": "null", "True": "true", "False": "false"}


@dataclass(frozen=True)
class Ticket:
    """The content of ``resume.json``."""

    kind: str
    settings: Mapping[str, Any]
    checkpoints: str
    """The place of checkpoints: ``checkpoints`` in the run's folder, or another folder or URI."""
    working: str
    """The working directory of the command, from which relative paths start."""
    id: str
    """The id by which MLflow identifies the run."""
    finished: bool = False
    reached: int = 0
    """An upper bound on the last round that was run since the latest start or resumption. It stays 0 in a run whose
    repeated rounds draw no new noise."""
    starts: int = 0
    """How often the run was started or resumed before the latest start or resumption. It stays 0 in a run whose
    repeated rounds draw no new noise."""
    rounds: int = 0
    """An upper bound on the number of rounds that were run again after earlier stops. Each repetition has a privacy
    cost."""
    baselines: int = 0
    """How often the baseline (the runs without the attack) was started. Each start has a privacy cost."""
    format: int = FORMAT

    @property
    def fingerprint(self) -> str:
        """The digest of the settings that determine the result. Every checkpoint contains this digest."""
        text = json.dumps(self.settings, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def location(self, folder: Path) -> str:
        """Return the path or URI of the checkpoints of the run in ``folder``."""
        return str(folder.absolute() / CHECKPOINTS) if self.checkpoints == CHECKPOINTS else self.checkpoints

    def check_owner(self, folder: Path) -> None:
        """Raise ``ConfigError`` if the checkpoints are outside ``folder`` and belong to another run.

        A run removes old checkpoints: with a modified ``resume.json``, it could remove those of another run.
        """
        if self.checkpoints == CHECKPOINTS:
            return
        try:
            owner = bounded.json_value(file_store(self.checkpoints).read(OWNER))
        except (OSError, ValueError):
            owner = None
        if owner != _owner(self.id, folder):
            raise ConfigError(
                f"{folder / FILE}: the checkpoints at {self.checkpoints} are not known to be of this run; if the "
                "run's folder was moved, move it back, otherwise start a new run"
            )

    def save(self, folder: Path) -> None:
        """Write ``resume.json`` into a run's folder."""
        write_json(folder / FILE, dataclasses.asdict(self))

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise ``ConfigError`` for the first key of ``settings`` whose value has changed since the run's start."""
        then, now = dict(flatten(self.settings)), dict(flatten(settings))
        for key in [*then, *now]:
            if then.get(key) != now.get(key):
                is_now, was = (_PLAIN.get(text, text) for text in (now.get(key, "absent"), then.get(key, "absent")))
                instead = "" if key in then and key in now else "finish the run with the version that started it, "
                raise ConfigError(
                    f"{key}: is {is_now}, but was {was} when the run was started; restore it, {instead}or start a new "
                    "run"
                )


def settings_of(frozen: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """Return the settings that determine a run's result, for comparison when the run is resumed.

    They are the stored configuration (``frozen``) without the sections :data:`FREE`, and the fingerprint of the data
    (``data``).
    """
    tree = {key: value for key, value in frozen.items() if key not in FREE}
    plain: dict[str, Any] = json.loads(json.dumps(tree | {"data fingerprint": data}))
    return plain


def read_ticket(folder: Path) -> Ticket:
    """Read ``resume.json`` in a folder. Raises ``ConfigError`` if this is impossible."""
    try:
        tree = bounded.read_json(folder / FILE)
        if tree.get("format") != FORMAT:
            raise ConfigError(
                f"{folder}: its {FILE} has format {tree.get('format')}, and this version reads {FORMAT}; start a new "
                "run"
            )
        validated(Ticket, tree, str(folder / FILE))
        ticket = Ticket(**tree)
        if not re.fullmatch("[0-9a-f]{32}", ticket.id):
            raise ValueError(f"id {ticket.id!r} was not made by raysim")
        if min(ticket.reached, ticket.starts, ticket.rounds, ticket.baselines) < 0:
            raise ValueError("one of its counts is negative")
    except OSError as error:
        raise ConfigError(
            f"{folder}: has no run to resume ({FILE}: {error.strerror}); name the folder of a run or comparison"
        ) from None
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{folder / FILE}: cannot be read ({error}); start a new run") from None
    if ticket.kind not in KINDS:
        raise ConfigError(
            f"{folder / FILE}: kind {ticket.kind!r} is not among those that this version resumes ({', '.join(KINDS)}); "
            "start a new run"
        )
    return ticket


def has_progress(folder: Path) -> bool:
    """Return whether a run in ``folder``, or in the comparison in ``folder``, is finished or has a checkpoint.

    Checkpoints at a URI are assumed to exist.
    """
    for each, ticket in _tickets(folder):
        if ticket.finished or "://" in ticket.checkpoints:
            return True
        if any(Path(ticket.location(each)).glob("round-*")):
            return True
    return False


def _tickets(folder: Path) -> Iterator[tuple[Path, Ticket]]:
    """Yield the folder and the ticket of a run, or of a comparison and its runs."""
    for path in (*folder.glob(FILE), *folder.glob(f"runs/*/seed-*/{FILE}")):
        yield path.parent, read_ticket(path.parent)


def _check_formats(folder: Path) -> None:
    """Raise ``ConfigError`` if unfinished runs of ``folder`` have checkpoints in the format of another version.

    Call this before settings are compared. Otherwise, if the other version also has other settings, the error would
    name a changed setting as the reason.
    """
    for each, ticket in _tickets(folder):
        if not ticket.finished:
            checkpoints.check_last_format(ticket.location(each))


@contextlib.contextmanager
def held(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """Create a folder, and lock it against other processes of raysim.

    Raises ``ResourceError`` if the folder cannot be created. Raises ``ConfigError`` if another process still holds the
    lock after ``patience`` seconds, or if :func:`check_plain` rejects the folder. At the end, created folders are
    removed if they are empty.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            _lock(handle, patience)
        except BlockingIOError:
            raise ConfigError(
                f"{folder}: another raysim command is using this folder; wait until it ends, or name another folder"
            ) from None
        except OSError:  # a file system without locks
            pass
        check_plain(folder)
        yield
    finally:
        os.close(handle)
        with contextlib.suppress(OSError):  # it is not empty
            for each in made:
                each.rmdir()


def _lock(handle: int, patience: float) -> None:
    end = time.monotonic() + patience
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise
        time.sleep(0.02)


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn errors of the file system in this context into ``ResourceError``, which names ``folder``."""
    try:
        yield
    except OSError as error:
        raise ResourceError(
            f"{folder}: cannot be written ({error.strerror or error}); remove the cause, then continue "
            f"with 'raysim resume {folder}'"
        ) from None


@dataclass(eq=False)
class Opened:
    """The open folder of a run or comparison. ``again`` says whether it is resumed."""

    folder: Path
    ticket: Ticket
    manifest: Manifest
    again: bool

    def finish(self, outcome: Outcome | None = None, *, models: bool = False) -> None:
        """Record that the run or comparison is finished, and store the ``outcome`` for the run's comparison."""
        with writing(self.folder):
            if outcome is not None:
                save_finished(self.folder, outcome, models=models)
            dataclasses.replace(self.ticket, finished=True).save(self.folder)

    def begins(self, since: int) -> EarlierStarts:
        """Return how often the run was started before, and an upper bound on the number of rounds that are run again.

        The run continues after round ``since``. Each repetition of a round costs privacy again.
        """
        before = EarlierStarts(self.ticket.starts, self.ticket.rounds)
        earlier = before.stopped(since, self.ticket.reached) if self.ticket.reached else before
        self.ticket = dataclasses.replace(self.ticket, starts=earlier.starts, rounds=earlier.rounds, reached=0)
        return earlier

    def reaches(self, round: int) -> None:
        """Record that rounds up to ``round`` may run, and therefore count for the privacy cost. Call this method before
        these rounds run.
        """
        self.ticket = dataclasses.replace(self.ticket, reached=round)
        with writing(self.folder):
            self.ticket.save(self.folder)

    def begins_baseline(self) -> int:
        """Record the start of the baseline, the runs without the attack. Returns how often the baseline was started
        before.

        Call this method before these runs, because each start costs privacy.
        """
        before = self.ticket.baselines
        self.ticket = dataclasses.replace(self.ticket, baselines=before + 1)
        with writing(self.folder):
            self.ticket.save(self.folder)
        return before

    def finished(self) -> Outcome | None:
        """Return the stored result of a finished run of a comparison.

        Returns None if the run is not finished, or if one of its files is missing or changed: the run must then be
        repeated.
        """
        if not (self.again and self.ticket.finished) or self.manifest.changed():
            return None
        return load_finished(self.folder)

    def forget(self) -> None:
        """Remove the result files, the manifest and ``resume.json``, and the folder if nothing else is in it."""
        (self.folder / FILE).unlink(missing_ok=True)
        self.manifest.remove()
        with contextlib.suppress(OSError):
            self.folder.rmdir()


@contextlib.contextmanager
def opened(
    kind: Kind,
    folder: Path,
    frozen: Mapping[str, Any],
    federation: Federation,
    data: Any,
    *,
    again: bool,
    patience: float = 0.0,
) -> Iterator[Opened]:
    """Open ``folder`` for a run or comparison, locked against other processes.

    With ``again``, the run or comparison in the folder is resumed, if there is one. Raises ``ConfigError`` if its
    settings have changed. In all other cases the files of an earlier run or comparison are removed, and the
    configuration is written.

    - ``frozen``: the complete configuration, as it is stored.
    - ``data``: the fingerprint of the data.
    - ``patience``: the seconds to wait for another process that uses the folder.
    """
    settings = settings_of(frozen, data)
    with held(folder, patience):
        if again and (folder / FILE).exists():
            ticket = read_ticket(folder)
            _check_formats(folder)
            ticket.check(settings)
            ticket.check_owner(folder)
            remove_stray(folder)
            yield Opened(folder, ticket, Manifest.read(folder), True)
            return
        run_id = uuid.uuid4().hex
        section = frozen["checkpoint"]
        outside = None if section.get("every") == 0 else section.get("path")
        location = _checkpoints_at(outside, f"{frozen['name']}-{run_id[:12]}")
        ticket = Ticket(kind, settings, location, os.getcwd(), run_id)
        with writing(folder):
            for name in (FINISHED, PENDING_MLFLOW):
                (folder / name).unlink(missing_ok=True)
            # Otherwise a run of an earlier comparison could be resumed in this one, or be counted as one of its runs.
            for other in folder.glob(f"runs/*/seed-*/{FILE}"):
                other.unlink()
            for other in folder.glob(f"runs/*/seed-*/{manifest.NAME}"):
                Manifest.read(other.parent).remove()
            results = Manifest.begin(folder, kind)
            checkpoints.clear(ticket.location(folder))
            if location != CHECKPOINTS:
                file_store(location).write(OWNER, json.dumps(_owner(run_id, folder)).encode())
            write_config(results, frozen, federation)
            ticket.save(folder)
        yield Opened(folder, ticket, results, False)


def _owner(run_id: str, folder: Path) -> dict[str, str]:
    return {"id": run_id, "folder": str(folder.resolve())}


def _checkpoints_at(path: str | None, name: str) -> str:
    """Return where a run's checkpoints are stored: in the run's own folder if ``path`` is None, else in the subfolder
    ``name`` of the folder or URI ``path``.
    """
    if path is None:
        return CHECKPOINTS
    return f"{path.rstrip('/')}/{name}" if "://" in path else str(Path(path).absolute() / name)
