"""What Arrow has freed goes back to the system."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from raysim.core import memory


def test_what_arrow_keeps_is_released(monkeypatch):
    released = []
    pool = SimpleNamespace(release_unused=lambda: released.append(True))
    monkeypatch.setitem(sys.modules, "pyarrow", SimpleNamespace(default_memory_pool=lambda: pool))
    memory.give_back()
    assert released == [True]
    monkeypatch.delitem(sys.modules, "pyarrow")
    memory.give_back()
