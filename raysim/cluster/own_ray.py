"""The environment of a Ray that is started here: its variables, its token, and a folder for this user only."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from raysim.core.errors import HangingError, ResourceError

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's announced default, which also silences the announcement.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Environment variables of every Ray that this process starts or joins, unless the user has set them."""

NO_PORT = "65536"
"""A port number at which no process can listen, so that two of Ray's processes provide no metrics."""

OPEN = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""The environment variable that decides whether other machines can reach a Ray. It is read when Ray is imported."""

MESSAGE = 2**20
"""The largest size in bytes of an argument or result that is sent within a call, on a Ray that is started here.

Larger ones use Ray's object store, which takes more time.
"""

LOCAL = {
    "RAY_AUTH_MODE": "token",
    OPEN: "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_max_direct_call_object_size": str(MESSAGE),
    "AUTOSCALER_METRIC_PORT": NO_PORT,
    "DASHBOARD_METRIC_PORT": NO_PORT,
}
"""Further environment variables for a Ray that is started here.

- Every process needs the token, with any version of Ray.
- Other machines cannot reach this Ray.
- No port provides metrics without the token.
- Ray starts no worker per core in advance.
- A worker may take five minutes to start, as on a busy machine.
- Messages of up to :data:`MESSAGE` bytes are sent within a call; Ray's own limit is 100 KiB.
"""

TOKEN_NAMES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
"""The environment variables that set Ray's token or the token's file."""

LONGEST_FOLDER = 42
"""The largest number of bytes in the path of Ray's folder, because paths of sockets are limited to 107 bytes."""

WITHIN = "r"

MORE = len("/12345678/") + len(WITHIN)

PLACES = ("/tmp", "/var/tmp")

ALIVE = "alive"
"""A file in Ray's folder that is locked while the process that started this Ray is alive."""

LOG_SECONDS = 3600.0
"""The seconds for which the folder of a killed command remains, so that its logs can be read."""


@contextlib.contextmanager
def own_folder() -> Iterator[str]:
    """Create a folder for the sockets and logs of a Ray that is started here. Only this user can enter it.

    The folder is removed at the end, or kept for its logs if Ray hangs. Raises ``ResourceError`` if no folder with a
    short enough path can be made.
    """
    prefix = f"raysim-{os.getuid()}-"
    root = _root(prefix)
    _remove_ended(root, prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=root))  # of mode 0700; Ray opens its own to everybody
    with open(folder / ALIVE, "w") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        hung = False
        try:
            yield str(folder / WITHIN)
        except HangingError:
            hung = True
            raise
        finally:
            if not hung:
                shutil.rmtree(folder, ignore_errors=True)


def _root(prefix: str) -> str:
    """Return the first folder for temporary files that is writable and has a path short enough for Ray's sockets."""
    roots = [os.environ.get("RAY_TMPDIR") or tempfile.gettempdir(), *PLACES]
    for root in roots:
        path = os.path.realpath(root)
        if len(os.fsencode(path)) + len(prefix) + MORE <= LONGEST_FOLDER and os.access(path, os.W_OK | os.X_OK):
            return path
    raise ResourceError(
        f"TMPDIR: Ray cannot make its sockets in {', '.join(dict.fromkeys(roots))}: the path is too long, or not "
        f"writable; set RAY_TMPDIR to a folder of yours with at most {LONGEST_FOLDER - len(prefix) - MORE} characters"
    )


def _remove_ended(root: str, prefix: str) -> None:
    for folder in Path(root).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # another command removes it, or it is not ours
            state = folder.lstat()
            if state.st_uid != os.getuid() or folder.is_symlink() or time.time() - state.st_mtime < LOG_SECONDS:
                continue
            with contextlib.ExitStack() as opened:
                # Without the file, a process of Ray has made the folder again after the command had removed it.
                if (folder / ALIVE).exists():
                    alive = opened.enter_context(open(folder / ALIVE))
                    fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where its process lives
                shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Make this user's commands start their Rays one after the other; a busy machine starts several too slowly."""
    try:
        folder = os.open(Path.home() / ".ray", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield
        return
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("raysim: waiting for another command that is starting its Ray", file=sys.stderr)
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def private_token() -> None:
    """Ensure that Ray's authentication token ``~/.ray/auth_token`` exists and that only its owner can read it.

    Does nothing if environment variables set another token, or a mode of authentication other than ``token``.
    """
    if any(name in os.environ for name in TOKEN_NAMES) or os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        return
    path = Path.home() / ".ray" / "auth_token"
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if not path.exists():
            _make_token(path)
        for each, mode in ((path.parent, 0o700), (path, 0o600)):
            state = each.stat()
            if state.st_uid == os.getuid() and state.st_mode & 0o077:
                each.chmod(mode)


def _make_token(path: Path) -> None:
    """Write a new token in one step, because another process may read or write it at the same time."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)  # of mode 0600
    try:
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(32))
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)
