"""The compute threads of a process that is a host's: so many for a while, and then as many as before."""

from __future__ import annotations

import os
import sys

import sklearn.cluster  # noqa: F401  # with its library of threads
from threadpoolctl import threadpool_info, threadpool_limits

from raysim.core import host


def counts() -> set[int]:
    return {library["num_threads"] for library in threadpool_info()}


def test_libraries_have_so_many_threads_and_then_as_many_as_before():
    variable = os.environ.get("OMP_NUM_THREADS")
    with threadpool_limits(2):
        for count in (1, 3):
            with host.threads(count):
                assert counts() == {count}
                assert os.environ["OMP_NUM_THREADS"] == str(count)
            assert counts() == {2}
            assert os.environ.get("OMP_NUM_THREADS") == variable


def test_one_thread_also_limits_libraries_that_were_loaded_since(monkeypatch):
    """Libraries are searched for again once another module was imported."""
    with threadpool_limits(2):
        with host.one_thread():
            assert counts() == {1}
        assert counts() == {2}
        found = host._libraries(len(sys.modules))
        assert host._libraries(len(sys.modules)) is found
        monkeypatch.setitem(sys.modules, "a_module_that_was_imported_since", sys)
        with host.one_thread():
            assert host._libraries(len(sys.modules)) is not found
            assert counts() == {1}
