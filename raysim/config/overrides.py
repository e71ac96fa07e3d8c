"""Sets values at dotted keys of a configuration's tree, for ``--set`` and for a sweep's trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from raysim.config import loading
from raysim.core.errors import ConfigError
from raysim.core.words import as_yaml

PLUG_IN_KEYS = {"data": "source", "model": "name", "selection": "name", "strategy": "name"}
"""The configuration sections that may consist of a plug-in's name alone, each with the key whose value the name
becomes: ``data: eicu`` means ``data: {source: eicu}``.
"""


OF_KEYS = "sweep.space."
"""The beginning of a dotted key in the section ``sweep.space``; another dotted key follows, as in
``sweep.space.training.rounds``.
"""


def parsed(settings: Sequence[str]) -> dict[str, Any]:
    """Return the values of options ``--set a.b=value`` by dotted key. The last value of a repeated key is used."""
    values = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not all(key.split(".")):
            raise ConfigError(f"--set: '{setting}' is not key=value; write for example training.rounds=5")
        try:
            written = loading.AS_WRITTEN in key.split(".")
            values[key] = (
                loading.load(f"{loading.AS_WRITTEN}: {text}")[loading.AS_WRITTEN] if written else loading.load(text)
            )
        except loading.InvalidConfiguration as error:
            raise ConfigError(f"--set {key}: {error}") from None
        except ValueError:
            raise ConfigError(f"--set {key}: '{text}' is not a YAML value; quote it") from None
    return values


def laid_over(tree: Mapping[str, Any], values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a copy of a configuration's ``tree`` in which each of ``values`` is set at its dotted key.

    A value replaces the earlier value of its key. Raises ``ConfigError`` if a key lies below a value that is not a
    section. The message begins with ``where``.
    """
    result = dict(tree)
    for key, value in sorted(values.items(), key=lambda item: item[0].count(".")):
        *parents, last = _pieces(key)
        at = result
        for depth, parent in enumerate(parents, 1):
            below = at.get(parent)
            if isinstance(below, str) and parent in PLUG_IN_KEYS:
                below = {PLUG_IN_KEYS[parent]: below}
            if below is not None and not isinstance(below, Mapping):
                path = ".".join(parents[:depth])
                raise ConfigError(
                    f"{where}{key}: is a key inside '{path}', which already has the value {as_yaml(below)}; keep one "
                    "of the two"
                )
            at[parent] = dict(below or {})
            at = at[parent]
        at[last] = value
    return result


def _pieces(key: str) -> list[str]:
    if not key.startswith(OF_KEYS):
        return key.split(".")
    return [*OF_KEYS.removesuffix(".").split("."), key.removeprefix(OF_KEYS)]
