"""Private parts of libraries, of which the next version may know nothing: Ray's behind one file, of others none."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterator
from importlib import metadata
from pathlib import Path

import pytest

from raysim.cluster import ray_private
from tests.source import ROOT, modules

BEHIND = "raysim/cluster/ray_private.py"

DOCUMENTED = {"_exit", "_fields", "_asdict", "_replace"}
"""Of ``os`` and of named tuples: private by their spelling alone."""


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("ray._private.accelerators", "NvidiaGPUAcceleratorManager.get_current_node_num_accelerators"),
        ("ray._private.accelerators", "NvidiaGPUAcceleratorManager.get_current_process_visible_accelerator_ids"),
        ("ray._private.utils", "get_num_cpus"),
        ("ray._private.authentication.authentication_token_setup", "ensure_token_if_auth_enabled"),
        ("ray._private.node", "Node.dead_processes"),
        ("ray._private.parameter", "RayParams"),
        ("ray._private.services", "start_api_server"),
        ("ray._private.services", "start_ray_process"),
        ("ray._private.services", "get_node"),
        ("ray._private.services", "_get_gcs_client_options"),
        ("ray._private.state", "GlobalState._initialize_global_state"),
        ("ray._private.state", "GlobalState.node_table"),
        ("ray._private.utils", "get_dashboard_dependency_error"),
        ("ray._private.worker", "print_to_stdstream"),
        ("ray.air._internal.usage", "tag_callbacks"),
        ("ray.tune.execution.class_cache", "_ActorClassCache.get"),
        ("ray.tune.execution.class_cache", "DEFAULT_ENV_VARS.items"),
        ("ray._raylet", "GcsClient"),
        ("ray._raylet", "persist_port"),
        ("ray.job_config", "JobConfig._serialize"),
    ],
)
def test_ray_still_has_it(module, name):
    part = importlib.import_module(module)
    for attribute in name.split("."):
        part = getattr(part, attribute)
    assert callable(part)


def test_trials_have_no_environment_of_their_own():
    from ray.tune.execution import class_cache

    before = dict(class_cache.DEFAULT_ENV_VARS)
    with ray_private.plain_trials():
        cached = class_cache._ActorClassCache().get(type("Trial", (), {}))
    assert not cached._default_options.get("runtime_env", {}).get("env_vars")
    assert before == class_cache.DEFAULT_ENV_VARS
    assert before, "else nothing has to be left out any more"


def test_the_folders_that_ray_adds_are_not_sent():
    job = ray_private.job_without_folders()
    job._py_driver_sys_path.extend(["/first"])  # as ray.init does
    sent = job._serialize()
    assert isinstance(sent, bytes)
    assert b"/first" not in sent


def test_asking_an_address_imports_neither_raysim_nor_the_working_directory(tmp_path: Path):
    (tmp_path / "ray.py").write_text("raise RuntimeError('taken')")
    check = "import sys, runpy; sys.argv[1:] = ['127.0.0.1:x']\ntry: runpy.run_path(PATH, run_name='__main__')\n"
    check += "except BaseException as error: print(type(error).__name__, 'raysim' in sys.modules, 'ray' in sys.modules)"
    code = f"PATH = {ray_private.__file__!r}\n{check}"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert re.fullmatch(r"\w+ False True", done.stdout.strip().splitlines()[-1]), done.stdout + done.stderr


def test_versions_are_bounded_where_private_parts_are_used():
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert "ray[default,tune]>=2.52,<3" in wanted  # tokens, which we ask for, came with 2.52
    assert (2, 52) <= tuple(int(part) for part in metadata.version("ray").split(".")[:2]) < (3, 0)


def test_nothing_private_of_a_library_is_used_elsewhere():
    trees = {name: ast.parse((ROOT / name).read_text()) for name in modules()}
    ours = {name for tree in trees.values() for name in _given(tree)}
    used = [f"{path}:{line} {name}" for path, tree in trees.items() for line, name in _private(tree, ours)]
    assert [place for place in used if not place.startswith(BEHIND)] == []
    assert {place.split()[1] for place in used} >= {"_private", "_raylet", "_py_driver_sys_path"}


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import ray._private.worker", ["_private"]),
        ("from ray._private import utils", ["_private"]),
        ("from ray import _raylet", ["_raylet"]),
        ("import ray\nray._private", ["_private"]),
        ("import ray.util as u\nu._private", ["_private"]),
        ("adapter._type", ["_type"]),
        ("section.__pydantic_extra__", ["__pydantic_extra__"]),
        ("self._private\nfrom raysim.x import _private\nx.__class__\nos._exit(1)", []),
    ],
)
def test_the_rule_knows_what_is_private(code, names):
    assert [name for _, name in _private(ast.parse(code), {"_private"})] == names


def _given(tree: ast.Module) -> Iterator[str]:
    """Names that begin with an underscore and that this file gives to something."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _private(tree: ast.Module, ours: Collection[str]) -> Iterator[tuple[int, str]]:
    """What begins with one underscore and is a library's: imported, of an imported module, or not one of ``ours``."""
    imported = [alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    libraries = {alias.asname or alias.name.split(".")[0] for alias in imported}
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("raysim"):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [part for alias in node.names for part in alias.name.split(".")]
        elif isinstance(node, ast.Attribute):
            of_library = isinstance(node.value, ast.Name) and node.value.id in libraries
            names = [node.attr] if of_library or node.attr not in ours else []
        for name in names:
            pythons = name.startswith("__") and not name.startswith("__pydantic")
            if name.startswith("_") and not pythons and name not in DOCUMENTED:
                yield getattr(node, "lineno", 0), name
