"""The file ``manifest.json``: the files that raysim wrote into a folder, with size and digest.

.. code-block:: json

    {"format": 1, "kind": "run", "version": "0.1.0", "files": {"rounds.csv": {"bytes": 812, "blake2b": "9f0c..."}}}

``files`` are the result files, by their paths in the folder. A file is listed just before it appears. A comparison's
manifest lists the manifests of its runs, and therefore covers all results. Digests are BLAKE2b of 32 bytes (``b2sum -l
256``).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from raysim.core import bounded
from raysim.core.atomic import replacing, write_json
from raysim.core.csv_files import write_csv, write_pieces
from raysim.core.errors import ConfigError
from raysim.core.package import __version__

if TYPE_CHECKING:
    import pandas as pd

NAME = "manifest.json"
FORMAT = 1

Kind = Literal["run", "compare", "curve", "study", "sweep", "audit", "design", "judge", "validate"]


class Manifest:
    """The list of the result files of one command in its folder. Its methods write and remove these files.

    ``kind`` is the command, ``version`` the version of raysim that wrote the files. ``files`` maps each file to its
    size (``bytes``) and digest (``blake2b``).
    """

    def __init__(self, folder: Path, kind: str, version: str, files: Mapping[str, Mapping[str, Any]]) -> None:
        self.folder = folder
        self.kind = kind
        self.version = version
        self._files = dict(files)
        self._unlisted: contextlib.ExitStack | None = None

    @staticmethod
    def begin(folder: Path, kind: Kind) -> Manifest:
        """Begin the manifest of a command in ``folder``; the result files of an earlier command there are removed.

        Raises ``ConfigError`` if the folder contains a sweep, whose trials would be lost.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / NAME).exists():
            earlier = Manifest.read(folder)
            if earlier.kind == "sweep":
                raise ConfigError(f"--out: {folder} holds a sweep; name another folder")
            earlier.remove()
        manifest = Manifest(folder, kind, __version__, {})
        manifest._write()
        return manifest

    @staticmethod
    def read(folder: Path) -> Manifest:
        """Read the manifest in ``folder``. Raises ``ConfigError`` if this is impossible."""
        path = folder / NAME
        try:
            tree = bounded.read_json(path)
            if tree["format"] != FORMAT:
                raise ConfigError(
                    f"{path}: has format {tree['format']}, and this version reads {FORMAT}; name another folder"
                )
            files = {
                _inside(name): {"bytes": int(e["bytes"]), "blake2b": str(e["blake2b"])}
                for name, e in tree["files"].items()
            }
            return Manifest(folder, str(tree["kind"]), str(tree["version"]), files)
        except OSError as error:
            raise ConfigError(
                f"{folder}: its {NAME}, which lists what raysim wrote there, cannot be read ({error.strerror}); "
                "an older version of raysim may have written the folder; start again in another folder"
            ) from None
        except (ValueError, OverflowError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{path}: cannot be read ({error!r}); start again in another folder") from None

    @property
    def files(self) -> Mapping[str, Mapping[str, Any]]:
        """The listed files as ``{path in the folder: {"bytes": size, "blake2b": digest}}``, in the order of writing."""
        return self._files

    def __contains__(self, name: str) -> bool:
        return name in self._files

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Hold back all files that are written in this context, and make them appear together at its end.

        After an error, none of the files appears.
        """
        before = dict(self._files)
        try:
            with contextlib.ExitStack() as self._unlisted:
                yield
                self._write()
        except BaseException:
            self._files = before
            raise
        finally:
            self._unlisted = None

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Write a result file in a context: the caller writes to the yielded path, and the file appears as ``name``."""
        path = self.folder / _inside(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if self._unlisted is not None:
            with contextlib.ExitStack() as written:
                temporary = written.enter_context(replacing(path))
                yield temporary
                self._files[name] = _described(temporary)
                self._unlisted.enter_context(written.pop_all())
            return
        with replacing(path) as temporary:
            yield temporary
            self._list(name, temporary)

    def csv(self, name: str, table: pd.DataFrame) -> None:
        """Write a table, without its index."""
        with self.writing(name) as temporary:
            write_csv(table, temporary)

    def rows(self, name: str, table: pd.DataFrame) -> None:
        """Write a table of many rows, eight times as fast as :meth:`csv`, with all texts quoted."""
        with self.writing(name) as temporary:
            write_csv(table, temporary, many_rows=True)

    def pieces(self, name: str, tables: Iterable[pd.DataFrame]) -> None:
        """Write a table that is given in parts, in the format of :meth:`rows`."""
        with self.writing(name) as temporary:
            write_pieces(tables, temporary)

    def json(self, name: str, value: Any) -> None:
        """Write readable JSON."""
        self.text(name, json.dumps(value, indent=2) + "\n")

    def text(self, name: str, text: str) -> None:
        """Write a text."""
        with self.writing(name) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def add(self, below: Manifest) -> None:
        """List the manifest of a subfolder, ``below``, in this manifest."""
        path = below.folder / NAME
        self._list(path.relative_to(self.folder).as_posix(), path)

    def below(self) -> list[Manifest]:
        """Return the manifests of subfolders that this manifest lists."""
        return [Manifest.read((self.folder / name).parent) for name in self._files if name.endswith(f"/{NAME}")]

    def paths(self) -> dict[str, Path]:
        """Return the files to store in MLflow, by name: the result files of this folder and the manifest itself."""
        return {name: self.folder / name for name in (*self._files, NAME) if not name.endswith(f"/{NAME}")}

    def changed(self) -> list[str]:
        """Return the listed files, also of subfolders, that are missing or changed."""
        names = []
        for name, entry in self._files.items():
            path = self.folder / name
            if not path.is_file() or _described(path) != entry:
                names.append(name)
            elif name.endswith(f"/{NAME}"):
                inner = Manifest.read(path.parent)
                names += [f"{PurePosixPath(name).parent}/{each}" for each in inner.changed()]
        return names

    def remove(self) -> None:
        """Remove the listed files, the manifest, and the subfolders that are then empty."""
        for name in self._files:
            path = self.folder / name
            if name.endswith(f"/{NAME}") and path.exists():
                Manifest.read(path.parent).remove()
            path.unlink(missing_ok=True)
            for parent in PurePosixPath(name).parents[:-1]:
                with contextlib.suppress(OSError):  # it is not empty
                    (self.folder / parent).rmdir()
        (self.folder / NAME).unlink(missing_ok=True)

    def _list(self, name: str, path: Path) -> None:
        self._files[name] = _described(path)
        self._write()

    def _write(self) -> None:
        tree = {"format": FORMAT, "kind": self.kind, "version": self.version, "files": self._files}
        write_json(self.folder / NAME, tree)


def check_plain(folder: Path) -> None:
    """Raise ``ConfigError`` if ``folder`` holds anything except files and folders, at any depth.

    In an untrusted folder, a link could redirect writing or removal outside it, and a pipe could block for ever.
    """
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent) / name
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:  # a temporary file that another process has removed since
                continue
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                what = "a link" if stat.S_ISLNK(mode) else "a pipe, a socket or a device"
                raise ConfigError(f"{path}: is {what}, and raysim works in folders of plain files; remove it")


def spare(path: Path, option: str) -> None:
    """Raise ``ConfigError`` if ``path`` is a device, a pipe or a result file: these must not be replaced.

    The error names the command-line ``option`` with which the user gave the path.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ConfigError(f"{option}: {path} is a device or a pipe, which a file would replace; name a file")
    whole = path.resolve()
    for folder in whole.parents:
        if not (folder / NAME).is_file():
            continue
        try:
            listed = whole == folder / NAME or whole.relative_to(folder).as_posix() in Manifest.read(folder)
        except ConfigError:  # a file of another program
            continue
        if listed:
            raise ConfigError(f"{option}: {path} is one of the files that raysim wrote in {folder}; name another")


def _described(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32))
    return {"bytes": path.stat().st_size, "blake2b": digest.hexdigest()}


def _inside(name: str) -> str:
    """Return ``name``. Raises ``ValueError`` if it is not a relative path inside the manifest's folder."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or path.as_posix() != name or name == NAME:
        raise ValueError(f"'{name}' is not the path of a file inside this folder")
    return name
