"""Executes ``python.ipynb`` and keeps what its cells show.

``python docs/notebook.py`` does so in place; ``python docs/notebook.py FILE`` executes the notebook in that file.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).with_name("python.ipynb")
SECONDS = 600
"""How long a cell may take on a busy machine."""


def execute(path: Path) -> None:
    """Run every cell in a fresh kernel and an empty folder. Raises ``CellExecutionError`` where one fails."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"RAYSIM_CACHE": str(Path(folder, "cache"))}
        client = NotebookClient(
            notebook,
            timeout=SECONDS,
            resources={"metadata": {"path": folder}},
            record_timing=False,
            coalesce_streams=True,  # progress comes in pieces
        )
        client.execute(env=environment)
    notebook.metadata.pop("language_info", None)  # the version of the Python that happened to execute it
    nbformat.write(notebook, path)


if __name__ == "__main__":
    execute(Path(sys.argv[1]) if len(sys.argv) > 1 else NOTEBOOK)
