"""How a process of raysim's own keeps memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from raysim.core.compute import settle
if sys.argv[1] == "settled":
    settle(1, None)
def step():
    for _ in range(4):
        np.ones(2**21, np.uint8)
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc alone")
def test_a_settled_process_uses_freed_memory_again_without_new_pages() -> None:
    # as malloc would do by itself: with its limit fixed, every large piece is a new mapping
    usual = os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072"}

    def faults(how: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, how], env=usual, capture_output=True, text=True, check=True, timeout=600
        )
        return int(done.stdout)

    assert faults("settled") < 100 < 20_000 < faults("usual")
