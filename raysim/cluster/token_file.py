"""The token that lets a process into a Ray: made here, as Ray's own file could be read by everyone on the machine."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

NAMES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
"""Variables that name a token or its file, which is then left as it is."""


def private_token() -> None:
    """See that ``~/.ray/auth_token`` is there and that only its owner can read it.

    The folder gets mode 0700 and the file 0600, also where both exist, belong to this user and are open to others. What
    cannot be written is left to Ray, which reports it.
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
    """Write the token atomically: another process may read or make it at the same time."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)  # of mode 0600
    try:
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(32))
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)
