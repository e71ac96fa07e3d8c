"""Commands and plug-ins that another package registers stand beside raysim's own, and never in their place."""

from __future__ import annotations

import json
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


BROKEN = """
[raysim.commands]
broken = brokenpackage.syntax:say

[raysim.strategies]
broken = brokenpackage.syntax:Mine
absent = brokenpackage.needs:Mine
empty = brokenpackage:Mine
ending = brokenpackage.ends:Mine
FedAvg_ = brokenpackage.syntax:FedAvg

[raysim.selections]
broken = brokenpackage.syntax:Mine
"""

REASONS = {
    "broken": ("SyntaxError: invalid syntax (syntax.py, line 1)", "brokenpackage.syntax:Mine"),
    "absent": ("ModuleNotFoundError: No module named 'not_installed'", "brokenpackage.needs:Mine"),
    "empty": ("AttributeError: module 'brokenpackage' has no attribute 'Mine'", "brokenpackage:Mine"),
    "ending": ("the module called sys.exit(3)", "brokenpackage.ends:Mine"),
}


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A folder with an installed package whose plug-ins cannot be imported."""
    package = tmp_path / "site" / "brokenpackage"
    package.mkdir(parents=True)
    metadata = tmp_path / "site" / "brokenpackage-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: brokenpackage\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(BROKEN)
    for name, text in {"__init__": "", "syntax": "def (:", "needs": "import not_installed"}.items():
        (package / f"{name}.py").write_text(text)
    (package / "ends.py").write_text("import sys\nsys.exit(3)")
    return tmp_path


def test_a_plug_in_that_cannot_be_imported_is_one_line_and_leaves_the_others_alone(broken: Path):
    lines = {
        name: f"'{name}' cannot be imported ({reason}); mend {place}, or uninstall the package brokenpackage"
        for name, (reason, place) in REASONS.items()
    }
    command = lines["broken"].replace(":Mine", ":say")
    for name, line in lines.items():
        done = raysim(broken, "run", "--in-process", *settings(SMALL | {"strategy": name}))
        assert done.returncode == 2
        assert said(done.stderr)[-1] == f"raysim: strategy.name: {line}"
        assert said(done.stderr)[0] == f"raysim: raysim.commands: {command}"
    listed = raysim(broken, "list", "strategies", "--json")
    assert listed.returncode == 0, listed.stderr
    summaries = {each["name"]: each["summary"] for each in json.loads(listed.stdout)}
    assert {name: f"'{name}' {summaries[name]}" for name in lines} == lines
    assert summaries["fedavg"].startswith("Federated averaging")


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"privacy.declared_public": "[nothing]"}, "privacy.declared_public: 'nothing' is not a kind of message"),
        ({"selection": "all"}, ""),
        ({"selection": "uniform"}, "does not do; set selection to all or poisson"),
        ({"strategy": "fedprox", "model": "boosted_trees"}, "choose one of centralized, chip, clust_psi"),
    ],
)
def test_a_broken_plug_in_that_is_not_named_changes_no_message(broken: Path, values: dict[str, object], line: str):
    private = {} if "model" in values else {"privacy.unit": "hospital", "privacy.epsilon": 8, "privacy.clip": 1}
    done = raysim(broken, "run", "--in-process", "--out", "out", *settings(SMALL | private | values))
    assert done.returncode == (2 if line else 0), done.stderr
    assert line in said(done.stderr)[-1]
