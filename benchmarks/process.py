"""The whole command from start to table: wall seconds, and the peak memory of all its processes together.

``python -m benchmarks.process [ARGUMENTS OF raysim]``, by default job J1 of :mod:`benchmarks.rounds` on the synthetic
federation. Memory is the proportional set size (shared pages count once), sampled while the command runs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

import psutil

J1 = (
    "run --set data.rows=67000 --set data.features=100 --set training.rounds=20 --set training.batch_size=512 "
    "--set strategy=fedavg --set selection={name:\\ uniform,\\ fraction:\\ 0.1}"
)


def tree_pss(root: psutil.Process) -> int:
    """Bytes of proportional set size of a process and all that came from it."""
    total = 0
    for process in [root, *root.children(recursive=True)]:
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


def main() -> None:
    """Run the command twice, with a cold and a warm data cache, and print both."""
    import shlex

    arguments = sys.argv[1:] or shlex.split(J1)
    with tempfile.TemporaryDirectory() as folder:
        for cache in ("cold", "warm"):
            began, peak = time.perf_counter(), 0
            child = subprocess.Popen(
                [sys.executable, "-m", "raysim", *arguments, "--out", f"{folder}/{cache}"],
                cwd=folder,
                env={"PATH": "/usr/bin:/bin", "HOME": folder},
                stdout=subprocess.DEVNULL,
            )
            root = psutil.Process(child.pid)
            while child.poll() is None:
                peak = max(peak, tree_pss(root))
                time.sleep(0.2)
            seconds = time.perf_counter() - began
            print(f"{cache} cache: {seconds:.1f} s, peak {peak / 2**30:.2f} GiB, exit code {child.returncode}")


if __name__ == "__main__":
    main()
