"""What is heavy is imported only where it is needed. That imports run one way, ``make lint`` checks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


HEAVY = {"numpy", "pydantic", "ray", "torch", "mlflow", "rich", "pandas"}

BEFORE_RAY = {
    "raysim.cli.main": HEAVY,
    "raysim": HEAVY,
    "raysim.config.schema": {"ray", "torch", "mlflow", "pandas"},
    "raysim.tune.plan, raysim.tune.trial": {"ray", "torch", "mlflow", "pandas", "scipy.stats", "rich"},
    "raysim.experiment.runs": {"ray", "torch", "mlflow", "sklearn", "matplotlib", "scipy.stats", "scipy.optimize"},
    "raysim.tune.sweep, raysim.tune.answer": {"ray"},  # a Ray is first configured for who may reach it
}
IN_ACTORS = {
    "raysim.cluster.hospital_actor": {"pydantic", "scipy.special", "scipy.linalg", "pandas"},
    "raysim.cluster.coordinator": {"pandas", "pyarrow"},
    "raysim.experiment.runs": {"scipy.special", "dp_accounting", "cryptography"},
    "raysim.cluster.pool, raysim.engine.client.hospital_group": {"torch", "mlflow", "sklearn", "matplotlib"},
    "raysim.strategies.hospital_clusters.chip": {"sklearn", "torch"},
}
"""What one process imports, one after the other, and what must not be there by then."""


@pytest.mark.parametrize("imports", [BEFORE_RAY, IN_ACTORS], ids=["before Ray", "in actors"])
def test_what_is_heavy_is_imported_only_where_it_is_needed(imports):
    code = "import sys\n" + "\n".join(
        f"import {names}\nprint('{names}', *sorted({absent!r} & set(sys.modules)))" for names, absent in imports.items()
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines() == [*imports]
