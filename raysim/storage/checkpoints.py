"""Checkpoints: a run's state as one safetensors file with a JSON header, from which the run resumes bit for bit.

Reading a checkpoint executes no code from it. A file appears complete or not at all, and its name contains the digest
of its content. If a file is damaged, the run resumes from an earlier one. Random generators have no state to store:
they are keyed by seed, purpose, round and hospital.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from raysim.core.errors import ConfigError, ResourceError
from raysim.engine.run_state import RunState
from raysim.storage.encoding import Damaged, check_format, decode, encode
from raysim.storage.file_store import FileStore, file_store, reason
from raysim.strategies.base import Strategy

NAME = re.compile(r"round-(\d+)\.([0-9a-f]{32})\.safetensors")


class Checkpoints:
    """The checkpoints of one run of ``strategy`` at ``location``, a folder or URI. Only the last ``keep`` are stored.

    ``fingerprint`` is the digest of the settings that determine the result.
    """

    def __init__(self, location: str, keep: int, fingerprint: str, strategy: Strategy) -> None:
        self.location = location
        self._files = file_store(location)
        self._keep = keep
        self._fingerprint = fingerprint
        self._strategy = strategy

    def write(self, state: RunState) -> None:
        """Write a checkpoint, then remove the checkpoints of later rounds, and the oldest ones until ``keep`` are left.

        Raises ``ResourceError`` if the checkpoint cannot be written.
        """
        content = encode(state, self._fingerprint, self._strategy)
        name = f"round-{state.round:06d}.{_digest(content)}.safetensors"
        try:
            self._files.write(name, content)
            others = [other for other in _listed(self._files) if other != (state.round, name)]
            earlier = [round for round, _ in others if round < state.round]
            last = earlier[len(earlier) - min(len(earlier), self._keep - 1) :]
            for round, other in others:
                if round not in last:
                    self._files.remove(other)
        except OSError as error:
            raise ResourceError(
                f"checkpoint: {self.location} cannot be written after round {state.round} ({reason(error)}); "
                "make room or set checkpoint.path"
            ) from None

    def latest(self) -> tuple[RunState | None, list[str]]:
        """Return the last undamaged checkpoint (None if there is none), and a message on each later, damaged
        checkpoint.

        Raises ``ConfigError`` for a checkpoint of another run or another format, and if checkpoints cannot be listed.
        """
        damaged = []
        for name in _newest_first(self._files, self.location):
            try:
                state, fingerprint = _checked(_intact(self._files, name, self.location), self._strategy)
            except (OSError, Damaged) as error:
                damaged.append(f"checkpoint {name[:12]} is damaged ({reason(error)})")
                continue
            if fingerprint != self._fingerprint:
                raise ConfigError(f"checkpoint: {self.location}/{name} is of another run; name another checkpoint.path")
            return state, damaged
        return None, damaged


def check_last_format(location: str) -> None:
    """Raise ``ConfigError`` if the last undamaged checkpoint at ``location`` is in the format of another version."""
    files = file_store(location)
    for name in _newest_first(files, location):
        with contextlib.suppress(OSError, Damaged):
            _intact(files, name, location)
            return


def clear(location: str) -> None:
    """Remove all checkpoints at ``location``."""
    files = file_store(location)
    for _, name in _listed(files):
        files.remove(name)


def _listed(files: FileStore) -> list[tuple[int, str]]:
    matches = [NAME.fullmatch(name) for name in files.names()]
    return sorted((int(match[1]), match[0]) for match in matches if match)


def _newest_first(files: FileStore, location: str) -> list[str]:
    try:
        return [name for _, name in reversed(_listed(files))]
    except OSError as error:
        raise ConfigError(f"checkpoint: {location} cannot be read ({reason(error)}); make it readable") from None


class Writer:
    """Writes checkpoints on a background thread while rounds continue.

    If a checkpoint cannot be written, the error is raised at the next checkpoint, or at the end of the context.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None
        self.round = 0
        """The round of the last checkpoint passed to the writer; 0 before the first."""

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.shutdown(wait=True)
        if self._writing is not None and error is None:
            self._writing.result()

    def offer(self, state: RunState) -> None:
        """Wait until the previous checkpoint is written, then begin to write ``state`` in the background."""
        if self._writing is not None:
            self._writing.result()
        self.round = state.round
        self._writing = self._thread.submit(self._checkpoints.write, state)


def _intact(files: FileStore, name: str, location: str) -> bytes:
    """Return the content of a checkpoint. Raises ``Damaged``, and ``ConfigError`` for another format."""
    content, match = files.read(name), NAME.fullmatch(name)
    if match is None or _digest(content) != match[2]:
        raise Damaged("its content does not have the digest in its name")
    check_format(content, f"{location}/{name}")
    return content


def _checked(content: bytes, strategy: Strategy) -> tuple[RunState, str]:
    state, fingerprint = decode(content, strategy)
    if state.history is None:
        raise Damaged("it does not contain the results of earlier rounds")
    return state, fingerprint


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
