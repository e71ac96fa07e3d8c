"""Faults injected for real, at random moments: what was injected how often, and how often the end was right.

``python -m benchmarks.soak`` disturbs runs, comparisons, curves and sweeps of a small federation: processes are killed
or stopped, data and checkpoints are damaged, a disk is filled, the tracking server dies.

A fault strikes in mid-run. Before it, a checkpoint, a finished run or a finished trial is on disk. After it, work is
left: the strategy waits in one of its last rounds until the fault has been injected (:mod:`benchmarks.soak.paced`).

Right is a finished command with the files of an undisturbed one, or a clear error (exit code 2, one line) or stop
(130, 143, kill) after which ``raysim resume`` ends with those files; and no process of Ray left.
"""
