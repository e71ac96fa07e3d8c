"""The file of Ray's token: nobody else reads it, and nothing is made where the user has a token already."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from raysim.cluster.token_file import private_token


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
