"""Imports every module of raysim and compiles the templates of pages, as each command would again."""

from __future__ import annotations

import importlib
import pkgutil

import raysim
from raysim.report.pages import rendering, tabs

for module in pkgutil.walk_packages(raysim.__path__, "raysim."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)

for environment in (rendering._environment(), rendering._sections()):
    for name in environment.list_templates():
        environment.get_template(name)

for name in ("comparison", "run", "hospital"):
    sheet = tabs.sheet(name)
    for text in (sheet.kind, sheet.dated, sheet.top, *(section.on(name) for section in sheet.sections)):
        if text is not None:
            rendering._markup(text)
