"""``raysim report``: write pages again from the ``report.json`` of a run or comparison."""

from __future__ import annotations

import hashlib
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import TemplateError

from raysim.core import bounded
from raysim.core.atomic import replacing
from raysim.core.errors import ConfigError, nearest
from raysim.report.pages import tabs
from raysim.report.pages.page import hospital_page
from raysim.report.pages.rendering import Page
from raysim.report.pages.section import Sheet
from raysim.report.pages.sharing import SHEETS, shared
from raysim.storage.file_store import reason
from raysim.storage.manifest import check_plain, spare
from raysim.storage.resume import FILE as RESUME

FILE = "report.json"

LONGEST = 80
"""A hospital's name is cut to this many characters in a file name."""

SHARED = "report-for-sharing.html"
"""The file name of a page for sharing."""


def rewritten(folder: Path, hospital: str | None, out: Path | None, *, for_sharing: bool = False) -> Path:
    """Write the report of the run or comparison in ``folder`` again, or the page of one ``hospital``.

    With ``for_sharing`` the page has pseudonyms and no small counts (:mod:`raysim.report.pages.sharing`). Returns the
    path of the file. Raises ``ConfigError`` for a folder without a page, an unknown hospital, and an output file that
    cannot be written or would replace a result. With ``for_sharing``, it is also raised for a ``hospital``, an output
    file that exists, and a page of neither a run nor a comparison.
    """
    path = folder / FILE
    if for_sharing and hospital is not None:
        raise ConfigError(
            "--for-sharing: removes the names of hospitals, so it cannot be combined with --hospital; leave one of "
            "them out"
        )
    check_plain(folder)
    try:
        tree = bounded.read_json(path)
        if for_sharing:
            page, name = _shared(tree, folder), SHARED
        else:
            page, name = _page(tree, hospital, folder, linked=out is None)
        html = page.html().encode()
    except (OSError, ValueError) as error:
        raise ConfigError(f"RUN: {folder} has no {FILE} that can be read ({error}); {instead_of(folder)}") from None
    except (KeyError, TypeError, AttributeError, IndexError, TemplateError) as error:
        raise ConfigError(_unusable(path, folder, tree, error)) from None
    target = out or folder / name
    if for_sharing and target.exists():
        raise ConfigError(f"--out: {target} exists, and a page for sharing never replaces a file; name another")
    if target.resolve() != (folder / "report.html").resolve() or hospital is not None:
        spare(target, "--out")
    try:
        with replacing(target) as temporary:
            temporary.write_bytes(html)
    except OSError as error:
        raise ConfigError(f"--out: {target} cannot be written ({error.strerror}); name a writable file") from None
    return target


def instead_of(folder: Path) -> str:
    """Return advice for a folder without results: to resume the stopped command, or to name another folder."""
    if (folder / RESUME).is_file() and not (folder / FILE).exists():
        return f"it was stopped before its end; continue with raysim resume {shlex.quote(str(folder))}"
    return "name the folder of a finished run or comparison"


def _unusable(path: Path, folder: Path, tree: Any, error: Exception) -> str:
    """Return the error message for a file whose format differs from the one that this version reads."""
    template = tree.get("template") if isinstance(tree, dict) else None
    command = "run" if str(template).startswith("run") else "compare"
    instead = f"open {folder / 'report.html'}, or " if (folder / "report.html").exists() else ""
    return (
        f"RUN: {path} does not have the format that this version of raysim reads ({reason(error):.80}); "
        f"{instead}draw a new page by raysim {command} {folder / 'config.yaml'}"
    )


def _shared(tree: Any, folder: Path) -> Page:
    sheet = _sheet(tree)
    if sheet.name not in SHEETS:
        raise ConfigError(f"--for-sharing: {folder} holds no run and no comparison; name a folder with one of the two")
    return Page(sheet, shared(tree))


def _sheet(tree: Any) -> Sheet:
    """Return the kind of page that a ``report.json`` describes.

    Files of earlier versions name a template file.
    """
    return tabs.sheet(tree["template"].removesuffix(".html.j2"))


def _page(tree: Any, hospital: str | None, folder: Path, *, linked: bool) -> tuple[Page, str]:
    """Return the page of one ``hospital`` (None: the whole page) from a ``report.json``, and its file name.

    ``linked``: whether the page links to the other pages in the same folder.
    """
    if hospital is None:
        for card in tree["values"]["cards"]["hospitals"] if linked else ():
            own = f"hospital_{_as_file(str(card['name']))}.html"
            if (folder / own).is_file():
                card["page"] = quote(own)
        return Page(_sheet(tree), tree["values"]), "report.html"
    names = [str(card["name"]) for card in tree["values"]["cards"]["hospitals"]]
    if not names:
        raise ConfigError(
            f"--hospital: '{hospital}' cannot be chosen, because the page of {folder} shows no single hospitals; if "
            "this is a run of a comparison, name the folder of the comparison"
        )
    if hospital not in names:
        raise ConfigError(f"--hospital: '{hospital}' is not a hospital of this run; {nearest(hospital, names)}")
    links = [("all hospitals", "report.html")] if linked else []
    return hospital_page(tree, names.index(hospital), links), f"hospital_{_as_file(hospital)}.html"


def _as_file(hospital: str) -> str:
    """Convert a hospital's name to a part of a file name; a digest keeps changed names unique."""
    safe = re.sub(r"[^\w.-]+", "_", hospital, flags=re.ASCII)[:LONGEST]
    if safe == hospital:
        return safe
    return f"{safe}-{hashlib.blake2b(hospital.encode(errors='replace'), digest_size=4).hexdigest()}"
