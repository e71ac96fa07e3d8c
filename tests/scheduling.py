"""How tests are spread over several processes (pytest-xdist with ``--dist loadgroup``).

The tests of a file stay together, for they share fixtures; those marked ``xdist_group`` stay with their group, and each
page of the documentation is by itself. What takes longest begins first, so that all processes end together.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadGroupScheduling

BY_THEMSELVES = ("tests/docs/test_docs.py::test_every_block_works",)

LONGEST = (
    "sweeps",
    "actors",
    "tests/api/test_host.py",
    "faults",
    "tests/docs/test_python.py",
    "tests/core/test_wheel.py",
    "tests/cluster/test_driver_faults.py",
    "tests/api",
    "tests/fuzz",
    "tests/report/test_browser.py",
    "tests/tracking",
    "tests/serving/test_export.py",
    "tests/cluster",
    "tests/experiment",
    "tests/engine/test_resumed_jobs.py",
    "tests/strategies/test_battery.py",
    "tests/serving",
    "tests/storage/test_resume.py",
    "source",
    "tests/docs",
    "tests/strategies/coalitions/test_coalitions.py",
)
"""What begins first: beginnings of test ids, or groups. Others follow as they are collected."""


class ByFile(LoadGroupScheduling):
    """Groups tests by their mark, else by their file."""

    def _split_scope(self, nodeid: str) -> str:
        group = str(super()._split_scope(nodeid))
        if group != nodeid or nodeid.startswith(BY_THEMSELVES):
            return group
        return nodeid.partition("::")[0]


def turn(item: pytest.Item) -> int:
    """When a test is due: smaller numbers first."""
    mark = item.get_closest_marker("xdist_group")
    group = mark.args[0] if mark else None
    nodeid = item.nodeid
    for number, name in enumerate(LONGEST):
        if group == name or nodeid.startswith(name):
            return number
    return len(LONGEST)
