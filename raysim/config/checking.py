"""Checks configuration values against the fields of the class of a section or plug-in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from raysim.core.errors import ConfigError, nearest
from raysim.core.words import as_yaml, counted

T = TypeVar("T")


def validated(kind: type[T], value: Any, where: str, other_keys: Sequence[str] = ()) -> T:
    """Check ``value`` and return it as an object of ``kind``, the class of a section or plug-in.

    Errors about a misspelled key suggest a field of ``kind`` or one of ``other_keys``, further keys of the section.
    Raises :class:`ConfigError` if the value does not fit.
    """
    try:
        checked: T = adapter(kind).validate_python(value)  # type: ignore[arg-type]  # classes are hashable
    except ValidationError as error:
        raise ConfigError(_first_line(error, kind, where, other_keys)) from None
    except UnicodeEncodeError:
        raise ConfigError(
            f"{where or 'config'}: a text holds an invalid Unicode character (a surrogate); write it again"
        ) from None
    if (path := _truth_as_number(value, checked, where)) is not None:
        raise ConfigError(f"{path}: is true or false (in YAML also yes, no, on, off), not a number; write a number")
    return checked


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return the cached pydantic adapter that checks and serialises values of a ``kind``."""
    return TypeAdapter(kind)


@cache
def hints(kind: Any) -> Mapping[str, Any]:
    """Return the types of a plug-in's fields by name.

    Raises ``NameError`` for an unknown type.
    """
    return get_type_hints(kind)


def _truth_as_number(given: Any, checked: Any, path: str) -> str | None:
    """Return the first key whose value is true or false although a number is expected; None if there is none.

    Python would treat true and false as 1 and 0.
    """
    if isinstance(given, bool):
        return path if isinstance(checked, int | float) and not isinstance(checked, bool) else None
    pairs: Iterable[tuple[Any, Any, Any]] = ()
    if isinstance(given, Mapping):
        pairs = ((key, below, _under(checked, key)) for key, below in given.items())
    elif isinstance(given, list | tuple) and isinstance(checked, list | tuple):
        pairs = ((i, below, checked[i] if i < len(checked) else None) for i, below in enumerate(given))
    for key, below, taken in pairs:
        if (mistaken := _truth_as_number(below, taken, f"{path}.{key}" if path else str(key))) is not None:
            return mistaken
    return None


def _under(checked: Any, key: Any) -> Any:
    if isinstance(checked, Mapping):
        return checked.get(key)
    return getattr(checked, key, None) if isinstance(key, str) and key.isidentifier() else None


_WORDS = {
    "greater_than_equal": "is not at least {ge}",
    "greater_than": "is not greater than {gt}",
    "less_than_equal": "is not at most {le}",
    "less_than": "is not less than {lt}",
    "finite_number": "is not a finite number",
    "int_parsing": "is not a whole number",
    "int_type": "is not a whole number",
    "int_from_float": "is not a whole number",
    "float_parsing": "is not a number",
    "float_type": "is not a number",
    "string_type": "is not text; quote it",
    "literal_error": "is not one of {expected}",
    "tuple_type": "is not a list",
    "list_type": "is not a list",
    "string_too_long": "has more than {max_length} characters",
    "string_too_short": "has fewer than {min_length} characters",
    "too_short": "has too few values; give at least {min_length}",
    "dict_type": "is not a group of keys",
    "model_type": "is not a group of keys",
    "dataclass_type": "is not a group of keys",
    "bool_parsing": "is not true or false",
}


def _first_line(error: ValidationError, kind: Any, where: str, other_keys: Sequence[str]) -> str:
    first = error.errors()[0]
    path = ".".join(str(part) for part in [*([where] if where else []), *first["loc"]] if not _is_branch(part))
    if first["type"] == "extra_forbidden":
        allowed = [*_keys_at(kind, first["loc"][:-1]), *(other_keys if len(first["loc"]) == 1 else ())]
        return f"{path}: unknown key; {nearest(str(first['loc'][-1]), allowed)}"
    if first["type"] in ("missing", "missing_argument"):
        return f"{path}: missing; add this key"
    if first["type"] == "value_error":
        text = str(first["ctx"]["error"])
        # The check of a section or plug-in may name its field: "lam: -1 is not at least 0".
        names_field = path and text.split(":")[0].replace("_", "").replace(".", "").isalnum() and ": " in text
        return f"{path}.{text}" if names_field else f"{path}: {text}"
    words = _WORDS.get(first["type"], "does not fit: " + first["msg"])
    given = first["input"]
    # Records of a data frame hold rows of patients.
    of_rows = isinstance(given, list | tuple) and any(isinstance(each, Mapping) for each in given)
    value_text = f"a list of {counted(len(given), 'group')} of keys" if of_rows else as_yaml(given)
    return f"{path}: {value_text} {words.format(**first.get('ctx', {}))}"


def _is_branch(part: Any) -> bool:
    branches = ("literal[", "function-", "constrained-", "tuple[")
    return isinstance(part, str) and (part.startswith(branches) or part in ("int", "float", "str"))


def _keys_at(kind: Any, path: Sequence[Any]) -> list[str]:
    model = kind
    for part in path:
        if isinstance(part, str) and hasattr(model, "model_fields"):
            model = next((f.annotation for n, f in model.model_fields.items() if part in (n, f.alias)), None)
            model = next((choice for choice in get_args(model) if hasattr(choice, "model_fields")), model)
    fields = getattr(model, "model_fields", {})
    return [field.alias or name for name, field in fields.items()]
