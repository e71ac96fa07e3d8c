"""Commands and Ray's workers look for cycles of objects seldom, and commands not at their end."""

from __future__ import annotations

import subprocess
import sys

from raysim.cluster import fork_server
from raysim.core import host

ENDING = """
import atexit, gc
from raysim.core import host
atexit.register(lambda: print(gc.get_threshold(), gc.get_freeze_count() > 0))
host.collect_seldom()
"""


def test_a_process_that_collects_seldom_does_not_look_through_its_objects_at_its_end():
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, check=True)
    assert done.stdout == f"{host.SELDOM} True\n"


def test_workers_collect_as_seldom_as_commands():
    assert fork_server.SELDOM == host.SELDOM


def test_duckdb_has_nothing_to_say_at_the_end():
    """A connection that only a cycle keeps alive: DuckDB's bindings would print it as a leak."""
    made = "import duckdb\nloop = [duckdb.connect()]\nloop[0].execute('select 1').fetchnumpy()"
    kept = f"{made}\nloop.append(loop)\ndel loop"
    done = subprocess.run([sys.executable, "-c", f"{ENDING}\n{kept}"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{host.SELDOM} False\n"
    assert done.stderr == ""
