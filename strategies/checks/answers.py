"""Checks of what a strategy returns besides problems and calls. Each raises :class:`Invalid` naming the field."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, get_args

import numpy as np

from raysim.strategies.base import Asynchrony, Division, FederationView, State, Uncertainty
from raysim.strategies.checks.values import (
    INTEGERS,
    NUMBERS,
    TRUTHS,
    check_array,
    check_count,
    check_kind,
    check_rows,
    short_form,
)
from raysim.strategies.fields import Invalid
from raysim.strategies.problem import OWN, POOLED
from raysim.strategies.uncertainty import Effect


def check_state(state: Any, view: FederationView) -> None:
    """Raise :class:`Invalid` for a state whose models or clusters do not fit the federation."""
    if not isinstance(state, State):
        raise Invalid(f"state: {short_form(state)} is not a State; return one")
    models, size = state.models, len(view.initial)
    if not isinstance(models, np.ndarray) or models.dtype.kind != "f" or models.ndim != 2:
        raise Invalid(f"models: {short_form(models)} is not a float array [M, {size}]; give a row for each model")
    if not len(models):
        raise Invalid("models: has no rows; give at least row 0, the global model")
    if models.shape[1] != size:
        raise Invalid(
            f"models: the rows have {models.shape[1]} parameters; give each row the {size} parameters of a model"
        )
    if not np.isfinite(models).all():
        row = int(np.flatnonzero(~np.isfinite(models).all(axis=1))[0])
        raise Invalid(f"models: row {row} is not finite; take smaller steps at the server")
    if state.cluster is not None:
        check_array("cluster", state.cluster, INTEGERS, len(view.sizes), "hospitals")
        check_rows("cluster", state.cluster, len(models))


def check_cohort(ids: Any, hospitals: int) -> None:
    """Raise :class:`Invalid` unless ``ids`` are ascending ids among 0 to ``hospitals - 1``, or ``[POOLED]``."""
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in INTEGERS:
        raise Invalid(f"select: {short_form(ids)} is not an array of ids; return ascending ids, or [POOLED]")
    if not len(ids) or (len(ids) == 1 and ids[0] == POOLED):
        return
    outside = ids[(ids < 0) | (ids >= hospitals)]
    if len(outside):
        raise Invalid(f"select: {outside[0]} is not a hospital's id; give ids from 0 to {hospitals - 1}")
    if (ids[1:] <= ids[:-1]).any():
        raise Invalid(
            "select: the ids are not ascending, or contain duplicates; return ascending ids without duplicates"
        )


def check_serve(serve: Any, view: FederationView, models: int, groups: int | None) -> None:
    """Raise :class:`Invalid` unless ``serve`` maps names to arrays ``[N]`` or ``[N, groups]``, whose values are ``OWN``
    or row indices below ``models``."""
    if not isinstance(serve, Mapping) or not serve:
        raise Invalid(
            f"serve: {short_form(serve)} names no model; return "
            f"{{name: a row of state.models, or OWN, for each hospital}}"
        )
    hospitals = len(view.sizes)
    for name, rows in serve.items():
        field = f"serve.{name}"
        if isinstance(rows, np.ndarray) and rows.ndim == 2:
            if groups is None:
                raise Invalid(
                    f"{field}: has a column for each group of rows, but division returns None; define division, or "
                    "return one row of state.models for each hospital"
                )
            check_array(field, rows, INTEGERS, hospitals, "hospitals", columns=groups)
        else:
            check_array(field, rows, INTEGERS, hospitals, "hospitals")
        check_rows(field, rows, models, OWN)


def check_starts(starts: Any, size: int) -> None:
    """Raise :class:`Invalid` unless ``starts`` is a matrix whose rows are initial models of ``size`` parameters."""
    check_array("starts", starts, NUMBERS, len(starts) if isinstance(starts, np.ndarray) else 1, "models", columns=size)


def check_mixture(mixture: Any, hospitals: int, models: int) -> None:
    """Raise :class:`Invalid` unless ``mixture`` is None or has one weight for each hospital and model."""
    if mixture is not None:
        check_array("mixture", mixture, NUMBERS, hospitals, "hospitals", columns=models)


def check_private(private: Any, size: int) -> None:
    """Raise :class:`Invalid` unless ``private`` is None or has one truth value for each parameter."""
    if private is not None:
        check_array("private", private, TRUTHS, size, "parameters")


def check_asynchrony(asynchrony: Any) -> None:
    """Raise :class:`Invalid` if the concurrency or the buffer of asynchronous training is below one."""
    if asynchrony is not None:
        check_kind("asynchrony", asynchrony, Asynchrony)
        check_count("asynchrony.concurrency", asynchrony.concurrency, least=1)
        check_count("asynchrony.buffer", asynchrony.buffer, least=1)


def check_facts(facts: Any) -> None:
    """Raise :class:`Invalid` unless ``facts`` maps names to numbers."""
    if not isinstance(facts, Mapping) or not all(isinstance(name, str) for name in facts):
        raise Invalid(f"facts: {short_form(facts)} is not a mapping of names to numbers; return one, or {{}}")
    for name, value in facts.items():
        if not isinstance(value, Real):
            raise Invalid(f"facts.{name}: {short_form(value)} is not a number")


def check_uncertainty(uncertainty: Any, size: int) -> None:
    """Raise :class:`Invalid` unless ``uncertainty`` is None, or has a known ``effect`` and arrays of ``size``
    numbers."""
    if uncertainty is None:
        return
    check_kind("uncertainty", uncertainty, Uncertainty)
    if uncertainty.effect not in get_args(Effect):
        raise Invalid(
            f"uncertainty.effect: {short_form(uncertainty.effect)} is not one of {', '.join(get_args(Effect))}"
        )
    for field in dataclasses.fields(Uncertainty):
        values = getattr(uncertainty, field.name)
        if field.name == "effect":
            continue
        if not isinstance(values, np.ndarray) or values.shape != (size,) or values.dtype.kind != "f":
            raise Invalid(
                f"uncertainty.{field.name}: {short_form(values)} is not a float array [{size}]; give one number for "
                "each parameter"
            )


def check_division(division: Division | None) -> int | None:
    """Return the number of groups into which ``division`` divides rows; None if there is no division.

    Raises :class:`Invalid` if the number is below one.
    """
    if division is None:
        return None
    count = getattr(division, "count", None)
    if not isinstance(count, Integral) or count < 1:
        raise Invalid(f"division.count: {short_form(count)} is not a number of groups; give at least 1")
    return int(count)
