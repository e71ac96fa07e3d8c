"""Lists the plug-ins that a configuration can name, in groups, and their keys with type, default, range and meaning."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import itertools
import math
import re
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from raysim.config.sections.plugin_sections import PlugIn
from raysim.core import registry
from raysim.core.defaults import table
from raysim.core.errors import ConfigError
from raysim.core.installed import loaded
from raysim.strategies import GROUPS

ENGINE = ("n_features", "n_outputs")
"""The parameters of a network that the engine sets from the data: they are not configuration keys."""

NAMES: Mapping[Any, str] = {
    int: "whole number",
    float: "number",
    str: "text",
    Path: "file",
    bool: "yes or no",
}
"""The names of types in lists of configuration keys."""

LIMITS = (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below"))
"""Pydantic's bounds, each with its words in lists of configuration keys."""

REFUSED = {
    "is not at least": "at least",
    "is not greater than": "above",
    "is not between": "between",
    "is not in": "in",
}
"""Maps phrases of error messages for a value out of range to words for the allowed range."""


EXAMPLES = 3
"""The largest number of a strategy's keys that :func:`example` shows."""


class Plugin(NamedTuple):
    """A plug-in's name and the first paragraph of its documentation."""

    name: str
    summary: str


class Key(NamedTuple):
    """The description of one configuration key of a plug-in."""

    key: str
    type: str
    default: str
    range: str
    meaning: str


def in_groups(kind: str) -> dict[str, list[Plugin]]:
    """Return the plug-ins of a ``kind`` (such as strategies) by the title of their group; a title may be empty."""
    groups: dict[str, list[Plugin]] = {title: [] for title in GROUPS.values()} if kind == "strategies" else {}
    for name, entry in registry.entries(kind).items():
        title = ""
        if kind == "strategies":
            title = GROUPS.get(entry.module.removeprefix("raysim.strategies.").partition(".")[0], "of other packages")
        summary = _summary(entry)
        groups.setdefault(title, []).append(Plugin(name, summary))
    for plugins in groups.values():
        plugins.sort(key=lambda each: each.name != table()["reference"])  # the reference comes first
    return {title: plugins for title, plugins in groups.items() if plugins}


def _summary(entry: EntryPoint) -> str:
    try:
        plugin = loaded(entry, "list")
    except ConfigError as error:
        return str(error).removeprefix(f"list: '{entry.name}' ")
    return " ".join(documentation(plugin).partition("\n\n")[0].split())


def documentation(plugin: Any) -> str:
    """Return the documentation of a plug-in, without markup.

    For a strategy or selection it is the docstring of its module. If the module has several plug-ins, the docstring of
    the class comes first. For all other plug-ins it is the docstring of the class.
    """
    module = sys.modules[plugin.__module__]
    others = [entry for kind in ("strategies", "selections") for entry in registry.entries(kind).values()]
    methods = sum(entry.module == module.__name__ for entry in others)
    texts = (plugin.__doc__ if methods != 1 else None, module.__doc__ if methods else None)
    return unmarked("\n\n".join(inspect.cleandoc(text) for text in texts if text) or "undocumented")


def unmarked(text: str) -> str:
    """Return ``text`` without reStructuredText markup.

    >>> unmarked("Zhou: *CHiP-FL*, as :class:`raysim.Chip` with ``lam`` has it; 2 * 3 * 4")
    'Zhou: CHiP-FL, as raysim.Chip with lam has it; 2 * 3 * 4'
    """
    return re.sub(r":\w+:`~?([^`]*)`|(?<!\w)\*(\w[^*\n]*)\*(?!\w)", r"\1\2", text).replace("``", "")


def keys_of(plugin: Any, place: str = "") -> list[Key]:
    """Return the descriptions of a plug-in's keys; a key of a nested section has a dotted name."""
    try:
        parameters = inspect.signature(plugin).parameters
    except (TypeError, ValueError):  # a network may have no readable signature
        return []
    hints = _hints(plugin)
    keys: list[Key] = []
    for name, parameter in parameters.items():
        if name in ENGINE:
            continue
        kind, default = hints.get(name, parameter.annotation), _default(plugin, parameter)
        section = default is not parameter.empty and dataclasses.is_dataclass(default)
        if section or isinstance(default, BaseModel):
            keys += [_given(key, default) for key in keys_of(type(default), f"{place}{name}.")]
            continue
        default_text = "required" if default is parameter.empty else value_in_words(default)
        limits = _limits(plugin, name, kind, default)
        type_ = re.sub(r"`([^\w`]+)`", r"'\1'", type_in_words(kind)).replace("`", "")
        keys.append(Key(place + name, type_, default_text, limits, _meaning(plugin, name)))
    return keys


def example(name: str, keys: Sequence[Key]) -> str:
    """Return the key ``strategies`` of a comparison as YAML: the reference, and the strategy ``name`` with some keys.

    >>> print(example("afl", []))
    strategies: [fedavg, afl]
    """
    reference = table()["reference"]
    shared = {"weights", "minimum_weight", "signature"}
    own = [key for key in keys if key.key not in shared and "." not in key.key and key.default[:1] not in ("{", "[")]
    own.sort(key=lambda key: key.type != "number")  # numbers first: mostly a paper's main hyper-parameters
    settings = [f"{key.key}: {key.default}" for key in own if key.default not in ("null", "required")][:EXAMPLES]
    one = f"{{{', '.join([f'name: {name}', *settings])}}}" if settings else name
    return f"strategies: [{', '.join(dict.fromkeys([reference, one]))}]"


def type_in_words(kind: Any) -> str:
    """Return a field's type in words, for users who write a configuration."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(type_in_words(each) for each in arguments if each is not type(None))
    if origin is tuple and get_origin(arguments[0]) is Literal:
        return f"list of any of {type_in_words(arguments[0])}"
    if origin in (tuple, list) or (origin is not None and issubclass_of(origin, Sequence)):
        items = "values" if arguments[0] is Any else type_in_words(arguments[0])
        return f"list of {items}".replace("number", "numbers")
    if origin is not None and issubclass_of(origin, Mapping):
        value = type_in_words(arguments[1])
        return f"for each name, {value}" if value.endswith(" by name") else f"{value} by name"
    if origin is not None:  # Annotated
        return type_in_words(arguments[0])
    if isinstance(kind, type) and issubclass(kind, PlugIn):
        return "name or section"
    return NAMES.get(kind, "section")


def issubclass_of(origin: Any, parent: type) -> bool:
    return isinstance(origin, type) and issubclass(origin, parent)


def bounds_in_words(metadata: Sequence[Any], kind: Any) -> str:
    """Describe in words pydantic's bounds of a field, and of the items if the field is a list."""
    stated = []
    for bound in (*metadata, *_inner(kind)):
        for limit, words in LIMITS:
            if (value := getattr(bound, limit, None)) is not None:
                stated.append(f"{words} {_number(value)}")
        if getattr(bound, "allow_inf_nan", None) is False:
            stated.append("finite")
    return ", ".join(stated)


def value_in_words(value: Any) -> str:
    """Return a default value as YAML in one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {value_in_words(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_in_words, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)


def _hints(plugin: Any) -> dict[str, Any]:
    fields = dataclasses.is_dataclass(plugin) or issubclass_of(plugin, BaseModel)
    for source in (plugin,) if fields else (getattr(plugin, "__init__", None),):
        with contextlib.suppress(Exception):  # names that only a type checker knows
            if hints := get_type_hints(source, include_extras=True):
                return hints
    return {}


def _default(plugin: Any, parameter: inspect.Parameter) -> Any:
    if dataclasses.is_dataclass(plugin):
        field = next(field for field in dataclasses.fields(plugin) if field.name == parameter.name)
        made = field.default_factory
        return parameter.default if made is dataclasses.MISSING else made()
    if issubclass_of(plugin, BaseModel) and not plugin.model_fields[parameter.name].is_required():
        return plugin.model_fields[parameter.name].get_default(call_default_factory=True)
    return parameter.default


def _given(key: Key, section: Any) -> Key:
    """Return a ``key`` of a nested section, with the default that ``section`` has for it."""
    return key._replace(default=value_in_words(getattr(section, key.key.rpartition(".")[2])))


def _limits(plugin: Any, name: str, kind: Any, default: Any) -> str:
    if issubclass_of(plugin, BaseModel):
        return bounds_in_words(plugin.model_fields[name].metadata, kind)
    return _refusal(plugin, name, kind) if dataclasses.is_dataclass(plugin) else ""


def _refusal(plugin: Any, name: str, kind: Any) -> str:
    """Return the range of a dataclass's field, from the class's error message for NaN or a very low number.

    The text is empty if neither value causes an error message with a range.
    """
    alternatives = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    plain = [get_args(each)[0] if get_origin(each) is Annotated else each for each in alternatives]
    numbers = {int, float} & {each for each in plain if isinstance(each, type)}
    for value in (math.nan, -math.inf) if float in numbers else (-(2**31),) if numbers else ():
        try:
            plugin(**{name: value})
        except (ValueError, TypeError) as error:
            match = re.fullmatch(rf"{name}: \S+ ({'|'.join(REFUSED)}) ([^;]+?)(?:;.*)?", str(error))
            if match:
                words = f"{REFUSED[match[1]]} {match[2]}"
                return re.sub(r"^between (\S+) and (\S+)$", r"\1 to \2", words).removesuffix(" or auto")
    return ""


def _meaning(plugin: Any, name: str) -> str:
    """Return a field's pydantic description; without one, the docstring under the field in the class or its bases."""
    if issubclass_of(plugin, BaseModel) and (description := plugin.model_fields[name].description):
        return unmarked(description)
    classes = inspect.getmro(plugin) if inspect.isclass(plugin) else (plugin,)
    for cls in classes:
        if text := _texts(cls).get(name):
            return unmarked(" ".join(text.split()))
    return ""


def _texts(cls: Any) -> dict[str, str]:
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}
    return dict(_under(tree.body)) if isinstance(tree, ast.ClassDef) else {}


def _under(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for above, below in itertools.pairwise(body):
        match above, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, text


def _inner(kind: Any) -> Iterator[Any]:
    for argument in get_args(kind):
        for part in getattr(argument, "__metadata__", ()):
            yield from part.metadata if isinstance(part, FieldInfo) else (part,)


def _number(value: float) -> str:
    return "2^63" if value == 2**63 else f"{value:g}"
