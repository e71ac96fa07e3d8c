"""How often the intervals of the statistics hold the truth, and how often their tests err, on simulated federations.

``python -m benchmarks.coverage --draws 2000 --hospitals 4,20,208 --processes 2 --out coverage.jsonl`` simulates what
the file lacks, in pieces, so that it can be stopped and gone on with; ``--table`` prints the file as Markdown, and
``--summary`` the table of ``docs/statistics.md``. Each piece has a seed of its own: those that were simulated at other
times or places are the same, and their files are joined by ``cat``.
"""

from __future__ import annotations

import argparse
import json
import zlib
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from benchmarks.coverage.studies import Cell, cells
from benchmarks.coverage.table import summary, table
from benchmarks.coverage.tally import Tally

PIECE = 100
"""Draws that a process simulates before it writes."""


def main() -> None:
    """As the module says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--hospitals", default="4,20,208")
    parser.add_argument("--studies", default="", help="only these, by comma")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("coverage.jsonl"))
    parser.add_argument("--table", action="store_true", help="print what the file holds, and simulate nothing")
    parser.add_argument("--summary", action="store_true", help="print it in short, and simulate nothing")
    options = parser.parse_args()
    wanted = [
        cell
        for cell in cells([int(h) for h in options.hospitals.split(",")])
        if not options.studies or cell.study in options.studies.split(",")
    ]
    done = _read(options.out)
    if options.table or options.summary:
        print((table if options.table else summary)(wanted, done))
        return
    missing = [
        (cell, piece)
        for piece in range(-(-options.draws // PIECE))
        for cell in wanted
        if piece not in done.get((cell.study, cell.name), {})
    ]
    with ProcessPoolExecutor(options.processes) as pool, options.out.open("a") as file:
        futures = {pool.submit(_simulate, cell, piece, options.seed): (cell, piece) for cell, piece in missing}
        for future in as_completed(futures):
            cell, piece = futures[future]
            line = {"study": cell.study, "cell": cell.name, "piece": piece, "sums": future.result()}
            file.write(json.dumps(line) + "\n")
            file.flush()


def _simulate(cell: Cell, piece: int, seed: int) -> dict[str, list[float]]:
    name = zlib.crc32(f"{cell.study}/{cell.name}".encode())
    return cell.simulate(np.random.default_rng([seed, name, piece]), PIECE).sums


def _read(path: Path) -> dict[tuple[str, str], dict[int, Tally]]:
    """Pieces by study and cell."""
    done: dict[tuple[str, str], dict[int, Tally]] = {}
    if path.exists():
        for line in path.read_text().splitlines():
            piece = json.loads(line)
            done.setdefault((piece["study"], piece["cell"]), {})[piece["piece"]] = Tally(piece["sums"])
    return done


if __name__ == "__main__":
    main()
