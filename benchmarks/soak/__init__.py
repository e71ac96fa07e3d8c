"""Faults injected for real, at random moments: what was injected how often, and how often the end was right.

``python -m benchmarks.soak`` disturbs runs, comparisons, curves and sweeps of a small federation: processes are killed
or stopped, data and checkpoints are damaged, a disk is filled, the tracking server dies.

A case is one command, which is struck by one fault after another. One that lives on is struck again, and one that has
ended goes on with ``raysim resume``, which is struck in its turn. Every fault strikes in mid-run. Before it, a
checkpoint, a finished run or a finished trial is on disk. After it, work is left: strategies stop in every so many-th
round until they are let on (:mod:`benchmarks.soak.paced`), and no run can end before that.

Right is a fault after which the command lives on, or ends with a clear error (exit code 2, one line) or stop (130, 143,
kill), and a case that ends with the files of an undisturbed command; and no process of Ray left.
"""

import os

# As raysim does before it imports Ray, which processes of which others are forked have imported already.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
