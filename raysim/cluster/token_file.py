"""The token that lets a process into a Ray: made before Ray makes it, whose file everyone on the machine could read."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

NAMES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
"""Variables that give a token or its file: then it is its owner's to keep."""


def private_token() -> None:
    """See that ``~/.ray/auth_token`` is there and that only its owner can read it.

    The folder gets mode 0700, the file 0600, also where they are ours and others could enter or read them. What cannot
    be written is left to Ray, which says so.
    """
    if any(name in os.environ for name in NAMES) or os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        return
    path = Path.home() / ".ray" / "auth_token"
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if not path.exists():
            _make(path)
        for each, mode in ((path.parent, 0o700), (path, 0o600)):
            state = each.stat()
            if state.st_uid == os.getuid() and state.st_mode & 0o077:
                each.chmod(mode)


def _make(path: Path) -> None:
    """Whole or not at all: another process may look for it at the same time, or make it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)  # of mode 0600
    try:
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(32))
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)
