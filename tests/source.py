"""The project's own source, for tests that read it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]


def modules(*folders: str) -> list[str]:
    """The Python files of ``folders``, from the root, where those that are links are left out: of the whole package."""
    paths = [path for folder in folders or ("raysim", "strategies", "tune") for path in (ROOT / folder).rglob("*.py")]
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    return sorted(name for name in names if not name.startswith(("raysim/strategies/", "raysim/tune/")))
