"""What is heavy is imported only where it is needed. That imports run one way, ``make lint`` checks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import raysim.cli.main", {"numpy", "pydantic", "ray", "torch", "mlflow", "rich"}),
        ("import raysim", {"numpy", "pydantic", "ray", "torch", "mlflow", "rich", "pandas"}),
        ("import raysim.config.schema", {"ray", "torch", "mlflow", "pandas"}),
        (
            "import raysim.experiment.runs",
            {"ray", "torch", "mlflow", "sklearn", "matplotlib", "scipy.stats", "scipy.optimize"},
        ),
        ("import raysim.tune.sweep, raysim.tune.answer", {"ray"}),  # a Ray is told first who may reach it
        ("import raysim.tune.plan, raysim.tune.trial", {"ray", "torch", "mlflow", "pandas", "scipy.stats", "rich"}),
        (
            "import raysim.cluster.pool, raysim.engine.client.hospital_group",
            {"torch", "mlflow", "sklearn", "matplotlib"},
        ),
        ("import raysim.cluster.hospital_actor", {"pydantic", "scipy.special", "scipy.linalg", "pandas"}),
        ("import raysim.cluster.coordinator", {"pandas", "pyarrow"}),
        ("import raysim.cluster.coordinator, raysim.experiment.runs", {"scipy.special"}),
        ("import raysim.strategies.hospital_clusters.chip", {"sklearn", "torch"}),
    ],
)
def test_what_is_heavy_is_imported_only_where_it_is_needed(statement, absent):
    code = f"import sys; {statement}; print(*sorted({absent!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == ""


def test_no_round_has_the_import_of_pages_in_its_seconds(tmp_path):
    code = (
        "import sys, raysim\n"
        "from raysim.experiment.one_run import Run\n"
        "play = Run.play\n"
        "def played(*arguments):\n"
        "    print('raysim.experiment.run_page' in sys.modules)\n"
        "    return play(*arguments)\n"
        "Run.play = played\n"
        "tree = {'data': {'hospitals': 4, 'rows': 200}, 'training': {'rounds': 1}, 'tracking': {'uri': 'none'}}\n"
        "raysim.run(tree, out='out', in_process=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "True"
