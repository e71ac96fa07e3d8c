"""Checkpoints of private runs that somebody has changed and signed again.

A change is refused in a line, or the checkpoint is passed over and the run ends as if it had not been there: no epsilon
is stated that is lower than what the run has cost.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.storage.tampered import (
    Change,
    Header,
    Run,
    Tensors,
    guaranteed,
    of,
    refused,
    removed,
    sign_again,
    unchanged_goes_on,
)

PUBLIC = ["size", "preprocessing", "metrics"]


def private(unit: str = "hospital", **keys: Any) -> dict[str, Any]:
    return {"privacy": {"unit": unit, "noise_multiplier": 2.0, "declared_public": PUBLIC, **keys}}


RUNS: dict[str, dict[str, Any]] = {
    "central": private(),
    "drawn": private() | {"selection": {"name": "poisson", "fraction": 0.5}},
    "adaptive": private(adaptive={"bits": 2.0}, clip=0.5),
    "signatures": private() | {"strategy": {"name": "chip", "clusters": 2}},
    "own": private(mode="local"),
    "patients": private("patient"),
    "steps": private("patient", mode="local") | {"selection": {"name": "uniform", "fraction": 0.5, "minimum": 2}},
}
"""What the runs have beside ``SMALL``."""


@pytest.mark.parametrize("name", RUNS)
def test_what_nobody_has_changed_goes_on(name: str, run: Run):
    unchanged_goes_on(run, name)


CLIP = of("reception", "guard", "clip")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (removed("reception"), "cannot be resumed"),
        (CLIP(math.nan), "its clip is nan"),
        (CLIP(-1.0), "its clip is -1"),
        (CLIP(0), "its clip is 0"),
        (CLIP(1e300), "its clip is 1e+300"),
        (CLIP("wide"), "cannot be resumed"),
        (lambda header, arrays: header.update(reception={"list": []}), "cannot be resumed"),
    ],
)
def test_a_clip_that_adapts(change: Change, words: str, run):
    run("adaptive")
    sign_again(change)
    refused(words)


def without(kind: str, rounds: range, instead: str | None = None) -> Change:
    """The ledger without what of ``kind`` was sent in ``rounds``, and rounds that say they sent so much less.

    ``instead``: as what it stands there then.
    """

    def change(header: Header, arrays: Tensors) -> None:
        rows, lists, head = [], arrays["ledger"], {row["round"]: row for row in header["rounds"]}
        rest = [np.empty(0, dtype=np.int64)]
        for row in header["ledger"]:
            t, entry_kind, count, everyone, same, _ = row
            needed = count * ((not everyone) + (same is None))
            entry_lists, lists = lists[:needed], lists[needed:]
            sent = entry_lists[-count:].sum() if same is None else count * same
            if entry_kind == kind and t in rounds:
                if instead is None:
                    if t:
                        head[t]["bytes_up"] -= int(sent)
                    continue
                row = [t, instead, *row[2:]]
            rows.append(row)
            rest.append(entry_lists)
        header["ledger"], arrays["ledger"] = rows, np.concatenate(rest)

    return change


def without_hospital(hospital: int) -> Change:
    """The ledger without a hospital's updates, and rounds that say so."""

    def change(header: Header, arrays: Tensors) -> None:
        rows, lists, head = [], arrays["ledger"], {row["round"]: row for row in header["rounds"]}
        rest = [np.empty(0, dtype=np.int64)]
        for t, entry_kind, count, everyone, same, program in header["ledger"]:
            ids, sent = np.arange(count), np.full(count, same or 0)
            if not everyone:
                ids, lists = lists[:count], lists[count:]
            if same is None:
                sent, lists = lists[:count], lists[count:]
            if entry_kind == "update" and hospital in ids:
                head[t]["cohort_size"] -= 1
                head[t]["bytes_up"] -= int(sent[ids == hospital].sum())
                ids, sent = ids[ids != hospital], sent[ids != hospital]
            rows.append([t, entry_kind, len(ids), False, None, program])
            rest += [ids, sent]
        header["ledger"], arrays["ledger"] = rows, np.concatenate(rest)

    return change


def last_round(header: Header, arrays: Tensors) -> None:
    """A checkpoint that says it is of the run's last round."""
    rounds = header["round"]
    header["rounds"] += [header["rounds"][-1] | {"round": t} for t in range(rounds + 1, 7)]
    header["round"] = 6
    header["ledger"] += [[t, *row[1:]] for row in header["ledger"] if row[0] == rounds for t in range(rounds + 1, 7)]


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("central", without("update", range(1, 3)), "its ledger has no updates of round 1"),
        ("central", without("update", range(1, 99)), "its ledger has no updates of round 1"),
        ("central", without("update", range(2, 3), "size"), "its ledger has no updates of round 2"),
        ("central", without("preprocessing", range(1)), "its ledger lacks 'preprocessing'"),
        ("central", last_round, "it was written after the last round"),
        ("drawn", without("update", range(1, 2)), "its ledger has no updates of round 1"),
        ("adaptive", without("update", range(1, 2)), "its ledger has no updates of round 1"),
        ("signatures", without("signature", range(1)), "its ledger lacks 'signature'"),
        ("signatures", without("signature", range(1), "size"), "its ledger lacks 'signature'"),
        ("own", without_hospital(3), "its ledger has updates of round 1 from hospitals that did not take part"),
        ("patients", without("update", range(1, 3)), "its ledger has no updates of round 1"),
        (
            "steps",
            without("update", range(1, 3)),
            "its ledger has updates of round 1 from hospitals that did not take part",
        ),
    ],
)
def test_no_epsilon_is_lowered_by_what_is_taken_out_of_a_ledger(name: str, change: Change, words: str, run):
    """Rounds say the same as the ledger, so that each is right by itself."""
    run(name)
    assert guaranteed("whole")["epsilon_of_covered"] > 0
    sign_again(change)
    refused(words)


def late(header: Header, arrays: Tensors) -> None:
    """One round is called another, so that it will be run again."""
    header["round"] = 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (late, "its header says round 1, but it has the results of"),
        (lambda header, arrays: arrays.update(more=np.empty((10**9, 0), dtype=np.int64)), "its empty array"),
        (lambda header, arrays: arrays.update(ledger=arrays["ledger"] - 10), "from hospitals that did not take part"),
        (lambda header, arrays: header["ledger"].clear(), "damaged"),
    ],
)
def test_rounds_and_ledgers_of_a_private_run(change: Change, words: str, run):
    run("drawn")
    sign_again(change)
    refused(words)
