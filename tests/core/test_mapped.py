"""Arrays in files, and what of them a process holds."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from raysim.core import mapped
from tests.commands import raysim


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mounting, capture_output=True).returncode:
        pytest.skip("mounting a file system is for root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_file_that_does_not_fit_the_disk_is_refused_before_it_is_written(small_disk: Path) -> None:
    """A page without room ends the process by SIGBUS when it is written."""
    with pytest.raises(OSError, match="No space left") as refused:
        mapped.zeros((2**20,), np.float32, small_disk / "x.npy")
    assert refused.value.errno == errno.ENOSPC


@pytest.mark.faults
def test_a_full_disk_under_the_cache_is_one_line(small_disk: Path, tmp_path: Path) -> None:
    data = {"source": "synthetic", "hospitals": 4, "rows": 4000, "features": 100}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"data": data, "tracking": {"uri": "none"}}))
    arguments = ["run", "c.yaml", "--out", "out", "--in-process"]
    done = raysim(arguments, tmp_path, {"RAYSIM_CACHE": str(small_disk)})
    assert done.code == 2, done
    progress, line = done.err.splitlines()
    assert progress == "reading data"
    assert line == (
        f"raysim: RAYSIM_CACHE: the cache folder '{small_disk}' cannot be written (No space left on device); set the "
        "environment variable to a writable folder with free space"
    )
    assert not (tmp_path / "out").exists()


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
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    assert mapped.is_at(array, tmp_path / "link" / "x.npy"), "a folder of the path may be a link"
    assert not mapped.is_at(np.zeros(2), path)


def test_nothing_is_a_file_too(tmp_path):
    array = mapped.zeros((0, 3), np.float32, tmp_path / "x.npy")
    assert array.shape == np.load(tmp_path / "x.npy").shape == (0, 3)
