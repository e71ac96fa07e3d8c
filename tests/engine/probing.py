"""A strategy whose programs use all of the protocol, and programs that are written wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from raysim.strategies.base import (
    OWN,
    POOLED,
    Bound,
    Call,
    Calls,
    Context,
    FederationView,
    Ids,
    Keep,
    Program,
    Reply,
    Send,
    State,
    Strategy,
)


@dataclass(frozen=True)
class Beside(Program):
    """Local training that also sends numbers, for as many sums as ``sums`` says."""

    size: int
    shape: tuple[int, ...] = ()
    kind: str = "update"
    by: str = "hospital"
    sums: int = 0
    name: str = "beside"

    @property
    def sends(self) -> Mapping[str, Send]:
        shape = (self.sums, self.size) if self.sums else (self.size,)
        return {"delta": Send(shape), "more": Send(self.shape, self.kind, by=self.by)}

    def run(self, at: Context) -> Reply:
        delta = at.model.train(at.received["theta"]).theta - at.received["theta"]
        return Reply({"delta": np.tile(delta, (self.sums, 1)) if self.sums else delta, "more": np.ones(self.shape)})


@dataclass(frozen=True)
class Training(Program):
    """Local training, remembered, with noise of the hospital's own."""

    size: int
    name: str = "probe"
    each: bool = True

    @property
    def sends(self) -> Mapping[str, Send]:
        sends = {
            "delta": Send((self.size,), bits=30, groups=2),
            "rows": Send(kind="size", bits=0),
            "moments": Send((2,), kind="moments", by="row", largest=100.0),
        }
        return sends | ({"loss": Send(kind="loss", how="each")} if self.each else {})

    @property
    def keeps(self) -> Mapping[str, Keep]:
        return {"model": Keep((self.size,)), "calls": Keep((), "i8")}

    def run(self, at: Context) -> Reply:
        theta, n = at.received["theta"], len(at.rows.y)
        own = at.memory.get("model", theta)
        trained = at.model.train(0.5 * (theta + own), proximal=[(0.1, theta)]).theta
        trained = trained + 1e-3 * at.rng("noise", 1).normal(size=self.size)
        label = at.rows.y.astype(float)
        sent = {"delta": n * (trained - theta), "rows": n, "moments": np.column_stack([label, label**2])}
        sent |= {"loss": at.model.loss(theta)} if self.each else {}
        return Reply(sent, {"model": trained, "calls": at.memory.get("calls", 0) + 1}, group=at.hospital % 2)


@dataclass(frozen=True)
class Fused(Training):
    """The same, put together by the engine."""

    together: int = 0

    def run_many(self, contexts: Sequence[Context]) -> Sequence[Reply]:
        step = self.together or len(contexts)
        groups = [contexts[first : first + step] for first in range(0, len(contexts), step)]
        return [self.run(at) for group in groups for at in group]


@dataclass(frozen=True)
class Squares(Program):
    """A second program of the same round: it reads what the first has kept."""

    size: int
    name: str = "squares"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"squares": Send((self.size,), kind="squares")}

    @property
    def keeps(self) -> Mapping[str, Keep]:
        return {"model": Keep((self.size,))}

    def run(self, at: Context) -> Reply:
        return Reply({"squares": at.received["scale"] * at.memory["model"].astype(float) ** 2})


@dataclass(frozen=True)
class Probe(Strategy):
    """Trains twice in a round and squares once; ``only`` replaces its first program."""

    each: bool = True
    fused: int = -1
    only: Program | None = None

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        return super().select(view, state, round)

    def round(self, view: FederationView, state: State) -> Calls:
        size, ids = len(view.initial), self.select(view, state, view.round)
        program: Program = Training(size, each=self.each)
        if self.fused >= 0:
            program = Fused(size, each=self.each, together=self.fused)
        if self.only is not None:
            program = self.only
        theta = state.models[0]
        for _ in range(2):
            answers = yield Call(program, {"theta": theta}, ids)
            rows = max(float(answers.sums["rows"]), 1.0)
            theta = theta + answers.sums["delta"].sum(axis=0) / rows
        squares = yield Call(Squares(size), {}, ids, {"scale": np.linspace(0.0, 1.0, len(ids))})
        return replace(state, models=(theta + 1e-3 * squares.sums["squares"])[None])

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        return {"global": np.zeros(len(view.sizes), np.int64), "personal": np.where(view.sizes > 0, OWN, 0)}


@dataclass(frozen=True)
class Wrong(Program):
    """A program with one mistake: ``what`` it does wrong."""

    what: str
    name: str = "wrong"

    @property
    def sends(self) -> Mapping[str, Send]:
        if self.what == "nothing":
            return {}
        if self.what == "sends":
            return [Send()]
        wrong = {
            "overflow": Send(largest=2.0**20),
            "largest": Send(largest=np.nan),
            "kind": Send(kind=3),
            "huge": Send((2**29,)),
            "each large": Send((2,), how="each", largest=1.0),
        }
        if self.what in wrong:
            return {"total": wrong[self.what], "rows": Send()}
        return {"total": Send((2,), largest=1e3), "rows": Send()}

    @property
    def keeps(self) -> Mapping[str, Keep]:
        return {} if self.what == "nothing" else {"state": Keep((2,), "O" if self.what == "dtype" else "f8")}

    @property
    def validates(self) -> bool:
        return self.what == "validates"

    def run(self, at: Context) -> Reply:
        total: Any = np.ones(2)
        sent: dict[str, Any] = {"total": total, "rows": 1.0}
        memory: dict[str, Any] = {}
        match self.what:
            case "undeclared":
                sent["secret"] = 1.0
            case "missing":
                del sent["total"]
            case "shape":
                sent["total"] = np.ones(3)
            case "nan":
                sent["total"] = np.array([1.0, np.nan])
            case "large":
                sent["total"] = np.array([1.0, 1e3])
            case "memory":
                memory["other"] = np.ones(2)
            case "memory shape":
                memory["state"] = np.ones(3)
            case "group":
                return Reply(sent, memory, group=1)
            case "group text":
                return Reply(sent, memory, group="0")
            case "ragged":
                sent["total"] = [[1.0], [2.0, 3.0]]
            case "unnamed":
                return Reply([total])
            case "unnamed memory":
                return Reply(sent, [total])
            case "complex":
                sent["total"] = total * 1j
            case "one hospital":
                sent["total"] = np.ones(2 + (at.hospital == 2))
            case "writes memory":
                at.memory["state"] = total
            case "writes received":
                at.received["more"] = total
            case "purpose":
                at.rng(object())
            case "text":
                sent["total"] = np.array(["a", "b"])
            case "raises":
                at.model.gradient(np.ones(1))
            case "writes":
                at.rows.X[:] = 0
            case "peeks":
                at.validation.y.sum()
            case "returns":
                return sent
        return Reply(sent, memory)


@dataclass(frozen=True)
class WrongTogether(Wrong):
    """The same for several hospitals at once."""

    def run_many(self, contexts: Sequence[Context]) -> Sequence[Reply]:
        if self.what == "raises together":
            raise ValueError("no")
        return [self.run(at) for at in contexts[1:]]


@dataclass(frozen=True)
class CallsWrong(Strategy):
    """Calls a wrong program, or calls wrongly."""

    what: str

    def round(self, view: FederationView, state: State) -> Calls:
        ids = view.trainable
        program = WrongTogether(self.what) if self.what.endswith("together") else Wrong(self.what)
        match self.what:
            case "strangers":
                ids = np.array([len(view.sizes)])
            case "received":
                yield Call(program, {"theta": np.array(["a"])}, ids)
            case "no names":
                yield Call(program, [np.ones(1)], ids)
            case "each_of text":
                yield Call(Wrong("fine"), {}, view.trainable, each_of={"theta": np.array(["x"])})
            case "each_of":
                yield Call(program, {}, ids, {"theta": np.ones(1)})
            case "answer":
                yield program
            case "state":
                yield Call(program, {}, ids)
                return None
            case "forever":
                while True:
                    yield Call(program, {}, ids[:1])
        yield Call(program, {}, ids)
        return state


@dataclass(frozen=True)
class AtOnce(Strategy):
    """A round that is not a generator."""

    def round(self, view: FederationView, state: State) -> Calls:
        return state


@dataclass(frozen=True)
class Mean(Program):
    """The features' sums, by row."""

    features: int
    name: str = "mean"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"sum": Send((self.features,), by="row"), "each": Send(how="each"), "rows": Send(bits=0)}

    def run(self, at: Context) -> Reply:
        return Reply({"sum": at.rows.X, "each": float(at.hospital), "rows": len(at.rows.y)})


@dataclass(frozen=True)
class Bounded(Program):
    """The features' sums, in which a unit counts up to a length."""

    features: int
    bound: Bound
    name: str = "bounded"

    @property
    def sends(self) -> Mapping[str, Send]:
        by = "hospital" if self.bound.unit == "hospital" else "row"
        return {"sum": Send((self.features,), by=by, bound=self.bound)}

    def run(self, at: Context) -> Reply:
        X = at.rows.X.astype(np.float64)
        if at.hospital == 0:
            X[0] = np.inf
        return Reply({"sum": X.sum(axis=0) if self.bound.unit == "hospital" else X})


@dataclass(frozen=True)
class BoundedSums(Strategy):
    """``models`` holds the bounded sums."""

    bound: Bound

    def round(self, view: FederationView, state: State) -> Calls:
        features = len(view.initial) - 1
        answers = yield Call(Bounded(features, self.bound), {}, view.trainable)
        return replace(state, models=np.append(answers.sums["sum"], 0.0)[None])


@dataclass(frozen=True)
class Means(Strategy):
    """Adds the features of all rows, of hospitals or of pooled rows; ``models`` holds the sums."""

    pooled: bool = False

    def round(self, view: FederationView, state: State) -> Calls:
        ids = np.array([int(POOLED)]) if self.pooled else view.trainable
        features = len(view.initial) - 1
        answers = yield Call(Mean(features), {}, ids)
        if not self.pooled:
            assert answers.each["each"].tolist() == ids.tolist() == answers.ids.tolist()
        assert answers.counts.tolist() == [len(ids)]
        return replace(state, models=np.append(answers.sums["sum"], answers.sums["rows"])[None])
