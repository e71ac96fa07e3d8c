"""Checkpoints of compressed, secret and attacked runs that somebody has changed and signed again.

A change is refused in a line, or the checkpoint is passed over and the run ends as if it had not been there: nothing is
left out of what hospitals owe.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.storage.tampered import (
    Change,
    Header,
    Run,
    Tensors,
    of,
    refused,
    removed,
    sign_again,
    unchanged_goes_on,
)

RUNS: dict[str, dict[str, Any]] = {
    "residuals": {"compression": {"name": "top_k", "ratio": 0.4}},
    "held": {"compression": {"name": "sign", "feedback": "ef21"}},
    "some": {"compression": {"name": "top_k", "ratio": 0.4}, "selection": {"name": "poisson", "fraction": 0.4}},
    "secure": {"secure": {}},
    "mimic": {"adversary": {"attack": "mimic", "share": 0.3}, "aggregation": {"name": "centred_clipping"}},
}
"""What the runs have beside ``SMALL``."""


@pytest.mark.parametrize("name", RUNS)
def test_what_nobody_has_changed_goes_on(name: str, run: Run):
    unchanged_goes_on(run, name)


def states(header: Header) -> list[Any]:
    """``[hospital, its packed memory]`` of all hospitals that remember something."""
    entries: list[Any] = header["kept"]["dict"]
    return entries


def drop_one(header: Header, arrays: Tensors) -> None:
    del states(header)[0]


def forget(header: Header, arrays: Tensors) -> None:
    header["kept"] = None


def other_id(hospital: Any) -> Change:
    def change(header: Header, arrays: Tensors) -> None:
        states(header)[0][0] = hospital

    return change


def values(make: Callable[[Any], Any]) -> Change:
    def change(header: Header, arrays: Tensors) -> None:
        for name in arrays:
            if name.startswith("kept/"):
                arrays[name] = make(arrays[name])

    return change


def rename(header: Header, arrays: Tensors) -> None:
    for _, memory in states(header):
        memory["dict"][0][0] = "residue"


def bomb(header: Header, arrays: Tensors) -> None:
    arrays[next(name for name in arrays if name.startswith("kept/"))] = np.empty((10**9, 0), dtype=np.int64)


@pytest.mark.parametrize("name", ["residuals", "held"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (forget, "has no compression residual"),
        (lambda header, arrays: header.update(kept={"dict": []}), "has no compression residual"),
        (drop_one, "has no compression residual"),
        (other_id(99), "it has stored state of hospital 99, but there are 6 hospitals"),
        (other_id(-1), "compression residual"),
        (values(lambda array: array * np.nan), "finite numbers"),
        (values(lambda array: array[:1]), "finite numbers"),
        (values(lambda array: np.repeat(array, 2)), "finite numbers"),
        (rename, "contains 'residue', which raysim never stores"),
        (bomb, "has the shape [1000000000, 0], too large for this file"),
        (lambda header, arrays: header.update(kept={"dict": [["0"]]}), "damaged"),
        (lambda header, arrays: header.update(kept={"array": "residual of 7"}), "damaged"),
        (lambda header, arrays: header.update(kept={"list": [1]}), "cannot be resumed"),
        (other_id("0"), "cannot be resumed"),
        (
            lambda header, arrays: header.update(models_held=[0] * 5),
            "damaged (its number of hospitals in a ledger entry is 6, ",
        ),
    ],
)
def test_what_hospitals_owe_under_compression(name: str, change: Change, words: str, run):
    run(name)
    sign_again(change)
    refused(words)


def test_what_a_hospital_owes_that_was_never_asked(run):
    """In a run in which only some take part."""
    run("some")

    def invented(header: Header, arrays: Tensors) -> None:
        missing = min({*range(6)} - {hospital for hospital, _ in states(header)}, default=None)
        if missing is not None:
            states(header).append([missing, states(header)[0][1]])

    sign_again(invented)
    refused("sent no update but has a compression residual")


SUMS = of("attacks", "secure", 0)
LOST = of("attacks", "secure", 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (removed("attacks"), "it has no state of attacks, rules and secure aggregation"),
        (of("attacks", "secure")(None), "it lacks two counts: the secure sums so far, and how many"),
        (of("attacks", "secure")({"tuple": [1, 2, 3]}), "it lacks two counts: the secure sums so far, and how many"),
        (SUMS(-1), "its number of secure sums is -1"),
        (SUMS(10**300), "its number of secure sums is 1000"),
        (SUMS(math.nan), "its number of secure sums is nan"),
        (SUMS("many"), "its number of secure sums is 'many'"),
        (SUMS(None), "cannot be resumed"),
        (SUMS({"list": [1]}), "cannot be resumed"),
        (LOST(1000), "its number of secure sums given up is 1000"),
    ],
)
def test_the_count_of_secure_sums(change: Change, words: str, run):
    run("secure")
    sign_again(change)
    refused(words)


TALLY = ("attacks", "byzantine", "tally")


def centre(make: Callable[[Any], Any]) -> Change:
    def change(header: Header, arrays: Tensors) -> None:
        (name,) = [name for name in arrays if "centres" in name]
        arrays[name] = make(arrays[name])

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (removed("attacks"), "it has no state of attacks, rules and secure aggregation"),
        (of("attacks", "byzantine")(None), "it has no state of attacks and rules"),
        (of(*TALLY, "sums")(-3.0), "its sums is -3.0"),
        (of(*TALLY, "bad")(math.inf), "its bad is inf"),
        (of(*TALLY, "rejected")(1e300), "its rejected is 1e+300"),
        (of(*TALLY, "largest")(7.0), "its largest share of Byzantine hospitals is 7,"),
        (of(*TALLY, "admitted")(math.nan), "sums add up to nan"),
        (of(*TALLY)({"dict": []}), "cannot be resumed"),
        (of("attacks", "byzantine", "directions")(10**40), "its number of directions is 1000"),
        (centre(lambda array: array * np.nan), "its centre of updates is not a vector of"),
        (centre(lambda array: array[:1]), "its centre of updates is not a vector of"),
        (centre(lambda array: np.zeros((10**7, 0))), "its empty array"),
    ],
)
def test_what_the_server_remembers_of_attacks(change: Change, words: str, run):
    run("mimic")
    sign_again(change)
    refused(words)
