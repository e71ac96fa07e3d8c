"""Convert a run's state to plain arrays and JSON for a checkpoint, and back.

All content of a checkpoint is checked, and none of it is executed, because it may come from anybody.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from raysim.config.checking import validated
from raysim.core.errors import ConfigError
from raysim.engine.job import Round
from raysim.engine.measuring.losses import TrainingLosses
from raysim.engine.measuring.stopping import Stopping
from raysim.engine.packing import Arrays, pack, pack_memory, pack_state, unpack, unpack_state
from raysim.engine.run_state import History, RunState
from raysim.storage.file_store import reason
from raysim.strategies.base import Ids, Strategy
from raysim.traffic.ledger import Entry, Ledger
from raysim.virtual_time.clock import Clock, checked

FORMAT = 12
"""The number of the checkpoint format; other formats are refused."""

UNREADABLE = (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError, MemoryError)
"""Exceptions that may arise when raysim reads a file that it did not write."""


class Damaged(ValueError):
    """Raised for a checkpoint that cannot be used."""


def check_format(content: bytes, location: str) -> None:
    """Raise ``ConfigError`` if a checkpoint at ``location`` has another format than :data:`FORMAT`, and
    :class:`Damaged` if its header cannot be read.
    """
    try:
        found = _header(content)["format"]
    except UNREADABLE as error:
        raise Damaged(reason(error)) from None
    if found != FORMAT:
        raise ConfigError(
            f"checkpoint: {location} was written by another version of raysim (its format is {found!r:.50}, and this "
            f"version reads {FORMAT}); finish the run with that version, or start a new run in another folder"
        )


def encode(run_state: RunState, fingerprint: str, strategy: Strategy) -> bytes:
    """Return the content of a checkpoint of a run of ``strategy``."""
    from safetensors.numpy import save

    arrays: Arrays = {}
    header = {
        "format": FORMAT,
        "fingerprint": fingerprint,
        "round": run_state.round,
        "state": pack_state(run_state.state, arrays, strategy),
        "memory": pack_memory(run_state.memory, arrays),
        "kept": pack(run_state.states, "kept", arrays),
        "clock": pack(run_state.clock, "clock", arrays, typed=True),
        "stopping": None if run_state.stopping is None else run_state.stopping.packed(),
        "best": _pack_best(run_state.best, arrays, strategy),
    }
    if run_state.attacks is not None:
        header["attacks"] = pack(run_state.attacks, "attacks", arrays)
    if run_state.guarantee is not None:
        header["reception"] = pack(run_state.guarantee, "reception", arrays)
    if (history := run_state.history) is not None:
        header |= {
            "seconds": history.seconds,
            "setup_down": history.setup_down,
            "models_held": history.models_held.tolist(),
            "losses": dataclasses.asdict(history.losses),
            "rounds": [vars(row) for row in history.rounds],
            "ledger": pack_ledger(history.ledger, arrays),
            "cohorts": pack(history.cohorts, "cohorts", arrays),
        }
    return save(arrays, {"raysim": json.dumps(header)})


def decode(content: bytes, strategy: Strategy) -> tuple[RunState, str]:
    """Return the run's state from the content of a checkpoint in this version's format, and the fingerprint of the
    run's settings.

    Raises :class:`Damaged`.
    """
    try:
        arrays, header = read_tensors(content)
        run_state = RunState(
            round=_count(header["round"], "round"),
            state=unpack_state(header["state"], arrays, strategy),
            states=unpack(header["kept"], arrays),
            memory=unpack(header["memory"], arrays),
            history=_history(header, arrays) if "rounds" in header else None,
            clock=checked(unpack(header["clock"], arrays, Clock)),
            attacks=unpack(header.get("attacks"), arrays),
            stopping=None if header["stopping"] is None else Stopping.unpacked(header["stopping"]),
            guarantee=unpack(header.get("reception"), arrays),
            best=_unpack_best(header["best"], arrays, strategy),
        )
        return run_state, header["fingerprint"]
    except (ConfigError, *UNREADABLE) as error:
        raise Damaged(reason(error)) from None


def _history(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> History:
    held = np.array(header["models_held"], dtype=np.int64)
    rounds = validated(list[Round], header["rounds"], "rounds")
    cohorts: list[Ids | None] = unpack(header["cohorts"], arrays)
    if not all(ids is None or ids.dtype.kind == "i" for ids in cohorts):
        raise Damaged("its cohorts are not arrays of hospital ids")
    if held.ndim != 1 or [row.round for row in rounds] != list(range(1, len(rounds) + 1)):
        raise Damaged("its rounds do not ascend from 1, or its hospitals are not a list")
    if len(rounds) != header["round"]:
        raise Damaged(f"its header says round {header['round']}, but it has the results of {len(rounds)} rounds")
    ledger = unpack_ledger(header["ledger"], arrays, len(held))
    _check_ledger(ledger, rounds, len(held))
    return History(
        rounds=rounds,
        ledger=ledger,
        seconds=float(header["seconds"]),
        setup_down=_count(header["setup_down"], "setup_down"),
        models_held=held,
        losses=TrainingLosses(**header["losses"]),
        cohorts=cohorts,
    )


def _check_ledger(ledger: Ledger, rounds: Sequence[Round], hospitals: int) -> None:
    """Raise :class:`Damaged` if the traffic ledger disagrees with the bytes sent in ``rounds``, or lacks the messages
    of the kind ``size``, which all hospitals send before the first round.

    The check is needed because a run's privacy cost is computed from the ledger.
    """
    sent = ledger.sent_by_round()
    late = max(sent, default=0) - max((row.round for row in rounds), default=0)
    if late > 0:
        raise Damaged(f"its ledger goes {late} rounds beyond the checkpoint's last round")
    for row in rounds:
        if sent.get(row.round, 0) != row.bytes_up:
            raise Damaged(
                f"its ledger has {sent.get(row.round, 0)} bytes of round {row.round}, in which {row.bytes_up} were sent"
            )
    if not any(
        entry.kind == "size" and len(entry.hospitals) == hospitals for entry in ledger.entries if entry.round == 0
    ):
        raise Damaged("its ledger lacks what hospitals sent before the first round")


def _count(value: Any, name: str, most: int = 2**62) -> int:
    """Return ``value``. Raises :class:`Damaged`, with ``name`` in the message, if it is not a whole number from 0 to
    ``most``.
    """
    if type(value) is not int or not 0 <= value <= most:
        raise Damaged(f"its {name} is {value!r:.50}, which is not a whole number from 0 to {most}")
    return value


def read_tensors(content: bytes) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays of a safetensors file, and raysim's JSON from its header. Raises one of :data:`UNREADABLE` if
    the file is damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        # Copies: they are aligned and writable, as in a run that never stopped.
        arrays = {name: array.copy() for name, array in load(content).items()}
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    for name, array in arrays.items():
        # An empty array may claim any number of rows, for which lists would be allocated.
        if not array.size and math.prod(extent for extent in array.shape if extent) > len(content):
            raise ValueError(f"its empty array {name!r:.50} has the shape {list(array.shape)}, too large for this file")
    return arrays, _header(content)


def _header(content: bytes) -> dict[str, Any]:
    length = int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["raysim"])
    return header


BEST = "best/"


def _pack_best(best: RunState | None, arrays: Arrays, strategy: Strategy) -> dict[str, Any] | None:
    if best is None:
        return None
    packed: Arrays = {}
    state, memory = pack_state(best.state, packed, strategy), pack(best.states, "kept", packed)
    arrays |= {f"{BEST}{name}": array for name, array in packed.items()}
    return {"round": best.round, "state": state, "kept": memory}


def _unpack_best(tree: Mapping[str, Any] | None, arrays: Mapping[str, Any], strategy: Strategy) -> RunState | None:
    if tree is None:
        return None
    packed = {name.removeprefix(BEST): array for name, array in arrays.items() if name.startswith(BEST)}
    state, memory = unpack_state(tree["state"], packed, strategy), unpack(tree["kept"], packed)
    return RunState(_count(tree["round"], "best round"), state, memory)


def pack_ledger(ledger: Ledger, arrays: Arrays) -> list[list[Any]]:
    """Add a traffic ledger to ``arrays``, and return its entries as ``[round, kind, hospitals, all, bytes, program]``.

    ``hospitals`` is the number of hospitals that sent the message. ``all`` is true if their ids are 0, 1, ... in order.
    ``bytes`` is what each hospital sent, or None if hospitals sent different numbers. All other ids and numbers of
    bytes are in the array ``ledger``.
    """
    rows, lists = [], [np.empty(0, dtype=np.int64)]
    for round, kind, hospitals, sent, program in ledger.entries:
        everyone = np.array_equal(hospitals, np.arange(len(hospitals)))
        same = len(sent) > 0 and bool((sent == sent[0]).all())
        rows.append([round, kind, len(hospitals), everyone, int(sent[0]) if same else None, program])
        lists += [array for array, needed in ((hospitals, not everyone), (sent, not same)) if needed]
    arrays["ledger"] = np.concatenate(lists)
    return rows


def unpack_ledger(rows: Sequence[Sequence[Any]], arrays: Mapping[str, Any], hospitals_in_all: int) -> Ledger:
    """Restore the ledger that :func:`pack_ledger` stored. Raises :class:`Damaged` for a wrong type or too many
    hospitals.
    """
    ledger, rest = Ledger(), arrays["ledger"]
    for round, kind, count, everyone, same, program in rows:
        # Checked before it is allocated.
        _count(count, "number of hospitals in a ledger entry", hospitals_in_all)
        if type(round) is not int or type(kind) is not str or type(program) is not str:
            described = f"round {round!r:.50}, kind {kind!r:.50} and program {program!r:.50}"
            raise Damaged(f"its ledger has an entry of a wrong type: {described}")
        hospitals = np.arange(count)
        if not everyone:
            hospitals, rest = rest[:count], rest[count:]
        sent = np.full(count, same if same is not None else 0, dtype=np.int64)
        if same is None:
            sent, rest = rest[:count], rest[count:]
        ledger.entries.append(Entry(round, kind, hospitals, sent, program))
    return ledger
