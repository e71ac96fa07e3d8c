"""Folders on this machine, or on any file system of pyarrow, in which files appear complete or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from raysim.core.errors import ConfigError


class FileStore(Protocol):
    """A folder on this machine or on another file system. A file appears in it completely or not at all."""

    def names(self) -> list[str]:
        """List the files; none if the folder does not exist."""

    def read(self, name: str) -> bytes:
        """Return a file's content."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file. The folder is created if it does not exist."""

    def remove(self, name: str) -> None:
        """Remove a file."""


class LocalFileStore:
    """A folder on this machine. Written files survive a loss of power."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        return sorted(os.listdir(self._folder)) if self._folder.is_dir() else []

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = self._folder / f".{name}.tmp"
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._folder / name)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        handle = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        for left in self._folder.glob(".*.tmp"):  # left by a process that was killed
            left.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)


class RemoteFileStore:
    """A folder on any file system of pyarrow: ``s3://bucket/folder``, ``gs://``, ``hdfs://``, ``file:///``."""

    def __init__(self, uri: str) -> None:
        from pyarrow import fs

        try:
            self._system, self._folder = fs.FileSystem.from_uri(uri)
        except (OSError, ValueError) as error:  # pyarrow's own errors have both types
            raise ConfigError(
                f"checkpoint.path: {uri} cannot be used ({reason(error)}); name a folder or another URI"
            ) from None

    def names(self) -> list[str]:
        from pyarrow import fs

        entries = self._system.get_file_info(fs.FileSelector(self._folder, allow_not_found=True))
        return sorted(info.base_name for info in entries if info.type == fs.FileType.File)

    def read(self, name: str) -> bytes:
        with self._system.open_input_stream(f"{self._folder}/{name}") as file:
            content: bytes = file.read()
        return content

    def write(self, name: str, content: bytes) -> None:
        self._system.create_dir(self._folder, recursive=True)
        temporary = f"{self._folder}/.{name}.tmp"
        with self._system.open_output_stream(temporary) as file:
            file.write(content)
        self._system.move(temporary, f"{self._folder}/{name}")

    def remove(self, name: str) -> None:
        self._system.delete_file(f"{self._folder}/{name}")


def file_store(location: str) -> FileStore:
    """Return the store of files at a path or URI. Raises ``ConfigError`` for an unknown file system."""
    return RemoteFileStore(location) if "://" in location else LocalFileStore(Path(location))


def check(location: str) -> None:
    """Create the checkpoint folder ``location``. Raises ``ConfigError`` if it cannot be written."""
    try:
        probe = file_store(location)
        probe.write("probe", b"")
        probe.remove("probe")
    except OSError as error:
        raise ConfigError(
            f"checkpoint.path: {location} cannot be written ({reason(error)}); name a writable folder"
        ) from None


def reason(error: Exception) -> str:
    """Return the first line of an error's message."""
    text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return str(text).splitlines()[0]
