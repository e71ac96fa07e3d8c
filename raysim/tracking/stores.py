"""Addresses of stores that record runs, and a check whether a store can be written to."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse

from raysim.core.errors import ConfigError

NOWHERE = "none"

SQLITE = "sqlite:///"

SERVERS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}


def check_reachable(uri: str) -> None:
    """Raise ``ConfigError`` if ``uri`` is no MLflow store, cannot be reached, or is a file that cannot be written."""
    if uri == NOWHERE:
        return
    try:
        parsed = urlparse(uri)
        port = parsed.port
    except ValueError as error:
        raise ConfigError(
            f"tracking.uri: '{uri}' is not an address ({error}); write for example http://host:port"
        ) from None
    if uri.startswith(SQLITE):
        _check_sqlite(uri)
    elif (scheme := parsed.scheme.partition("+")[0]) in SERVERS and (parsed.hostname or scheme.startswith("http")):
        port = port or SERVERS[scheme]
        try:
            socket.create_connection((parsed.hostname or "", port), timeout=2).close()
        except (OSError, UnicodeError) as error:  # invalid host names raise UnicodeError
            raise ConfigError(
                f"tracking.uri: {uri} cannot be reached ({error}); start this server, or set another store"
            ) from None
    elif scheme not in (*SERVERS, "databricks"):
        raise ConfigError(f"tracking.uri: '{uri}' is not a store; use sqlite:///mlflow.db, http://host:port or none")


def _check_sqlite(uri: str) -> None:
    path = sqlite_path(uri)
    begins = b""
    try:
        # Write a file: permission bits do not reveal read-only file systems.
        tempfile.TemporaryFile(dir=path.absolute().parent).close()
        if path.exists():
            with path.open("r+b") as file:
                begins = file.read(15)
    except OSError as error:
        raise ConfigError(
            f"tracking.uri: {uri} cannot be written ({path.absolute()}: {error.strerror}); name a file in a "
            "writable folder"
        ) from None
    if not begins:
        return
    if begins != b"SQLite format 3":
        raise ConfigError(f"tracking.uri: {path.absolute()} is not a SQLite database; name another file")


@contextlib.contextmanager
def opening(uri: str) -> Iterator[None]:
    """Inside the context, prevent other raysim processes from opening the same MLflow store file.

    If two processes create MLflow's tables at the same time, the database can never be opened again. Stores that are
    not files, and stores on file systems without locks, are opened without a lock.
    """
    if not uri.startswith(SQLITE):
        yield
        return
    path = sqlite_path(uri).absolute()
    lock = path.with_name(f".{path.name}.lock")
    handle = None
    with contextlib.suppress(OSError):
        handle = _locked(lock)
    try:
        yield
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):
                lock.unlink()
            os.close(handle)


def _locked(lock: Path) -> int:
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # The previous owner may have removed the file: a lock on a removed file has no effect.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(lock)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def sqlite_path(uri: str) -> Path:
    """Return the path of the file in a ``sqlite:///`` address.

    With three slashes, the path is relative to the working directory.
    """
    return Path(uri.removeprefix(SQLITE))
