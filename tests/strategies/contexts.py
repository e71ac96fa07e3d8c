"""Hospitals at which programs run without an engine, and a federation of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from raysim.core.streams import stream
from raysim.strategies.base import Answers, Call, FederationView, Program, Rows
from raysim.strategies.selections.sampling import All


@dataclass(frozen=True)
class At:
    """A program's view of one hospital. Model ``k`` has the rows' ``losses[k]`` and ``outputs[k]``."""

    X: np.ndarray
    y: np.ndarray
    observed: np.ndarray
    classes: int = 2
    losses: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    outputs: Sequence[np.ndarray] = ()
    patients: Callable[[], Mapping[str, Any]] = dict
    hospital: int = 0
    given: Mapping[str, Any] = field(default_factory=dict)
    stream: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    @property
    def rows(self) -> Rows:
        return Rows(self.X, self.y, self.observed, patients=self.patients)

    @property
    def received(self) -> Mapping[str, Any]:
        models = np.arange(max(len(self.losses), len(self.outputs)))
        return {**self.given, "models": models}

    @property
    def model(self) -> Any:
        return SimpleNamespace(losses=lambda k: self.losses[k], outputs=lambda k: self.outputs[k])

    def rng(self) -> np.random.Generator:
        return self.stream

    def cache(self, name: str, make: Callable[[], Any], of: bytes = b"") -> Any:
        return make()


def sent(program: Program, at: At) -> np.ndarray:
    """What a program sends from a hospital."""
    context: Any = at
    array: np.ndarray = np.asarray(program.run(context).sent[program.name])
    return array


def hospital(counts: list[int], X: np.ndarray | None = None, observed: np.ndarray | None = None) -> At:
    """A hospital with these rows of each class; ``X`` is zeros unless given."""
    y = np.repeat(np.arange(len(counts)), counts)
    X = np.zeros((len(y), 1)) if X is None else X
    seen = np.ones(X.shape, dtype=np.bool_) if observed is None else observed
    return At(X, y, seen, len(counts), np.empty((0, len(y))))


def view_of(hospitals: list[At], seed: int = 1) -> FederationView:
    """A federation whose hospitals run programs without an engine."""

    def call(call: Call) -> Answers:
        name = call.program.name
        each = [
            sent(
                call.program,
                replace(hospitals[i], hospital=i, given=call.received, stream=stream(seed, name, 0, i)),
            )
            for i in call.ids.tolist()
        ]
        return Answers({}, {name: np.stack(each)}, call.ids, np.array([len(each)]))

    return FederationView(
        names=tuple(f"h{i}" for i in range(len(hospitals))),
        sizes=np.array([len(rows.y) for rows in hospitals]),
        classes=hospitals[0].classes,
        initial=np.zeros(2),
        local_epochs=1,
        learning_rate=0.1,
        selection=All(),
        memory=None,
        rng=lambda purpose, *key: stream(seed, purpose, *key),
        call=call,
        columns=hospitals[0].observed.shape[1],
    )


def answered_by(view: FederationView, answer: Callable[[Call, int], Any]) -> FederationView:
    """The view of hospitals that answer any call with ``answer(call, hospital)``."""

    def call(call: Call) -> Answers:
        each = np.stack([np.asarray(answer(call, i)) for i in call.ids.tolist()])
        return Answers({}, {call.program.name: each}, call.ids, np.array([len(each)]))

    return replace(view, call=call)
