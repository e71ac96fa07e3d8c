"""The YAML that raysim writes or that its package contains. :mod:`raysim.config.reading` reads YAML from users."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

# PyYAML's C code, which some builds lack, is ten times as fast.
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def dumped(tree: Mapping[str, Any]) -> str:
    """Return ``tree`` as YAML, with its keys in their order."""
    text: str = yaml.dump(dict(tree), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def loaded(text: str) -> Any:
    """Return the value of a YAML text that is part of raysim's package."""
    return yaml.load(text, Loader=_Loader)


def scalar(text: str) -> str:
    """Return a text as YAML, in quotes where YAML would read it as something else.

    >>> scalar("age"), scalar("lactate, mmol/l"), scalar("007"), scalar("no")
    ('age', '"lactate, mmol/l"', '"007"', '"no"')
    """
    plain = re.fullmatch(r"[\w./~][\w ./()*~-]*", text) is not None and not text.endswith(" ")
    try:
        return text if plain and yaml.safe_load(text) == text else json.dumps(text, ensure_ascii=False)
    except yaml.YAMLError:
        return json.dumps(text, ensure_ascii=False)
