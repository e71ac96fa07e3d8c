"""The machine knows strategies and selections by the registry alone: it names none, neither in words nor in imports."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator, Sequence

import pytest

from raysim.core import registry
from tests.source import ROOT, TOGETHER, modules, nodes, walked

pytestmark = TOGETHER

ENTRIES = [entry for kind in ("strategies", "selections") for entry in registry.entries(kind).values()]

WORDS = {"all", "uniform", "local", "centralized", "clustered", "hierarchical"}
"""Names that are words of the language, too: in a longer text they need not be names."""

OTHER_MEANINGS = {
    "uniform": [
        *("raysim/config/sections/system.py", "tune/spaces.py"),  # the distribution
        *(
            "raysim/config/plugins.py",
            "raysim/config/sections/privacy.py",
            "raysim/engine/privacy/checks.py",
        ),  # equal weights
        *("raysim/config/sections/aggregation.py", "raysim/experiment/one_run.py"),  # these, too
    ],
    "local": [
        *("raysim/cluster/connection.py", "raysim/cluster/greeting.py"),  # an address of Ray
        *(
            "raysim/config/sections/privacy.py",
            "raysim/engine/privacy/privacy_ledger.py",
        ),  # noise of each hospital's own
        *(
            "raysim/engine/privacy/checks.py",
            "raysim/engine/privacy/calibration.py",
            "raysim/engine/privacy/hospital_noise.py",
            "raysim/experiment/audits/canary_audit.py",
        ),
    ],
    "poisson": [
        *(
            "raysim/training/boosted_trees.py",
            "raysim/trees/losses.py",
            "raysim/trees/settings.py",
        ),  # counts
        "raysim/serving/tree_formats.py",
    ],
    "fine_tuning": [
        *("raysim/engine/server/last_steps.py", "raysim/experiment/unseen/joining.py"),  # the step, and its stream
    ],
    "all": [
        *("raysim/report/pages/audit.py", "raysim/report/judgement/facts/calibration.py"),  # all hospitals
        *("raysim/experiment/stacked_tables.py", "raysim/study/predictors.py"),  # every one
        *(
            "raysim/adversaries/who.py",
            "raysim/engine/attacks/colluding.py",
            "raysim/report/supplement/attacks.py",
        ),  # what attackers know
        *(
            "raysim/config/sections/evaluation.py",
            "raysim/experiment/unseen/rows.py",
            "raysim/experiment/unseen/findings.py",
        ),  # rows that may join, or train
        *("raysim/data/assembly.py", "raysim/data/split.py"),  # rows that train
        *("raysim/data/checks/quality.py", "raysim/data/tables/spelling.py"),  # rows, and the name of a function
        *("raysim/config/sections/secure.py", "raysim/secure/graph.py", "raysim/secure/setup.py"),  # whom masks join
    ],
}
"""Where a whole text is such a word in another sense."""

MACHINE = modules("raysim", "tune")


def test_the_machine_names_no_strategy():
    named = [
        f"{path}:{line} {name}"
        for path in MACHINE
        for line, name in names(nodes(path))
        if path not in OTHER_MEANINGS.get(name, [])
    ]
    assert named == []


def test_no_other_meaning_is_listed_in_vain():
    for word, paths in OTHER_MEANINGS.items():
        for path in paths:
            assert word in [name for _, name in names(nodes(path))], (word, path)


def test_pages_name_no_strategy():
    templates = [*(ROOT / "raysim").rglob("*.j2")]
    assert templates
    assert [(path.name, name) for path in templates for name in inside(path.read_text())] == []


def test_the_machine_imports_no_strategy():
    assert [f"{path}:{n} {it}" for path in MACHINE for n, it in imports(nodes(path), path)] == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("x = 'chip'", ["chip"]),
        ("x: Literal['fedavg', 'other']", ["fedavg"]),
        ("x = f'run CHiP-FL or {y}'", ["chip"]),
        ("x = {'Fed-Avg': 'local'}", ["fedavg", "local"]),
        ("raise E('such as clust_psi')", ["clust_psi"]),
        ("x = 'a local and uniform one'", []),
        ("def f():\n    'Such as chip.'\nx = 1\n'Such as chip.'", []),
    ],
)
def test_the_rule_knows_names(code, said):
    assert [name for _, name in names(walked(code))] == said


@pytest.mark.parametrize(
    "code",
    [
        "import raysim.strategies.hospital_clusters.chip",
        "import raysim.strategies.hospital_clusters as clusters",
        "from raysim.strategies import hospital_clusters",
        "from raysim.strategies.hospital_clusters import chip",
        "from raysim.strategies.hospital_clusters.chip import Chip",
        "from raysim.strategies.selections import sampling",
        "from raysim.strategies import chip",
        "from raysim.strategies import *",
        "from raysim.strategies.problem import *",
        "from ..strategies import personal",
        "from ..strategies.personal.ditto import Ditto",
        "from strategies import chip",
        "import strategies.base",
        "import tune.sweep",
        "import_module('raysim.strategies.personal.ditto')",
        "import raysim.strategies\nx = raysim.strategies.personal.ditto.Ditto",
        "def f():\n    if x:\n        from raysim.strategies.one_model.fedavg import FedAvg",
    ],
)
def test_the_rule_knows_imports(code):
    assert [*imports(walked(code), "raysim/report/tables.py")] != []


@pytest.mark.parametrize(
    "code",
    [
        "from raysim.strategies.base import Strategy",
        "from raysim.strategies import base, programs",
        "from raysim.strategies.shared import psi",
        "from ..strategies.base import Strategy",
        "import raysim.tune.sweep",
    ],
)
def test_the_rule_allows_the_interface(code):
    assert [*imports(walked(code), "raysim/report/tables.py")] == []


def plain(text: str) -> str:
    """As the registry compares names."""
    return re.sub(r"[-_ ]", "", text.lower())


NAMES = {plain(entry.name): entry.name for entry in ENTRIES}
MODULES = {entry.module for entry in ENTRIES}
ROOMS = {module.rpartition(".")[0] for module in MODULES}
"""The packages in which registered strategies and selections lie."""


def names(tree: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """The names in texts of a module, with their lines. A text that stands alone documents something."""
    documents = {id(node.value) for node in tree if isinstance(node, ast.Expr)}
    for node in tree:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            if plain(node.value) in NAMES:
                yield node.lineno, NAMES[plain(node.value)]
            else:
                yield from ((node.lineno, name) for name in inside(node.value))


def inside(text: str) -> Iterator[str]:
    """The names among the words of a text, where they are no words of the language."""
    for joined in re.findall(r"[\w-]+", text):
        parts = {joined, *joined.split("-")}
        yield from sorted({NAMES[plain(part)] for part in parts if plain(part) in NAMES} - WORDS)


def imports(tree: Sequence[ast.AST], path: str) -> Iterator[tuple[int, str]]:
    """What a module imports, or spells out, of the strategies beside their interface, with its lines."""
    package = path.removesuffix(".py").split("/")
    package = ["raysim", *package] if package[0] == "tune" else package
    for node in tree:
        spelled: list[str] = []
        if isinstance(node, ast.Import):
            spelled = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            spelled = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Attribute):
            spelled = [ast.unparse(node)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            spelled = [node.value]
        for name in spelled:
            imported = isinstance(node, ast.Import | ast.ImportFrom)
            if _of_a_room(name) or (imported and _not_the_interface(name)):
                yield getattr(node, "lineno", 0), name
                break


def _of_a_room(name: str) -> bool:
    return any(name == room or name.startswith(f"{room}.") for room in ROOMS)


def _not_the_interface(name: str) -> bool:
    """Whether an import is by the folders' names, takes everything, or is of nothing that the strategies' root has."""
    if name.split(".")[0] in ("strategies", "tune"):
        return True
    if not name.startswith("raysim.strategies."):
        return False
    *above, last = name.split(".")
    if last == "*":
        return True
    if ".".join(above) != "raysim.strategies":
        return False
    if importlib.util.find_spec(name) is not None:
        return False
    root = importlib.import_module("raysim.strategies")
    return not hasattr(root, last) or getattr(root, last) in [entry.load() for entry in ENTRIES]
