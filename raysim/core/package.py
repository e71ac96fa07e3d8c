"""Which raysim this is, and where it lies. The package's own module hands on what stands above; nothing imports it."""

from pathlib import Path

__version__ = "0.1.0"

FOLDER = Path(__file__).resolve().parents[1]
"""The folder of the package, which holds its rooms."""
