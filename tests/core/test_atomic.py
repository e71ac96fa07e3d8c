"""Files that appear whole or not at all, and what killed processes leave of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from raysim.core.atomic import remove_stray, replacing

KILLED = """
import os, signal, sys
from pathlib import Path
from raysim.core.atomic import replacing

with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    below = tmp_path / "runs" / "fedavg"
    below.mkdir(parents=True)
    subprocess.run([sys.executable, "-c", KILLED, str(below / "t.csv")], check=False)
    (stray,) = below.iterdir()
    assert stray.name.endswith(".t.csv")
    others = [
        tmp_path / name for name in ("t.csv", ".hidden", ".7z", ".0.t.csv", f".{2**70}.t", f".{os.getpid()}.mine")
    ]
    for each in others:
        each.touch()
    (tmp_path / f"{stray.name}.folder").mkdir()
    (tmp_path / f"{stray.name}.link").symlink_to(others[0])
    with replacing(tmp_path / "own.csv") as temporary:
        temporary.touch()
        remove_stray(tmp_path)
        assert temporary.exists()
    assert not stray.exists()
    assert all(each.exists() for each in others)
    assert (tmp_path / f"{stray.name}.folder").is_dir()
    assert (tmp_path / f"{stray.name}.link").is_symlink()
