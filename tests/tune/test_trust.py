"""A sweep that goes on takes code from where the command is typed, not from the folder that its journal names."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from raysim.core.errors import ConfigError
from raysim.storage.manifest import Manifest
from raysim.tune.journal import JOURNAL
from raysim.tune.sweep import go_on
from tests.tune.conftest import small_tree


def test_the_module_of_a_strangers_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir(), ours.mkdir()
    (theirs / "strangers_sweep.py").write_text(f"from pathlib import Path\nPath({str(tmp_path / 'mark')!r}).touch()\n")
    out = theirs / "sweep"
    Manifest.begin(out, "sweep")
    tree = small_tree(strategy={"class": "strangers_sweep.Mine"})
    (out / "sweep.yaml").write_text(yaml.safe_dump(tree))
    (out / JOURNAL).write_text(json.dumps({"sweep": "", "data": [], "working": str(theirs)}) + "\n")
    monkeypatch.chdir(ours)
    with pytest.raises(ConfigError, match=f"module 'strangers_sweep' lies in {theirs}, and code is imported only from"):
        go_on(out, Console(file=io.StringIO()), failed=False, verbose=False)
    assert not (tmp_path / "mark").exists()
