"""Do two checkouts compute the same? One run for each strategy on three data sets, compared bit for bit.

    python -m benchmarks.compare_checkouts BEFORE AFTER [--strategies chip fedavg] [--data synthetic]

BEFORE and AFTER are checkouts with their own ``.venv``. Models, and the columns of all tables that both have, must be
equal to the last bit on the same machine; columns, tensors and files that only one has are listed, wall-clock seconds
are left out. No digests are stored: processors differ. A run takes some 4 CPU seconds, most of them for its page, and
all strategies on all data 20 minutes on a quiet core: a line is printed after each. The eICU demo is read where
``RAYSIM_DATA`` names a folder that has it. Exit code 1 means that something differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from safetensors.numpy import load_file

# Runs the command line once for each folder that it receives, each in a fork of a process that has imported what it
# needs. The entry point is looked up, because a checkout may keep it anywhere.
DRIVER = """
import json, os, sys
from importlib.metadata import entry_points
(script,) = [e for e in entry_points(group="console_scripts") if e.name == "raysim"]
main = script.load()
import numpy, pandas, scipy.stats, sklearn.cluster
for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if not child:
        log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1), os.dup2(log, 2)
        sys.argv = ["raysim", "run", job["config"], "--in-process", "--out", job["out"]]
        try:
            main()
        except SystemExit as ended:
            os._exit(ended.code if isinstance(ended.code, int) else 0)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

COMMON: dict[str, Any] = {
    "seed": 7,
    "training": {
        "rounds": 3,
        "local_epochs": 2,
        "batch_size": 16,
        "optimizer": "sgd",
        "learning_rate": 0.05,
        "precision": "float32",
    },
    "selection": {"name": "inverse_sqrt", "fraction": 0.3, "minimum": 4},
    "evaluation": {"every": 2},
    "tracking": {"uri": "none"},
    "checkpoint": {"every": 0},
}
# Tried in this order until one fits a strategy: some need hidden layers, some a virtual clock.
SETTINGS: tuple[dict[str, Any], ...] = (
    {"model": {"name": "logistic_regression"}},
    {"model": {"name": "mlp", "hidden": [8]}},
    {"model": {"name": "logistic_regression"}, "system": {"rows_per_second": {"lognormal": [200, 0.5]}}},
)


def data_sets() -> dict[str, dict[str, Any]]:
    """The ``data`` sections to run on, by name."""
    sets: dict[str, dict[str, Any]] = {
        "synthetic": {"source": "synthetic", "hospitals": 8},
        "digits": {"source": "digits", "clients": 8, "partition": {"name": "dirichlet", "alpha": 0.5}},
    }
    folder = os.environ.get("RAYSIM_DATA")
    if folder and (Path(folder) / "eicu_demo").is_dir():
        sets["eicu"] = {"source": "eicu", "path": str(Path(folder, "eicu_demo")), "silo": "region_beds"}
    else:
        sets["breast_cancer"] = {"source": "breast_cancer", "clients": 8}
    return sets


class Checkout:
    """A checkout's command line, in a process that stays."""

    def __init__(self, folder: Path) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "200"}
        # Its folder first: an editable installation may point elsewhere, and entry points are read from there too.
        environment["PYTHONPATH"] = str(folder)
        self._folder = folder
        self._process = subprocess.Popen(
            [folder / ".venv" / "bin" / "python", "-c", DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=folder,
        )

    def run(self, config: Path, out: Path, log: Path) -> int:
        """The exit code of ``raysim run`` with this configuration."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"config": str(config), "out": str(out), "log": str(log)}) + "\n")
        self._process.stdin.flush()
        code = self._process.stdout.readline()
        if not code:
            raise SystemExit(f"the process of {self._folder} has ended; does its .venv import raysim?")
        return int(code)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def differences(before: Path, after: Path) -> Iterator[str]:
    """What differs between two folders of runs: lines that begin with ``differs``, or ``only`` where one has more."""
    names = [{p.name for p in folder.iterdir() if p.suffix in (".csv", ".safetensors")} for folder in (before, after)]
    for side, more in (("before", names[0] - names[1]), ("after", names[1] - names[0])):
        yield from (f"only {side}: {name}" for name in sorted(more))
    for name in sorted(names[0] & names[1]):
        pair = (
            [load_file(folder / name) for folder in (before, after)]
            if name.endswith(".safetensors")
            else [_columns(folder / name) for folder in (before, after)]
        )
        for side, more in (("before", pair[0].keys() - pair[1].keys()), ("after", pair[1].keys() - pair[0].keys())):
            yield from (f"only {side}: {name} {key}" for key in sorted(more))
        for key in pair[0].keys() & pair[1].keys():
            one, other = pair[0][key], pair[1][key]
            if one.dtype != other.dtype or one.shape != other.shape or one.tobytes() != other.tobytes():
                yield f"differs: {name} {key}"


def _columns(path: Path) -> dict[str, Any]:
    """The columns of a table as written, without wall-clock seconds."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    return {name: np.array(frame[name].tolist(), dtype=str) for name in frame if name != "seconds"}


def main() -> int:
    """Compare, and print a line for each strategy and data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--strategies", nargs="*")
    parser.add_argument("--data", nargs="*")
    options = parser.parse_args()
    checkouts = [Checkout(options.before.resolve()), Checkout(options.after.resolve())]
    from importlib.metadata import entry_points

    strategies = options.strategies or sorted(entry.name for entry in entry_points(group="raysim.strategies"))
    equal = compared = 0
    more: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        for data_name, data in data_sets().items():
            if options.data and data_name not in options.data:
                continue
            for strategy in strategies:
                for i, settings in enumerate(SETTINGS):
                    home = Path(scratch, data_name, strategy, str(i))
                    home.mkdir(parents=True)
                    tree = COMMON | settings | {"data": data, "strategy": {"name": strategy}}
                    (home / "config.yaml").write_text(yaml.safe_dump(tree))
                    codes = [
                        checkout.run(home / "config.yaml", home / side, home / f"{side}.log")
                        for checkout, side in zip(checkouts, ("before", "after"), strict=True)
                    ]
                    if codes != [2, 2] or i == len(SETTINGS) - 1:
                        break
                if codes == [2, 2]:
                    print(
                        f"{data_name:14}{strategy:14}refused by both: {(home / 'after.log').read_text().strip()[:90]}",
                        flush=True,
                    )
                    continue
                compared += 1
                lines = (
                    [f"differs: exit codes {codes}"]
                    if any(codes)
                    else list(differences(home / "before", home / "after"))
                )
                more.update(line for line in lines if line.startswith("only"))
                wrong = [line for line in lines if not line.startswith("only")]
                equal += not wrong
                print(f"{data_name:14}{strategy:14}{'equal' if not wrong else '; '.join(wrong[:6])}", flush=True)
                if any(codes):
                    print((home / ("before.log" if codes[0] else "after.log")).read_text()[-300:])
    for checkout in checkouts:
        checkout.close()
    for line, count in sorted(more.items()):
        print(f"{line} ({count} runs)")
    print(f"{equal} of {compared} runs are equal to the last bit")
    return int(equal != compared)


if __name__ == "__main__":
    sys.exit(main())
