"""``ray up`` on three hosts: see :mod:`tests.cluster.multi_host`. Two minutes, so only where it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.multi_host import SKIPPED


@pytest.mark.multihost
@pytest.mark.skipif(os.environ.get("RAYSIM_MULTIHOST") != "1", reason="two minutes; RAYSIM_MULTIHOST=1 runs it")
def test_jobs_on_three_hosts():
    script = Path(__file__).with_name("multi_host.py")
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said, _ = process.communicate(timeout=3000)
    except subprocess.TimeoutExpired:
        process.terminate()
        said, _ = process.communicate(timeout=600)
    if process.returncode == SKIPPED:
        pytest.skip(said.strip())
    assert process.returncode == 0, said
    print(said)
