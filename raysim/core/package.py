"""Version and folder of the package. Modules take them from here: ``raysim`` itself imports from the upper rooms."""

from pathlib import Path

__version__ = "0.1.0"

FOLDER = Path(__file__).resolve().parents[1]
"""The folder of the package, which holds its rooms."""
