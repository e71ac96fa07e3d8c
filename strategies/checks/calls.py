"""Checks of strategies' calls to client programs, and of the programs' replies.

Each raises :class:`Invalid` naming the value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

import numpy as np

from raysim.strategies.checks.answers import check_cohort
from raysim.strategies.checks.values import (
    as_array,
    check_choice,
    check_count,
    check_kind,
    check_mapping,
    check_number,
    short_form,
)
from raysim.strategies.fields import Invalid
from raysim.strategies.programs import Added, Array, Bound, Call, Keep, Program, Reply, Send, TrainLocally

MOST_BYTES = 2**31
"""The largest number of bytes that one hospital may receive in a call, or send in one array."""

SUM_BYTES = 8
"""The number of bytes of each number that a hospital sends in reply to a call of a client program."""

ROOM = 62
"""The number of bits for the magnitude of a sum in 64 bits; the other two are for rounding and for the sign."""


def check_call(call: Any, sizes: Array) -> None:
    """Raise :class:`Invalid` unless hospitals with ``sizes [N]`` training rows can answer ``call``."""
    if isinstance(call, TrainLocally):
        return
    if not isinstance(call, Call):
        raise Invalid(f"round: yields {short_form(call)}; yield a Call")
    program = call.program
    if not isinstance(program, Program):
        raise Invalid(f"program: {short_form(program)} is not a Program; derive its class from raysim.Program")
    if not isinstance(program.name, str) or not program.name:
        raise Invalid(f"program: {type(program).__name__} has no name; give its class a name")
    where = f"program '{program.name}'"
    check_cohort(call.ids, len(sizes))
    for field, named in (("sends", program.sends), ("keeps", program.keeps)):
        check_mapping(f"{where}: {field}", named)
    for field, named in (("received", call.received), ("each_of", call.each_of)):
        check_mapping(f"{where}: {field}", named)
    if not program.sends and not program.keeps:
        raise Invalid(
            f"{where}: it sends nothing and keeps nothing, so its result would be lost; declare what it sends"
        )
    if program.validates and program.sends:
        raise Invalid(
            f"{where}: it reads validation rows and must therefore send nothing; leave validates or sends out"
        )
    rows = int(sizes[call.ids].sum() if (call.ids >= 0).all() else sizes.sum())
    for name, send in program.sends.items():
        _check_send(f"{where}: {name}", send, rows if getattr(send, "by", "") == "row" else len(call.ids))
    _check_joint(where, program)
    for name, keep in program.keeps.items():
        check_kind(f"{where}: {name}", keep, Keep)
        _check_shape(f"{where}: {name}", _of_rows(keep.shape, 0))
        _check_dtype(f"{where}: {name}.dtype", keep.dtype)
    size = 0
    for name, value in [*call.received.items(), *call.each_of.items()]:
        try:
            array = as_array(name, value)
        except Invalid:
            field = "each_of" if name in call.each_of else "received"
            raise Invalid(f"{where}: {field}['{name}'] is {short_form(value)}; send numbers") from None
        if name in call.each_of and array.shape[:1] != (len(call.ids),):
            raise Invalid(
                f"{where}: each_of '{name}' has shape {list(array.shape)}; its first length must be {len(call.ids)}, "
                "the number of hospitals in ids"
            )
        size += array.nbytes // (len(call.ids) or 1) if name in call.each_of else array.nbytes
    if size > MOST_BYTES:
        raise Invalid(f"{where}: each hospital receives {size} bytes, more than the limit of {MOST_BYTES}; send less")


def _check_send(field: str, send: Any, terms: int) -> None:
    check_kind(field, send, Send)
    _check_shape(field, send.shape)
    check_choice(f"{field}.how", send.how, ("summed", "each"))
    check_choice(f"{field}.by", send.by, ("hospital", "row"))
    check_count(f"{field}.groups", send.groups, least=1)
    check_count(f"{field}.bits", send.bits)
    check_kind(f"{field}.kind", send.kind, str)
    if (size := SUM_BYTES * send.groups * math.prod(send.shape)) > MOST_BYTES:
        raise Invalid(f"{field}.shape: {size} bytes are more than the limit of {MOST_BYTES}; send less")
    if send.largest is not None:
        check_number(f"{field}.largest", send.largest, above=True)
    if send.how == "each" and send.groups > 1:
        raise Invalid(f"{field}.groups: needs how: 'summed', not how: 'each'; leave groups out")
    if send.how == "summed" and send.undefined:
        raise Invalid(f"{field}.undefined: a sum cannot have undefined entries; set how: each, or leave undefined out")
    if send.bound is not None:
        check_kind(f"{field}.bound", send.bound, Bound)
        check_choice(f"{field}.bound.unit", send.bound.unit, ("row", "patient", "hospital"))
        if not send.bound.l2 > 0:
            raise Invalid(f"{field}.bound.l2: {short_form(send.bound.l2)} is not a number above 0")
        if (send.by == "row") != (send.bound.unit != "hospital") or (send.how == "each" and send.by != "row"):
            needed = "by: 'hospital' and how: 'summed'" if send.bound.unit == "hospital" else "by: 'row'"
            raise Invalid(
                f"{field}.bound.unit: '{send.bound.unit}' does not fit by: '{send.by}' and how: '{send.how}'; set "
                f"{needed}, or choose another unit"
            )
    most = send.largest if send.bound is None else send.bound.l2
    if send.how == "summed" and most is not None and not 0 < most <= largest(send, terms):
        raise Invalid(
            f"{field}.{'largest' if send.bound is None else 'bound.l2'}: with {most:g} a sum of {terms} terms, stored "
            f"in 64 bits in steps of 2^-{send.bits}, can overflow; give at most {largest(send, terms):g}, or fewer bits"
        )


def _check_joint(where: str, program: Program) -> None:
    first: dict[str, str] = {}
    for name, send in program.sends.items():
        if not send.joint:
            continue
        other = program.sends[first.setdefault(send.joint, name)]
        if send.bound is None or (send.bound, send.by) != (other.bound, other.by):
            raise Invalid(
                f"{where}: {name}.joint: all arrays with joint '{send.joint}' are clipped as one vector; give each of "
                "them the same bound and the same by"
            )


def _check_dtype(field: str, dtype: Any) -> None:
    try:
        fits = np.dtype(dtype).kind in "biuf"
    except TypeError:
        fits = False
    if not fits:
        raise Invalid(f"{field}: {short_form(dtype)} is not a type of numbers; write f8, for example")


def _check_shape(field: str, shape: Any) -> None:
    if not isinstance(shape, tuple) or not all(isinstance(length, int) and length >= 0 for length in shape):
        raise Invalid(f"{field}.shape: {short_form(shape)} is not a tuple of lengths; write for example (3,)")


def largest(send: Send, terms: int) -> float:
    """Return the limit below which the magnitude of each entry must be, or a sum of ``terms`` arrays could overflow."""
    return 2.0 ** (ROOM - send.bits) / max(terms, 1)


def check_reply(reply: Any, program: Program, rows: int, terms: Mapping[str, int]) -> None:
    """Raise :class:`Invalid` if a hospital's reply differs from the program's declaration or has numbers that are too
    large.

    ``rows`` is the hospital's number of rows. ``terms`` has the number of terms in the sum of each array.
    """
    sends = _checked_sends(reply, program, rows, finite=False)
    check_stored(reply.memory, program, rows)
    groups = max((send.groups for send in sends.values()), default=1)
    if not isinstance(reply.group, Integral) or not 0 <= int(reply.group) < groups:
        raise Invalid(
            f"group: {short_form(reply.group)} is not the number of a sum; sums are numbered 0 to {groups - 1}"
        )
    for name, send in sends.items():
        array = np.asarray(reply.sent[name])
        if send.undefined:
            if np.isinf(array).any():
                raise Invalid(f"{name}: has an infinite entry; use NaN for undefined values")
            array = array[~np.isnan(array)]
        if send.bound is not None:
            continue
        bound = send.largest
        if bound is None:
            bound = np.inf if send.how == "each" else largest(send, terms[name])
        if array.size and not (most := float(np.abs(array).max())) < bound:
            if not np.isfinite(array).all():
                raise Invalid(f"{name}: has an entry that is not finite; send finite numbers")
            limit = "'largest' in its Send" if send.largest else "a sum of 64 bits"
            raise Invalid(
                f"{name}: an entry has the magnitude {most:g}, but {limit} allows only magnitudes below {bound:g}; "
                "send smaller numbers"
            )


def check_sent(reply: Any, program: Program, rows: int, *, finite: bool) -> None:
    """Raise :class:`Invalid` for a reply with names or shapes that differ from the program's declaration; with
    ``finite``, also for numbers that are not finite."""
    _checked_sends(reply, program, rows, finite=finite)
    check_stored(reply.memory, program, rows, finite=finite)


def _checked_sends(reply: Any, program: Program, rows: int, *, finite: bool) -> Mapping[str, Send]:
    """Check that ``reply`` fits what the program declares in ``sends``, and return this declaration."""
    if not isinstance(reply, Reply):
        raise Invalid(f"run: returns {short_form(reply)}; return a Reply")
    sends = program.sends
    check_mapping("sent", reply.sent)
    _check_names("sends", reply.sent, sends, complete=True)
    for name, send in sends.items():
        array = _checked_array(name, reply.sent[name], (rows, *send.shape) if send.by == "row" else send.shape)
        if finite and not np.isfinite(array).all():
            raise Invalid(f"{name}: has an entry that is not finite; send finite numbers")
    return sends


def check_stored(memory: Mapping[str, Any], program: Program, rows: int, *, finite: bool = True) -> None:
    """Raise :class:`Invalid` if a program returns arrays to store that it does not declare, or with other shapes than
    it declares; with ``finite``, also for numbers that are not finite."""
    check_mapping("memory", memory)
    _check_names("keeps", memory, program.keeps if program.remembers else {}, complete=False)
    for name, value in memory.items():
        array = _checked_array(name, value, _of_rows(program.keeps[name].shape, rows))
        if finite and array.dtype.kind == "f" and not np.isfinite(array).all():
            raise Invalid(f"{name}: a stored value is not finite; store finite numbers")


def check_added(added: Any, program: Program, hospitals: int, terms: Mapping[str, int]) -> None:
    """Raise :class:`Invalid` if sums are too large, include more than ``hospitals`` hospitals, or differ from the
    program's declaration."""
    if not isinstance(added, Added) or not 0 <= added.hospitals <= hospitals:
        raise Invalid(
            f"run_added: returns {short_form(added)}; return an Added with sums of at most {hospitals} hospitals"
        )
    check_mapping("sums", added.sums)
    _check_names("sends", added.sums, program.sends, complete=True)
    for name, send in program.sends.items():
        array = _checked_array(name, added.sums[name], send.shape)
        most = (largest(send, terms[name]) if send.largest is None else send.largest) * max(added.hospitals, 1)
        if array.size and not float(np.abs(array).max()) < most:
            raise Invalid(
                f"{name}: has a sum that is too large for {added.hospitals} hospitals; return sums below {most:g}"
            )


def _of_rows(shape: tuple[Any, ...], rows: int) -> tuple[int, ...]:
    if "n" not in shape:
        return shape
    return tuple(rows if length == "n" else length for length in shape)


def check_memory(memory: Mapping[str, Array], program: Program, rows: int) -> None:
    """Raise :class:`Invalid` if an array that a hospital stored earlier has another shape than the program declares."""
    for name, keep in program.keeps.items():
        if name in memory:
            _checked_array(name, memory[name], _of_rows(keep.shape, rows))


def _check_names(what: str, names: Iterable[str], declared: Mapping[str, Any], *, complete: bool) -> None:
    for name in names:
        if name not in declared:
            raise Invalid(
                f"{name}: is not declared in {what} ({', '.join(declared) or 'nothing'}); declare or remove it"
            )
    for name in declared if complete else ():
        if name not in names:
            raise Invalid(
                f"{name}: is declared in {what}, but the program did not return it; return it, or do not declare it"
            )


def _checked_array(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    array = as_array(name, value)
    if array.shape != shape:
        raise Invalid(f"{name}: has shape {list(array.shape)} but {list(shape)} is declared")
    return array
