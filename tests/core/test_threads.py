"""The compute threads of a process that is a host's: so many for a while, and then as many as before."""

from __future__ import annotations

import os

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
