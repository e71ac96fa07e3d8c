"""Commands and plug-ins that another package registers stand beside raysim's own, and never in their place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import STRICT, said

SMALL = {"data.hospitals": 6, "data.rows": 300, "training.rounds": 1, "training.batch_size": 32, "tracking.uri": "none"}

MODULE = """
import typer

def say(config: str = typer.Argument("")) -> None:
    print("the other package's")

class Other:
    pass
"""

REGISTERED = """
[raysim.commands]
model = otherpackage:say
run = otherpackage:say
sweep = otherpackage:say
training = otherpackage:say
section = otherpackage:say

[raysim.strategies]
fedavg = otherpackage:Other
Fed_Prox = otherpackage:Other
"""


pytestmark = pytest.mark.surroundings  # packages of others


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with an installed package that registers commands and strategies under names that are taken."""
    site = tmp_path / "site"
    metadata = site / "otherpackage-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: otherpackage\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(REGISTERED)
    (site / "otherpackage.py").write_text(MODULE)
    return tmp_path


def raysim(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(folder / "site"), "RAYSIM_CACHE": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, *STRICT, "-m", "raysim", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )


def settings(values: dict[str, object]) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def test_a_command_named_as_a_section_leaves_the_section_alone(installed: Path):
    """``model`` and ``training`` are sections of every configuration, ``run`` and ``sweep`` commands of raysim."""
    small = settings(SMALL | {"model": "mlp", "model.hidden": "[4]", "strategy": "fedavg"})
    done = raysim(installed, "run", "--in-process", "--out", "out", "--details", *small)
    assert done.returncode == 0, done.stderr
    assert "AUROC" in done.stdout
    assert (installed / "out" / "models.safetensors").is_file()
    assert said(done.stderr) == [
        "raysim: the command 'run' of otherpackage is left out, because another command has this name",
        "raysim: the command 'sweep' of otherpackage is left out, because another command has this name",
    ]


def test_a_command_of_another_package_works_and_keeps_a_section_to_itself(installed: Path):
    for name in ("model", "section"):
        done = raysim(installed, name)
        assert (done.returncode, done.stdout) == (0, "the other package's\n"), done.stderr
    (installed / "c.yaml").write_text("section: {anything: 1}\n")
    done = raysim(installed, "run", "c.yaml")
    assert done.returncode == 2
    assert "raysim: section: is read by 'raysim section'; use that command, or remove the section" in done.stderr


def test_a_name_of_raysim_s_own_means_the_same_whatever_is_installed(installed: Path):
    """Here of a comparison's configuration, which names several."""
    both = settings(SMALL | {"strategies": "[fedavg, FedProx]"})
    done = raysim(installed, "plan", "--nodes", "1x2cpu", *both)
    assert done.returncode == 0, done.stderr
    done = raysim(installed, "plan", "--nodes", "1x2cpu", *settings(SMALL | {"strategy": "Fed_Prox"}))
    assert "raysim: strategy: 'Other' takes no configuration; make it a dataclass" in done.stderr
