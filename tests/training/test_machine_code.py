"""Loops as machine code: what is kept is found by processes without numba, and what cannot be kept stops nobody."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llvmlite.binding
import numpy as np
import pytest

from raysim.training import machine_code
from raysim.training.loops import writing
from raysim.training.loops.writing import object_code
from tests.source import ROOT


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Where code is kept in a test; no loop is in memory before or after it."""
    chosen = [tmp_path / "first", tmp_path / "second"]
    monkeypatch.setattr(machine_code, "_folders", lambda: iter(chosen))
    machine_code.address.cache_clear()
    yield chosen
    machine_code.address.cache_clear()


def masked(dtype: str = "float32") -> list[float]:
    """Residuals of two rows below a layer of two inputs, by the loop that sets some to 0."""
    table = np.array([1, 2, 4, 0, 0, *[2, 1, 1, 1, 0, 0, 4], *[0] * 8], np.uint64)
    factors, act, res = (np.array(of, dtype) for of in ([1, 0, 1, 1, 1], [1, 0, -0.0, np.nan], [5, 6, 7, 8]))
    loop = machine_code.function("dense", "masked", "iaaan", dtype)
    loop(*(array.ctypes.data for array in (table, factors, act, res)), 0)
    return res.tolist()


EXPECTED = [5.0, 0.0, 0.0, 8.0]


def compiled_times(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The loops that are compiled from now on."""
    times, compiled = [], machine_code._compiled

    def noting(module: str, name: str, given: str, dtype: str, *sizes: Any) -> bytes:
        times.append(f"{name} {dtype}")
        return compiled(module, name, given, dtype, *sizes)

    monkeypatch.setattr(machine_code, "_compiled", noting)
    return times


def test_code_is_compiled_once_for_each_type_and_then_read(folders: list[Path], monkeypatch: pytest.MonkeyPatch):
    times = compiled_times(monkeypatch)
    for _ in range(2):
        machine_code.address.cache_clear()  # as in another process
        assert masked() == EXPECTED
        assert masked("float64") == EXPECTED
    assert times == ["masked float32", "masked float64"]
    assert len(list(folders[0].iterdir())) == 2
    assert not folders[1].exists()


def test_code_is_kept_beside_the_loops_or_in_the_cache_folder(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    monkeypatch.setenv("RAYSIM_CACHE", "/caches")
    assert list(machine_code._folders()) == [
        Path(writing.__file__).parent / "__pycache__",
        Path("/caches/code"),
    ]


def test_another_process_needs_neither_numba_nor_the_loops(folders: list[Path]):
    masked()
    program = """
import sys
from pathlib import Path
from raysim.training import machine_code
machine_code._folders = lambda: iter([Path(sys.argv[1])])
print(machine_code.function("dense", "masked", "iaaan", "float32") is not None)
print([name for name in ("numba", "raysim.training.loops") if name in sys.modules])
"""
    there = [sys.executable, "-c", program, str(folders[0])]
    assert subprocess.run(there, capture_output=True, text=True, check=True).stdout == "True\n[]\n"


@pytest.mark.parametrize("damage", ["nothing", "half", "one bit", "another file's"])
def test_a_damaged_file_is_compiled_anew_and_replaced(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch, damage: str
):
    masked()
    (file,) = folders[0].iterdir()
    whole = file.read_bytes()
    wrong = bytearray(whole)
    wrong[-1] ^= 1
    file.write_bytes({"nothing": b"", "half": whole[: len(whole) // 2], "one bit": wrong}.get(damage, b"x" * 500))
    machine_code.address.cache_clear()
    times = compiled_times(monkeypatch)
    assert masked() == EXPECTED
    machine_code.address.cache_clear()
    assert masked() == EXPECTED
    assert times == ["masked float32"]
    assert list(folders[0].iterdir()) == [file]


def aged(path: Path, days: float) -> Path:
    """``path``, last written or read so many days ago."""
    then = time.time() - days * 86400
    os.utime(path, (then, then))
    return path


def test_code_that_nobody_read_for_a_month_goes_when_other_is_kept(folders: list[Path]):
    folder = folders[0]
    masked("float64")
    (old,) = folder.iterdir()
    digest = "0123456789abcdef01234567"
    unfinished, young, *strange = (
        folder / name
        for name in (
            f".77.dense.forward-{digest}.code",
            f"masks.store-{digest}.code",
            f"dense-{digest}.pyc",
            f"notes-{digest[:-1]}.code",
            f"notes-{digest.upper()}.code",
            "dense.code",
        )
    )
    for file in (old, unfinished, *strange):
        file.touch()
        aged(file, 30.5)
    young.touch()
    aged(young, 29.5)
    masked()
    (new,) = folder.glob("dense.masked-*")
    assert {*folder.iterdir()} == {young, *strange, new}


def test_code_that_is_read_now_and_then_stays(folders: list[Path]):
    masked()
    (file,) = folders[0].iterdir()
    for days in (2, 40):
        aged(file, days)
        machine_code.address.cache_clear()
        masked()
        assert time.time() - file.stat().st_mtime < 86400
    written = aged(file, 0.5).stat().st_mtime
    machine_code.address.cache_clear()
    masked()
    assert file.stat().st_mtime == written
    masked("float64")
    assert len(list(folders[0].iterdir())) == 2


def test_code_that_may_be_neither_marked_nor_removed_stops_nobody(folders: list[Path], monkeypatch: pytest.MonkeyPatch):
    masked()
    (file,) = folders[0].iterdir()
    aged(file, 40)

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "utime", refused)
    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda path, **of: refused() if path == file else unlink(path, **of))
    machine_code.address.cache_clear()
    times = compiled_times(monkeypatch)
    assert masked() == EXPECTED
    assert masked("float64") == EXPECTED
    assert times == ["masked float64"]
    assert len(list(folders[0].iterdir())) == 2
    assert not folders[1].exists()


def test_where_the_first_folder_cannot_be_written_the_second_is_taken(folders: list[Path]):
    folders[0].write_text("no folder")
    assert masked() == EXPECTED
    assert len(list(folders[1].iterdir())) == 1


def test_a_disk_that_is_full_stops_nobody_and_gets_nothing(folders: list[Path], monkeypatch: pytest.MonkeyPatch):
    def full(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    times = compiled_times(monkeypatch)
    for _ in range(2):
        machine_code.address.cache_clear()
        assert masked() == EXPECTED
    assert len(times) == 2
    assert [list(folder.iterdir()) for folder in folders] == [[], []]


def test_code_of_other_loops_or_another_processor_is_not_taken(monkeypatch: pytest.MonkeyPatch):
    names = {machine_code._digest("dense", "masked", "iaaan", "float32")}
    names.add(machine_code._digest("dense", "masked", "iaaan", "float64"))
    monkeypatch.setattr(machine_code, "_first_sources", lambda: "others")
    names.add(machine_code._digest("dense", "masked", "iaaan", "float32"))
    assert len(names) == 3


def test_the_digest_of_sources_is_that_of_all_that_make_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    loop, elsewhere = tmp_path / "loop.py", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(machine_code, "_beside", lambda: tmp_path)
    made = set()
    for change in (
        lambda: loop.write_text("def loop(k):\n    return k in {'a', 'b'}"),
        lambda: loop.write_text("def loop(k):\n    return k in {'a', 'bc'}"),
        lambda: loop.write_text("def loop(k):\n    return (k not in {'a', 'bc'})"),
        lambda: monkeypatch.setenv("NUMBA_CPU_NAME", "generic"),
        lambda: monkeypatch.setattr(machine_code, "version", lambda package: "another"),
        lambda: monkeypatch.setattr(llvmlite.binding, "get_host_cpu_name", lambda: "another"),
        lambda: monkeypatch.chdir(elsewhere),
        lambda: (elsewhere / ".numba_config.yaml").write_text("loop_vectorize: 1"),
    ):
        change()
        made.add(machine_code._sources())
        assert machine_code._sources() in made
    assert len(made) == 7


def test_another_process_has_the_same_digest():
    program = "from raysim.training import machine_code; print(machine_code._sources())"
    told = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert told == {f"{machine_code._sources()}\n"}


def test_code_of_sources_that_change_meanwhile_is_not_kept(folders: list[Path], monkeypatch: pytest.MonkeyPatch):
    machine_code._first_sources()
    monkeypatch.setattr(machine_code, "_sources", lambda: "others")
    assert masked() == EXPECTED
    assert not folders[0].exists()


@pytest.mark.parametrize("told", ["DISABLE_JIT=1", "DEBUG_JIT=1", "OPT=0", 'opt: "0"'])
def test_loops_are_compiled_whatever_numba_is_told_for_a_debugger(tmp_path: Path, told: str):
    program = """
import sys
from pathlib import Path
from raysim.training import machine_code
machine_code._folders = lambda: iter([Path(sys.argv[1])])
machine_code.function("masks", "store", "nnaan", "float32")
from numba import config
print(config.DISABLE_JIT, config.DEBUG_JIT, int(config.OPT))
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    if ":" in told:
        (tmp_path / ".numba_config.yaml").write_text(told)
    else:
        name, value = told.split("=")
        environment[f"NUMBA_{name}"] = value
    done = subprocess.run(
        [sys.executable, "-c", program, "kept"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    settings = {"DISABLE_JIT=1": "1 0 3\n", "DEBUG_JIT=1": "0 1 3\n"}.get(told, "0 0 0\n")
    assert (done.stdout, done.stderr) == (settings, "")
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_settings_of_numba_are_afterwards_what_they_were(monkeypatch: pytest.MonkeyPatch):
    from numba.core import config

    with monkeypatch.context() as told:
        told.setenv("NUMBA_OPT", "0")
        assert masked() == EXPECTED
        assert config.OPT == 0
    config.reload_config()
    assert masked("float64") == EXPECTED
    assert config.OPT == 3


def test_a_fork_while_another_thread_compiles_can_compile():
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with machine_code._lock:
            held.set()
            over.wait(600)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(300)
        os._exit(0 if masked() == EXPECTED else 1)
    over.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_code_that_would_call_numba_is_refused():
    def fails(numbers, n):  # type: ignore[no-untyped-def]
        if n == 0:
            raise ValueError("no numbers")
        numbers[0] = n

    with pytest.raises(RuntimeError, match="fails calls "):
        object_code(fails, "an", "float32")


def test_blas_is_called_by_its_address():
    import ctypes

    x, y, one = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]), np.array([1], np.int32)
    n = np.array([3], np.int32)
    dot = ctypes.CFUNCTYPE(ctypes.c_double, *[ctypes.c_void_p] * 5)(machine_code.blas("dot", np.float64))
    assert dot(*(array.ctypes.data for array in (n, x, one, y, one))) == 32


@pytest.mark.parametrize("enabled", [True, False])
def test_python_looks_for_garbage_afterwards_as_before(monkeypatch: pytest.MonkeyPatch, enabled: bool):
    compiled, meanwhile = writing.object_code, []

    def watched(*given: Any) -> bytes:
        meanwhile.append(gc.isenabled())
        return compiled(*given)

    monkeypatch.setattr(writing, "object_code", watched)
    try:
        if not enabled:
            gc.disable()
        assert masked() == EXPECTED
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
    assert meanwhile == [False]
