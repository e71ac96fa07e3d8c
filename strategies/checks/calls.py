"""Checks of calls of client programs and of programs' replies.

Each check raises :class:`Invalid`; its message begins with the name of the invalid value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from raysim.strategies.checks.answers import check_cohort
from raysim.strategies.checks.values import check_choice, check_count, check_kind, shown
from raysim.strategies.fields import Invalid
from raysim.strategies.programs import Added, Array, Bound, Call, Keep, Program, Reply, Send, TrainLocally

MOST_RECEIVED = 2**31
"""The largest number of bytes that a call may send to a hospital."""

ROOM = 62
"""The bits of a sum's integers; one more bit is reserved for rounding, and one is the sign."""


def check_call(call: Any, sizes: Array) -> None:
    """Raise :class:`Invalid` for anything but a call that hospitals with ``sizes [N]`` training rows can answer."""
    if isinstance(call, TrainLocally):
        return
    if not isinstance(call, Call):
        raise Invalid(f"round: yields {shown(call)}; yield a Call")
    program = call.program
    if not isinstance(program, Program):
        raise Invalid(f"program: {shown(program)} is not a Program; derive its class from raysim.Program")
    if not isinstance(program.name, str) or not program.name:
        raise Invalid(f"program: {type(program).__name__} has no name; give its class a name")
    where = f"program '{program.name}'"
    check_cohort(call.ids, len(sizes))
    if not program.sends and not program.keeps:
        raise Invalid(
            f"{where}: it sends nothing and keeps nothing, so its result would be lost; declare what it sends"
        )
    rows = int(sizes[call.ids].sum() if (call.ids >= 0).all() else sizes.sum())
    for name, send in program.sends.items():
        _check_send(f"{where}: {name}", send, rows if getattr(send, "by", "") == "row" else len(call.ids))
    _check_joint(where, program)
    for name, keep in program.keeps.items():
        check_kind(f"{where}: {name}", keep, Keep)
        _check_shape(f"{where}: {name}", _of_rows(keep.shape, 0))
    size = 0
    for name, value in [*call.received.items(), *call.each_of.items()]:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise Invalid(f"{where}: received '{name}' is {shown(value)}; send numbers")
        if name in call.each_of and array.shape[:1] != (len(call.ids),):
            raise Invalid(f"{where}: each_of '{name}' has shape {list(array.shape)} for {len(call.ids)} hospitals")
        size += array.nbytes // (len(call.ids) or 1) if name in call.each_of else array.nbytes
    if size > MOST_RECEIVED:
        raise Invalid(
            f"{where}: each hospital receives {size} bytes, more than the limit of {MOST_RECEIVED}; send less"
        )


def _check_send(field: str, send: Any, terms: int) -> None:
    check_kind(field, send, Send)
    _check_shape(field, send.shape)
    check_choice(f"{field}.how", send.how, ("summed", "each"))
    check_choice(f"{field}.by", send.by, ("hospital", "row"))
    check_count(f"{field}.groups", send.groups, least=1)
    check_count(f"{field}.bits", send.bits)
    if send.how == "each" and send.groups > 1:
        raise Invalid(f"{field}: groups are for sums, and how is each; leave groups out")
    if send.how == "summed" and send.undefined:
        raise Invalid(f"{field}.undefined: a sum cannot have undefined entries; set how: each, or leave undefined out")
    if send.bound is not None:
        check_kind(f"{field}.bound", send.bound, Bound)
        check_choice(f"{field}.bound.unit", send.bound.unit, ("row", "patient", "hospital"))
        if not send.bound.l2 > 0:
            raise Invalid(f"{field}.bound.l2: {shown(send.bound.l2)} is not a length above 0")
        if (send.by == "row") != (send.bound.unit != "hospital") or (send.how == "each" and send.by != "row"):
            raise Invalid(f"{field}.bound: {send.bound.unit} does not fit a send by {send.by}, {send.how}")
    most = send.largest if send.bound is None else send.bound.l2
    if send.how == "summed" and most is not None and not 0 < most <= largest(send, terms):
        raise Invalid(
            f"{field}.{'largest' if send.bound is None else 'bound.l2'}: {most:g} for {terms} terms on a grid of "
            f"2^-{send.bits} is more than a sum of 64 bits can hold; give at most {largest(send, terms):g}, or fewer "
            "bits"
        )


def _check_joint(where: str, program: Program) -> None:
    """Raise :class:`Invalid` for ``joint`` arrays whose bounds differ."""
    first: dict[str, str] = {}
    for name, send in program.sends.items():
        if not send.joint:
            continue
        other = program.sends[first.setdefault(send.joint, name)]
        if send.bound is None or (send.bound, send.by) != (other.bound, other.by):
            raise Invalid(
                f"{where}: {name}.joint: '{send.joint}' shortens it with '{first[send.joint]}', which needs the same "
                "bound of both; give it to both"
            )


def _check_shape(field: str, shape: Any) -> None:
    if not isinstance(shape, tuple) or not all(isinstance(length, int) and length >= 0 for length in shape):
        raise Invalid(f"{field}.shape: {shown(shape)} is not a tuple of lengths")


def largest(send: Send, terms: int) -> float:
    """Return the limit of the magnitude of each of ``terms`` entries so that their sum fits its integers."""
    return 2.0 ** (ROOM - send.bits) / max(terms, 1)


def check_reply(reply: Any, program: Program, rows: int, terms: Mapping[str, int]) -> None:
    """Raise :class:`Invalid` for a reply of a hospital with ``rows`` rows that differs from the program's declaration.

    ``terms``: the number of terms of each sum, by name.
    """
    check_sent(reply, program, rows, finite=False)
    sends = program.sends  # a program may compute it at each access
    check_kept(reply.memory, program, rows)
    groups = max((send.groups for send in sends.values()), default=1)
    if not 0 <= reply.group < groups:
        raise Invalid(f"group: {shown(reply.group)} is not the number of a sum; they are 0 to {groups - 1}")
    for name, send in sends.items():
        array = np.asarray(reply.sent[name])
        if send.undefined and np.isinf(array).any():
            raise Invalid(f"{name}: it is infinite; NaN stands for what is undefined")
        if send.bound is not None or send.undefined:
            continue
        bound = np.inf if send.how == "each" else largest(send, terms[name]) if send.largest is None else send.largest
        if array.size and not (most := float(np.abs(array).max())) < bound:
            if not np.isfinite(array).all():
                raise Invalid(f"{name}: it is not finite")
            raise Invalid(
                f"{name}: an entry of {most:g} is not below {bound:g}, the largest value that is declared "
                "or fits in a sum"
            )


def check_sent(reply: Any, program: Program, rows: int, *, finite: bool) -> None:
    """Raise :class:`Invalid` for a reply whose names or shapes differ from the declaration.

    Raises it also for a value that must be ``finite`` and is not.
    """
    if not isinstance(reply, Reply):
        raise Invalid(f"run: returns {shown(reply)}; return a Reply")
    sends = program.sends  # a program may compute it at each access
    _check_names("sends", reply.sent, sends, complete=True)
    check_kept(reply.memory, program, rows, finite=finite)
    for name, send in sends.items():
        array = np.asarray(reply.sent[name])
        _check_array(name, array, (rows, *send.shape) if send.by == "row" else send.shape)
        if finite and not np.isfinite(array).all():
            raise Invalid(f"{name}: it is not finite")


def check_kept(memory: Mapping[str, Any], program: Program, rows: int, *, finite: bool = True) -> None:
    """Raise :class:`Invalid` if a hospital with ``rows`` rows stores arrays that differ from the declaration."""
    _check_names("keeps", memory, program.keeps if program.remembers else {}, complete=False)
    for name, value in memory.items():
        _check_array(name, np.asarray(value), _of_rows(program.keeps[name].shape, rows))
        if finite and np.asarray(value).dtype.kind == "f" and not np.isfinite(value).all():
            raise Invalid(f"{name}: a stored value is not finite")


def check_added(added: Any, program: Program, hospitals: int, terms: Mapping[str, int]) -> None:
    """Raise :class:`Invalid` for sums of ``hospitals`` hospitals that are not the declared ones, or too large."""
    if not isinstance(added, Added) or not 0 <= added.hospitals <= hospitals:
        raise Invalid(f"run_added: returns {shown(added)}; return Added sums of {hospitals} hospitals")
    _check_names("sends", added.sums, program.sends, complete=True)
    for name, send in program.sends.items():
        array = np.asarray(added.sums[name])
        _check_array(name, array, send.shape)
        most = (largest(send, terms[name]) if send.largest is None else send.largest) * max(added.hospitals, 1)
        if array.size and not float(np.abs(array).max()) < most:
            raise Invalid(f"{name}: the sum of {added.hospitals} hospitals is not below {most:g}")


def _of_rows(shape: tuple[Any, ...], rows: int) -> tuple[int, ...]:
    if "n" not in shape:
        return shape
    return tuple(rows if length == "n" else length for length in shape)


def check_memory(memory: Mapping[str, Array], program: Program, rows: int) -> None:
    """Raise :class:`Invalid` for a stored array of a hospital with ``rows`` rows whose shape ``program`` does not
    declare."""
    for name, keep in program.keeps.items():
        if name in memory:
            _check_array(name, memory[name], _of_rows(keep.shape, rows))


def _check_names(what: str, names: Iterable[str], declared: Mapping[str, Any], *, complete: bool) -> None:
    for name in names:
        if name not in declared:
            raise Invalid(f"{name}: not declared; {what} names {', '.join(declared) or 'nothing'}")
    for name in declared if complete else ():
        if name not in names:
            raise Invalid(f"{name}: declared but not sent")


def _check_array(name: str, array: Array, shape: tuple[int, ...]) -> None:
    if array.dtype.kind not in "biuf":
        raise Invalid(f"{name}: holds {array.dtype}; give numbers")
    if array.shape != shape:
        raise Invalid(f"{name}: has shape {list(array.shape)} but {list(shape)} is declared")
