"""Imports every module of raysim, of which each command would import fifty anew."""

from __future__ import annotations

import importlib
import pkgutil

import raysim

for module in pkgutil.walk_packages(raysim.__path__, "raysim."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
