"""``raysim run`` on a table of a million hospitals, from the command to the page: seconds, and memory of all processes.

``python -m benchmarks.million`` writes a Parquet table of ``--hospitals`` with 20 rows each, and runs the command line
on it, with two hospital actors and an empty cache: logistic regression on 20 features, federated averaging, 1,000
hospitals a round, evaluated after the last. The configuration leaves out what ``docs/scale.md`` says can be left out.
Printed are the seconds of the whole command, the peak of its memory (proportional set size, of Ray's processes too),
and those of a round. A million hospitals need 8 GB of disk in the folder for temporary files.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.process import measured
from benchmarks.scale import COHORT, FEATURES

ROWS, ROUNDS, ACTORS = 20, 20, 2
AT_ONCE = 25_000
"""Hospitals that are drawn and written at once."""


def table(path: Path, hospitals: int) -> None:
    """``hospitals`` with ``ROWS`` each and a linear signal, in pieces so that memory stays small."""
    rng = np.random.default_rng(0)
    law = rng.normal(size=FEATURES)
    writer = None
    for first in range(0, hospitals, AT_ONCE):
        names = [f"h{number}" for number in range(first, min(first + AT_ONCE, hospitals))]
        X = rng.standard_normal((len(names) * ROWS, FEATURES), np.float32)
        columns = {
            "hospital": np.repeat(names, ROWS),
            "label": (X @ law + rng.logistic(size=len(X)) > 2).astype(np.int8),
            **{f"x{k}": X[:, k] for k in range(FEATURES)},
        }
        piece = pa.table({name: pa.array(values) for name, values in columns.items()})
        writer = writer or pq.ParquetWriter(path, piece.schema)
        writer.write_table(piece)
    if writer:
        writer.close()


def config(path: Path, hospitals: int) -> dict[str, object]:
    """The run as a configuration over the table at ``path``."""
    return {
        "name": "million",
        "seed": 1,
        "data": {"source": "table", "path": str(path), "silo": "hospital", "label": "label"},
        "model": {"name": "logistic_regression"},
        "strategy": {"name": "fedavg"},
        "selection": {"name": "uniform", "fraction": min(1.0, COHORT / hospitals)},
        "training": {"rounds": ROUNDS, "local_epochs": 1, "learning_rate": 0.05},
        "evaluation": {"every": 0, "loss_points": 0, "clinical": None, "groups": []},
        "resources": {"hospitals_per_actor": -(-hospitals // ACTORS)},
        "tracking": {"uri": "none"},
    }


def main() -> None:
    """Write the table, run the command, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hospitals", type=int, default=1_000_000)
    hospitals = parser.parse_args().hospitals
    with tempfile.TemporaryDirectory(prefix="raysim-benchmark-") as name:
        folder = Path(name)
        table(folder / "rows.parquet", hospitals)
        (folder / "run.yaml").write_text(yaml.safe_dump(config(folder / "rows.parquet", hospitals), sort_keys=False))
        os.environ["RAYSIM_CACHE"] = str(folder / "cache")  # the command's, too: it finds nothing and leaves nothing
        usage = measured([sys.executable, "-m", "raysim", "run", "run.yaml", "--out", "out"], folder)
        milliseconds = pd.read_csv(folder / "out" / "rounds.csv")["seconds"] * 1000
    print(f"{hospitals:,} hospitals of {ROWS} rows, {ACTORS} actors, {COHORT:,} hospitals a round:")
    print(f"whole command {usage.seconds:.1f} s, peak {usage.peak / 2**30:.2f} GiB")
    print(f"first round {milliseconds[0]:.0f} ms, median of the others {milliseconds[1:].median():.1f} ms")


if __name__ == "__main__":
    main()
