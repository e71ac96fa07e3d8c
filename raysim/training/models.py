"""The construction of a model from the name or class of its family."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

from raysim.core import registry
from raysim.core.errors import ConfigError, nearest
from raysim.training.base import Model
from raysim.training.size import check_size

INITS = ("default", "zeros")
PRECISIONS = ("float32", "float64")


def build_model(
    family: str | type[Any],
    n_features: int,
    n_classes: int,
    *,
    options: dict[str, Any],
    init: str = "default",
    device: str = "cpu",
    precision: str = "float32",
    levels: Callable[[], tuple[int, ...]] | None = None,
) -> Model:
    """Build the model for ``n_features`` (F) and ``n_classes`` (C), in ``precision`` on ``device`` (``cpu``,
    ``cuda[:k]``).

    - ``family``: a registered name, the import path ``my_module.Net`` of a class, or a class. A family is a dataclass
      whose fields are its options, and whose ``bind(F, C, init=, device=, precision=)`` returns a ``Model``. A
      ``torch.nn.Module`` is constructed as ``cls(F, C, **options)``.
    - ``n_classes``: 0 means that the label is a real number. A module then has one output, and a family must have
      ``regression`` among its ``labels``.
    - ``levels()``: a function that returns the number of categories of each feature, 0 for a numeric feature; None
      means that all are numeric. Only families that use columns without preprocessing (attribute ``raw``) receive these
      numbers.
    - ``init``: ``default`` is the family's own initialisation, ``zeros`` sets all parameters to 0.

    Raises ``ConfigError`` for an unusable configuration, and ``ResourceError`` for a model that is too large for this
    machine.
    """
    if n_features < 1:
        raise ConfigError(f"n_features: {n_features!r} is not at least 1")
    if n_classes < 2 and n_classes != 0:
        raise ConfigError(f"n_classes: {n_classes!r} is not at least 2, nor 0 for a real-valued label")
    for field, name, allowed in (("model.init", init, INITS), ("run.precision", precision, PRECISIONS)):
        if name not in allowed:
            raise ConfigError(f"{field}: {name!r} is not a known name; {nearest(name, allowed)}")
    cls = find_family(family) if isinstance(family, str) else family
    if hasattr(cls, "bind"):
        check_label(cls, family if isinstance(family, str) else cls.__qualname__, n_classes)
        columns = {"levels": (0,) * n_features if levels is None else levels()} if takes_raw(cls) else {}
        bound: Model = configured(cls, options).bind(
            n_features, n_classes, init=init, device=device, precision=precision, **columns
        )
        check_size(bound.layout.size, options)
        return bound
    # A module's class exists only if torch has been imported, so this check need not import it.
    if "torch" in sys.modules and issubclass(cls, sys.modules["torch"].nn.Module):
        from raysim.training.kernels.modules.generic import bind_module

        return bind_module(cls, n_features, n_classes, options=options, init=init, device=device, precision=precision)
    raise ConfigError(
        f"model: {cls.__qualname__} is neither a torch.nn.Module nor a model class with the method 'bind'"
    )


def takes_raw(cls: type[Any]) -> bool:
    """Return whether models of a family use columns without preprocessing."""
    return bool(getattr(cls, "raw", False))


def check_label(cls: type[Any], name: str, n_classes: int) -> None:
    """Raise ``ConfigError`` if the family ``cls`` does not predict labels with ``n_classes`` classes (0: a real-valued
    label).

    The attribute ``labels`` lists ``classification``, ``regression`` or both. A family without it predicts classes.
    """
    predicts = getattr(cls, "labels", ("classification",))
    if n_classes and "classification" not in predicts:
        raise ConfigError(
            f"model.name: '{name}' predicts a number, but this label has {n_classes} classes; use another model"
        )
    if not n_classes and "regression" not in predicts:
        raise ConfigError(
            f"model.name: '{name}' predicts classes, but this label is a number; use linear_regression, mlp or a module"
        )


def find_family(name: str, where: str = "model") -> type[Any]:
    """Return the class that is registered as ``name`` or, if ``name`` has a dot, the class at that import path.

    Raises ``ConfigError`` if there is no such class; ``where`` is the configuration section that the error names.
    """
    cls = registry.load_class(name, f"{where}.class") if "." in name else registry.load("models", name, f"{where}.name")
    if not isinstance(cls, type):
        raise ConfigError(f"{where}: '{name}' is not a class")
    return cls


def configured(cls: type[Any], options: dict[str, Any], where: str = "model") -> Any:
    """Return ``cls(**options)``. Raises ``ConfigError`` naming ``<where>.<option>`` if an option is unusable."""
    takes = [field.name for field in dataclasses.fields(cls)]
    for option in options:
        if option not in takes:
            remedy = nearest(option, takes) if takes else f"{cls.__qualname__} has no options"
            raise ConfigError(f"{where}.{option}: is not an option of {cls.__qualname__}; {remedy}")
    try:
        return cls(**options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}.{error}") from error
