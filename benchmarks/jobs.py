"""Four jobs through ``raysim run``, beside plain loops in the same process and minute: seconds and memory.

``python -m benchmarks.jobs`` writes each job's rows into a Parquet table, runs ``raysim run`` on it twice with two
hospital actors, and then the loops of :mod:`benchmarks.loops` on the same rows, with one thread each. raysim's figure
is the sum of ``seconds`` in ``rounds.csv``, the first round included; it also takes the training loss of all rows after
every round, which the loops do not. The faster of two runs counts, of raysim and of each loop. Printed, and written
into ``--out``: ``jobs.md`` and ``jobs.csv``. With ``--record`` a line for each job is added to
``benchmarks/record.csv``, where past figures stand with the machine that they come from.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from benchmarks.loops import CASES, Case, make, numpy_loop, torch_loop
from benchmarks.process import measured
from raysim.core.package import __version__
from raysim.data.federation import PARTS, Federation

RECORD = Path(__file__).with_name("record.csv")
RUNS = 2


@dataclass(frozen=True)
class Row:
    """One job's figures, in seconds unless said otherwise."""

    job: str
    """Its name."""
    rounds: float
    """All rounds of raysim, the first included."""
    first_round: float
    """The first of them."""
    torch_loop: float
    """The plain torch loop."""
    numpy_loop: float
    """The plain numpy loop; NaN where there is none."""
    command: float
    """The whole command ``raysim run``, its data read from the cache."""
    peak_gib: float
    """Peak memory of all processes of the command, in GiB."""
    auroc: float
    """Mean AUROC of raysim's model over hospitals."""
    auroc_loop: float
    """That of the torch loop's."""


def table(federation: Federation, path: Path) -> None:
    """The federation's rows as a Parquet table with the columns ``hospital``, ``part`` and ``label``."""
    frame = pd.DataFrame(federation.X, columns=list(federation.features))
    sizes = np.stack([federation.sizes(part) for part in PARTS], axis=1)
    frame.insert(0, "hospital", np.repeat(federation.hospitals, federation.totals))
    frame.insert(1, "part", np.repeat(np.tile(PARTS, len(sizes)), sizes.ravel()))
    frame.insert(2, "label", federation.y)
    frame.to_parquet(path, index=False)


def config(case: Case, path: Path) -> dict[str, object]:
    """The job as a configuration over the table at ``path``."""
    everybody = case.fraction == 1
    return {
        "name": case.name,
        "seed": 1,
        "data": {
            "source": "table",
            "path": str(path),
            "silo": "hospital",
            "label": "label",
            "preprocessing": "none",
            "split": {"column": "part"},
        },
        "model": {"name": "mlp", "hidden": [256, 128]} if case.model == "mlp" else {"name": case.model},
        "strategy": {"name": "fedavg"},
        "selection": {"name": "all"} if everybody else {"name": "uniform", "fraction": case.fraction},
        "training": {
            "rounds": case.rounds,
            "local_epochs": 1,
            "batch_size": case.batch,
            "learning_rate": case.rate,
        },
        "evaluation": {"every": case.every},
        "tracking": {"uri": "none"},
    }


def played(case: Case, federation: Federation, folder: Path) -> Row:
    """One job: through the command line, and as loops."""
    table(federation, folder / "rows.parquet")
    (folder / "job.yaml").write_text(yaml.safe_dump(config(case, folder / "rows.parquet"), sort_keys=False))
    runs = []
    for k in range(RUNS):
        usage = measured([sys.executable, "-m", "raysim", "run", "job.yaml", "--out", f"out{k}"], folder)
        rounds = pd.read_csv(folder / f"out{k}" / "rounds.csv")
        runs.append(
            (rounds["seconds"].sum(), rounds["seconds"].iloc[0], usage, rounds["global_mean_unweighted"].iloc[-1])
        )
    seconds, first, _, auroc = min(runs, key=lambda run: run[0])
    torch_seconds, torch_auroc = min(torch_loop(case, federation) for _ in range(RUNS))
    return Row(
        job=case.name,
        rounds=seconds,
        first_round=first,
        torch_loop=torch_seconds,
        numpy_loop=min(numpy_loop(case, federation)[0] for _ in range(RUNS)),
        command=min(usage.seconds for _, _, usage, _ in runs),
        peak_gib=max(usage.peak for _, _, usage, _ in runs) / 2**30,
        auroc=auroc,
        auroc_loop=torch_auroc,
    )


def said(rows: list[Row]) -> str:
    """The table as Markdown."""
    lines = [
        "| job | raysim, s | of it the first round | torch loop, s | times | numpy loop, s | times | whole command, s "
        "| peak, GiB | AUROC, loop's |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        numpy_seconds, times = ("-", "-")
        if row.numpy_loop == row.numpy_loop:
            numpy_seconds, times = f"{row.numpy_loop:.2f}", f"{row.numpy_loop / row.rounds:.1f}"
        lines.append(
            f"| {row.job} | {row.rounds:.2f} | {row.first_round:.3f} | {row.torch_loop:.2f} "
            f"| {row.torch_loop / row.rounds:.1f} | {numpy_seconds} | {times} | {row.command:.1f} | {row.peak_gib:.2f} "
            f"| {row.auroc:.4f} {row.auroc_loop:.4f} |"
        )
    return "\n".join(lines)


def machine() -> dict[str, object]:
    """What the figures depend on besides the code: processor, cores, and how busy the machine is."""
    names = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "date": date.today().isoformat(),
        "version": __version__,
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only jobs whose name starts so, such as J1")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="where the table goes")
    parser.add_argument("--record", action="store_true", help=f"add the figures to {RECORD.name}")
    options = parser.parse_args()
    began, rows = time.perf_counter(), []
    for case in CASES:
        if case.name.startswith(options.only):
            with tempfile.TemporaryDirectory() as folder:
                federation = Path(folder) / "federation"
                federation.mkdir()
                rows.append(played(case, make(case, federation), Path(folder)))
                print(f"{case.name}: {case.about}: {rows[-1].rounds:.3f} s", flush=True)
    about = machine()
    text = said(rows)
    print(f"\n{text}\n\n{about}, {time.perf_counter() - began:.0f} s in all")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "jobs.md").write_text(text + "\n")
    records = [about | {k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(row).items()} for row in rows]
    _write(options.out / "jobs.csv", records, "w")
    if options.record:
        _write(RECORD, records, "a")


def _write(path: Path, records: list[dict[str, object]], mode: str) -> None:
    new = mode == "w" or not path.exists()
    with path.open(mode, newline="") as file:
        writer = csv.DictWriter(file, list(records[0]))
        if new:
            writer.writeheader()
        writer.writerows(records)


if __name__ == "__main__":
    main()
