"""What a Ray of a command's own is given: a token that nobody else reads, and a folder that nobody else enters."""

from __future__ import annotations

import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from raysim.cluster import own_ray
from raysim.cluster.own_ray import one_at_a_time, own_folder, private_token
from raysim.core.errors import HangingError, ResourceError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_it_is_made_for_its_owner_alone(home: Path, mask: int):
    before = os.umask(mask)
    try:
        private_token()
    finally:
        os.umask(before)
    path = home / ".ray" / "auth_token"
    assert (mode(path.parent), mode(path)) == (0o700, 0o600)
    token = path.read_text()
    assert len(bytes.fromhex(token)) == 32
    private_token()
    assert path.read_text() == token
    assert list(path.parent.iterdir()) == [path]


def test_one_that_others_can_read_is_closed_to_them_and_stays(home: Path):
    path = home / ".ray" / "auth_token"
    path.parent.mkdir()
    path.parent.chmod(0o777)  # who can write there can put another one in its place
    path.write_text("mine")
    path.chmod(0o644)
    private_token()
    assert (mode(path.parent), mode(path), path.read_text()) == (0o700, 0o600, "mine")


@pytest.mark.parametrize(
    ("name", "value"), [("RAY_AUTH_TOKEN", "x"), ("RAY_AUTH_TOKEN_PATH", "/x"), ("RAY_AUTH_MODE", "disabled")]
)
def test_whoever_has_a_token_or_wants_none_gets_none(home: Path, monkeypatch, name: str, value: str):
    monkeypatch.setenv(name, value)
    private_token()
    assert list(home.iterdir()) == []


def test_a_home_that_cannot_be_written_is_rays_to_tell_of(home: Path):
    (home / ".ray").write_text("a file")
    private_token()
    assert (home / ".ray").read_text() == "a file"


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files with a short path."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield Path(folder)


def test_the_folder_of_a_ray_is_its_users_alone_and_goes_with_it(temporary: Path):
    mask = os.umask(0)
    try:
        with own_folder() as folder:
            assert Path(folder).parent.parent == temporary
            assert mode(Path(folder).parent) == 0o700
            longest = f"{folder}/session_2026-11-26_03-32-50_545999_4194304/sockets/plasma_store"
            assert len(os.fsencode(longest)) <= 107
    finally:
        os.umask(mask)
    assert list(temporary.iterdir()) == []


def test_a_long_path_for_temporary_files_is_passed_over(temporary: Path, monkeypatch: pytest.MonkeyPatch):
    long = temporary / ("batch-job-" * 5)
    long.mkdir()
    monkeypatch.setenv("RAY_TMPDIR", str(long))
    with own_folder() as folder:
        assert Path(folder).parent.parent == Path("/tmp")
    monkeypatch.setattr(own_ray, "PLACES", ())
    with pytest.raises(ResourceError, match=r"TMPDIR: Ray cannot make its sockets in .*; set RAY_TMPDIR to a folder"):
        own_folder().__enter__()


def test_folders_of_commands_that_were_killed_are_removed_and_no_others(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
):
    def left(name: str, hours: float) -> Path:
        folder = temporary / name
        folder.mkdir()
        (folder / own_ray.ALIVE).touch()
        os.utime(folder, (then := time.time() - 3600 * hours, then))
        return folder

    mine = f"raysim-{os.getuid()}-"
    killed, just_now, others = left(f"{mine}a", 2), left(f"{mine}b", 0.1), left(f"raysim-{os.getuid() + 1}-c", 2)
    made_again, target = left(f"{mine}d", 2), left("target", 2)
    (made_again / own_ray.ALIVE).unlink()
    os.utime(made_again, (0, 0))
    (temporary / f"{mine}link").symlink_to(target)
    with own_folder() as folder:
        running = Path(folder).parent
        os.utime(running, (0, 0))
        with own_folder():
            assert running.exists(), "its process lives"
    assert not killed.exists()
    assert not made_again.exists()
    for kept in (just_now, others, target):
        assert kept.exists()


@pytest.mark.parametrize("error", [HangingError, ResourceError, KeyboardInterrupt])
def test_the_logs_stay_where_ray_hangs(temporary: Path, error: type[BaseException]):
    with pytest.raises(error), own_folder() as folder:
        raise error("so")
    assert Path(folder).parent.exists() is (error is HangingError)


def test_commands_start_their_rays_one_after_the_other(home: Path, capsys: pytest.CaptureFixture[str]):
    with one_at_a_time():
        pass  # there is no folder to lock
    (home / ".ray").mkdir()
    order = []

    def second() -> None:
        with one_at_a_time():
            order.append("second")

    other = threading.Thread(target=second)
    with one_at_a_time():
        other.start()
        while "waiting for another command that is starting its Ray" not in capsys.readouterr().err:
            time.sleep(0.01)
        order.append("first")
    other.join()
    assert order == ["first", "second"]
