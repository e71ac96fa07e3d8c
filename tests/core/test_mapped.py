"""Arrays in files, and what of them a process holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from raysim.core import mapped


def resident(path: Path) -> int:
    """Bytes of a file that this process has mapped and touched."""
    total, here = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0] and ":" not in line.split()[0]:
            here = line.endswith(str(path))
        elif here and line.startswith("Rss:"):
            total += 1024 * int(line.split()[1])
    return total


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="asks Linux")
def test_what_is_released_is_in_the_file_alone_and_comes_back(tmp_path):
    path = tmp_path / "x.npy"
    array = mapped.zeros((1024, 1024), np.float32, path)
    array[:] = 7
    assert resident(path) >= 4 * 2**20
    mapped.release(array)
    assert resident(path) < 2**20
    assert (array == 7).all()
    assert (np.load(path) == 7).all()
    read = np.asarray(np.load(path, mmap_mode="r"))
    assert read.sum() == 7 * 2**20
    mapped.release(read[5:])
    assert read.sum() == 7 * 2**20


def test_a_private_copy_and_an_array_in_memory_stay(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(4096))
    private = np.load(tmp_path / "x.npy", mmap_mode="c")
    private[:] = 3
    mapped.release(private)
    assert (private == 3).all()
    inside = mapped.zeros((3,), np.float64, None)
    inside += 2
    mapped.release(inside)
    assert inside.tolist() == [2, 2, 2]


def test_where_an_array_lies(tmp_path):
    path = tmp_path / "x.npy"
    array = mapped.zeros((2, 2), np.float32, path)
    assert mapped.is_at(array, path)
    assert not mapped.is_at(array, tmp_path / "y.npy")
    assert not mapped.is_at(np.zeros(2), path)


def test_nothing_is_a_file_too(tmp_path):
    array = mapped.zeros((0, 3), np.float32, tmp_path / "x.npy")
    assert array.shape == np.load(tmp_path / "x.npy").shape == (0, 3)
