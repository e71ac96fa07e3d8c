"""The figures of a report page, from the SVG files in its folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from raysim.core.errors import ConfigError, nearest
from raysim.core.installed import need
from raysim.storage.manifest import NAME as MANIFEST
from raysim.storage.manifest import Manifest

SCALE = 2.0
"""Pixels of a PNG per unit of length of the SVG."""


class Drawing:
    """A figure of a report page. Notebooks display it; :meth:`save` writes it as SVG, PDF or PNG."""

    def __init__(self, name: str, svg: str) -> None:
        self.name, self.svg = name, svg

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"figure '{self.name}'"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the figure to ``path`` as SVG, PDF or PNG, by its suffix. Returns the path.

        PDF and PNG need the package ``vl-convert-python``. Raises ``ConfigError`` for another suffix, or if that
        package is missing.
        """
        path = Path(path)
        kind = path.suffix.lower()
        if kind == ".svg":
            path.write_text(self.svg, encoding="utf-8")
            return path
        if kind not in (".pdf", ".png"):
            raise ConfigError(f"{path}: a figure is saved as .svg, .pdf or .png; name a file with such an ending")
        need("vl_convert", "figures", str(path), "save it as .svg")
        import vl_convert

        image = vl_convert.svg_to_pdf(self.svg) if kind == ".pdf" else vl_convert.svg_to_png(self.svg, scale=SCALE)
        path.write_bytes(image)
        return path


class Figures(Mapping[str, Drawing]):
    """The figures of the report page in ``folder``, by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        paths = [Path(folder, name) for name in Manifest.read(folder).files if name.startswith("plots/")]
        self._paths = {path.stem: path for path in paths}

    def __getitem__(self, name: str) -> Drawing:
        if name not in self._paths:
            raise ConfigError(f"figures: there is no '{name}'; {self._instead(name)}")
        return Drawing(name, self._paths[name].read_text(encoding="utf-8"))

    def _instead(self, name: str) -> str:
        if self._paths:
            return nearest(name, list(self._paths))
        if Path(self._folder, "../../..", MANIFEST).is_file():
            return "of a comparison, only runs of the first seed have figures"
        return f"{self._folder} stores no figures, which other versions of raysim drew only on its page report.html"

    def __contains__(self, name: object) -> bool:
        return name in self._paths

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __repr__(self) -> str:
        return f"figures: {', '.join(self)}"
