"""Compute libraries have one thread for a while, and are looked for once."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import sklearn.cluster  # noqa: F401  # with its library of threads
import threadpoolctl
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from raysim.core.one_thread import _loaded, one_thread


def threads() -> dict[str, set[int]]:
    """How many threads the libraries of each kind have."""
    kinds: dict[str, set[int]] = {}
    for library in threadpool_info():
        kinds.setdefault(library["user_api"], set()).add(library["num_threads"])
    return kinds


def test_all_libraries_have_one_thread_and_then_as_many_as_before():
    with threadpool_limits(2):
        before = threads()
        assert before == {"blas": {2}, "openmp": {2}}
        with one_thread():
            assert threads() == {"blas": {1}, "openmp": {1}}
        assert threads() == before
        with one_thread("openmp"):
            assert threads() == {"blas": {2}, "openmp": {1}}
        assert threads() == before


def test_libraries_are_looked_for_again_after_an_import_alone(monkeypatch: pytest.MonkeyPatch):
    looked = []
    monkeypatch.setattr(
        threadpoolctl, "ThreadpoolController", lambda: looked.append(len(sys.modules)) or ThreadpoolController()
    )
    _loaded.cache_clear()
    for _ in range(3):
        with one_thread():
            pass
    assert len(looked) == 1
    monkeypatch.setitem(sys.modules, "one_more_module", ModuleType("one_more_module"))
    for _ in range(3):
        with one_thread():
            pass
    assert len(looked) == 2
