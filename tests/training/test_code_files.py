"""Compiled code on disk: files for each type and size, and disks that fail."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.caching import CompileResultCacheImpl

from raysim.training.networks import compiled


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where code is kept."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "code"))
    return tmp_path / "code"


def third(dtype: Any) -> tuple[Any, int]:
    """What a loop that is made anew computes, and how many of its codes were found on disk."""

    def loop(numbers, k):  # type: ignore[no-untyped-def]
        numbers[k] = numbers[k] / 3

    made, numbers = compiled.compiled(loop), np.ones(2, dtype)
    made(numbers, 1)
    return numbers.tolist(), sum(made.stats.cache_hits.values())


def by_address(dtype: Any) -> tuple[Any, int]:
    """The same of a loop that is called by its address."""

    def loop(numbers, sums, k):  # type: ignore[no-untyped-def]
        numbers[k] = sums[k] / 3

    made, numbers, sums = compiled.by_address(loop, "arn", dtype), np.ones(2, dtype), np.ones(2)
    numba.njit(lambda a, b, c: compiled.call(a, (b, c, 1)))(made.address, numbers.ctypes.data, sums.ctypes.data)
    return numbers.tolist(), made.cache_hits


def expected(dtype: Any) -> list[float]:
    return [1.0, float(np.ones((), dtype) / 3)]


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


Made = Callable[[Any], tuple[Any, int]]
both = pytest.mark.parametrize("made", [third, by_address])


@both
def test_code_is_found_again(made: Made, folder: Path) -> None:
    assert [made(np.float32) for _ in range(2)] == [(expected(np.float32), 0), (expected(np.float32), 1)]
    (file,) = files(folder)
    assert file.suffix == ".nbc"


@both
def test_loops_are_compiled_where_no_folder_can_be_written(
    made: Made, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CompileResultCacheImpl, "_locator_classes", [])
    assert [made(np.float32) for _ in range(2)] == [(expected(np.float32), 0)] * 2
    assert not folder.exists()


@both
def test_a_full_disk_ends_nothing(made: Made, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_bytes

    def full(path: Path, content: bytes) -> None:
        write(path, content[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert [made(np.float32) for _ in range(2)] == [(expected(np.float32), 0)] * 2
    assert not files(folder)


def test_a_folder_that_went_away_ends_nothing(folder: Path) -> None:
    made, numbers = compiled.compiled(lambda a, b: a * b), [3.0, 4.0]
    shutil.rmtree(folder)
    folder.write_text("no folder")
    assert made(*numbers) == 12.0


@both
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:20],
        lambda content: content[: len(content) // 2],
        lambda content: b"\x80" * 1000,
        lambda content: content[:-2000] + bytes(2000),
    ],
)
def test_a_damaged_file_is_replaced(made: Made, damage: Callable[[bytes], bytes], folder: Path) -> None:
    made(np.float32)
    (file,) = files(folder)
    file.write_bytes(damage(file.read_bytes()))
    assert [made(np.float32) for _ in range(2)] == [(expected(np.float32), 0), (expected(np.float32), 1)]
    assert files(folder) == [file]


def test_code_that_this_numba_does_not_know_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    third(np.float32)

    def rebuild(*_: Any) -> None:
        raise AttributeError

    monkeypatch.setattr(CompileResultCacheImpl, "rebuild", rebuild)
    assert third(np.float32) == (expected(np.float32), 0)


@both
def test_what_two_processes_compile_at_once_for_two_types_are_two_files(
    made: Made, folder: Path, tmp_path: Path
) -> None:
    """Neither finds a file of the other's, and their files come together."""
    apart = []
    for dtype in (np.float32, np.float64):
        made(dtype)
        folder.rename(tmp_path / np.dtype(dtype).name)
        apart.append(tmp_path / np.dtype(dtype).name)
    for path in apart:
        shutil.copytree(path, folder, dirs_exist_ok=True)
    assert len(files(folder)) == 2
    assert [made(dtype) for dtype in (np.float32, np.float64)] == [
        (expected(dtype), 1) for dtype in (np.float32, np.float64)
    ]


def test_sizes_of_a_loop_have_different_names() -> None:
    def named(size: int, given: str, dtype: Any) -> str:
        def loop(numbers):  # type: ignore[no-untyped-def]
            numbers[size] = 1

        compiled._name(loop, given, np.dtype(dtype).name)
        return loop.__qualname__.rpartition(".")[2]

    names = [named(1, "a", np.float32), named(2, "a", np.float32), named(1, "r", np.float32), named(1, "a", np.float64)]
    assert len(set(names)) == 4
    assert named(1, "a", np.float32) == names[0]
