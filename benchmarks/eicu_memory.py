"""Peak memory of reading eICU tables that are larger than memory should need to be.

Generates a folder with ``patient.csv.gz`` and a ``vitalPeriodic.csv.gz`` of ``--rows`` rows in eICU's layout (a reading
every five minutes of each stay), reads it with the ``eicu`` source in a fresh process, and prints rows, seconds and the
process's peak resident memory. Run by hand:

    python benchmarks/eicu_memory.py --rows 20000000
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_READINGS_A_STAY = 720

_PATIENT = """
COPY (
    SELECT
        i AS patientunitstayid,
        '001-' || i // 2 AS uniquepid,
        i % 208 AS hospitalid,
        i % 400 AS wardid,
        CAST(18 + hash(i) % 72 AS VARCHAR) AS age,
        if(hash(i, 1) % 2 = 0, 'Male', 'Female') AS gender,
        'Caucasian' AS ethnicity,
        150 + hash(i, 2) % 50 AS admissionheight,
        50 + hash(i, 3) % 70 AS admissionweight,
        5 * $readings AS unitdischargeoffset,
        if(hash(i, 4) % 12 = 0, 'Expired', 'Alive') AS hospitaldischargestatus
    FROM range($stays) AS ids(i)
) TO '{folder}/patient.csv.gz' (HEADER)
"""

_VITALS = """
COPY (
    SELECT
        i AS vitalperiodicid,
        i // $readings AS patientunitstayid,
        5 * (i % $readings) AS observationoffset,
        if(hash(i) % 9 = 0, CAST(36 + (hash(i, 1) % 30) / 10.0 AS DECIMAL(4, 1)), NULL) AS temperature,
        90 + hash(i, 2) % 11 AS sao2,
        50 + hash(i, 3) % 90 AS heartrate,
        8 + hash(i, 4) % 30 AS respiration,
        NULL AS cvp,
        NULL AS etco2,
        90 + hash(i, 5) % 80 AS systemicsystolic,
        40 + hash(i, 6) % 60 AS systemicdiastolic,
        60 + hash(i, 7) % 60 AS systemicmean
    FROM range($rows) AS ids(i)
) TO '{folder}/vitalPeriodic.csv.gz' (HEADER, COMPRESSION gzip)
"""


def main() -> None:
    """Generate, read in a fresh process, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows of vitalPeriodic (default 20 million)")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        _read(options.read)
        return
    with tempfile.TemporaryDirectory(prefix="raysim-benchmark-") as folder:
        start = time.perf_counter()
        _generate(Path(folder), options.rows)
        print(f"generated {options.rows:,} rows in {time.perf_counter() - start:.0f} s", flush=True)
        subprocess.run([sys.executable, __file__, "--read", folder], check=True)


def _generate(folder: Path, rows: int) -> None:
    import duckdb

    stays = -(-rows // _READINGS_A_STAY)
    with duckdb.connect() as connection:
        connection.execute(_PATIENT.format(folder=folder), {"stays": stays, "readings": _READINGS_A_STAY})
        connection.execute(_VITALS.format(folder=folder), {"rows": rows, "readings": _READINGS_A_STAY})


def _read(folder: Path) -> None:
    from raysim.data.sources.eicu.source import Eicu

    def peak() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    before, start = peak(), time.perf_counter()
    records = Eicu(path=folder).read()
    seconds = time.perf_counter() - start
    size = (folder / "vitalPeriodic.csv.gz").stat().st_size / 2**20
    print(*records.notes, sep="\n")
    print(f"{len(records.y):,} stays, {records.features.shape[1]} features, from {size:.0f} MiB of csv.gz")
    print(f"{seconds:.1f} s, peak {peak():.0f} MiB resident ({before:.0f} MiB before the read)")


if __name__ == "__main__":
    main()
