"""Record the traffic between the hospitals and the server of one job in the ledger, and add it up by round."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import MIXTURE, OWN, Call, FederationView, Floats, Ids, LocalProblem, State, Strategy
from raysim.traffic.ledger import (
    LOSS_SCALARS,
    RECALIBRATION,
    SCALAR_BYTES,
    VALIDATION,
    Bytes,
    Entry,
    Ledger,
    downlink,
    named_rows,
    record_training,
)


class Traffic:
    """Counts the bytes that a job's hospitals receive and send, by round; round 0 is the time before training.

    A model is not counted again for a local update if the hospital has already received it: with the call of a client
    program in the same round, or for validation losses after the previous round.
    """

    down: int
    """The bytes that all hospitals have received in the current round, without those for validation losses and
    recalibration."""
    up: int
    """The bytes that all hospitals have sent in the current round, without those for validation losses and
    recalibration."""
    ledger: Ledger
    setup_down: int
    """The bytes that hospitals received before the first round."""
    models_held: Ids
    """For each hospital, how many of the models needed for its update it already had when the update began, ``[N]``.

    The number is 0 after the update has arrived. A resumed run needs the numbers for updates in progress.
    """

    def __init__(
        self,
        ledger: Ledger,
        strategy: Strategy,
        view: FederationView,
        size: int,
        losses: bool,
        bits: Callable[[LocalProblem], int | None] = lambda problem: None,
    ) -> None:
        """Begin to count a job's traffic, at the time before the first round.

        ``size`` is the number of a model's scalars, without private parameters, which are not sent. ``losses`` says
        whether the client selection receives hospitals' losses.
        ``bits(problem)`` is the largest number of bits of a compressed or masked update; None for other updates.
        """
        self._bits = bits
        self.ledger = ledger
        self.setup_down = 0
        self.models_held = np.zeros(len(view.sizes), dtype=np.int64)
        self._strategy = strategy
        self._view = view
        self._size = size
        self._losses = losses
        self._checked_models: list[tuple[Floats, Ids]] = []
        self._models_received: list[tuple[Floats, Ids]] = []
        self._news_received: dict[int, list[tuple[NDArray[Any], Ids]]] = {}
        self.begin(0)

    def begin(self, round: int) -> None:
        """Begin a round, to which all further traffic belongs."""
        self._round = round
        self.down, self.up = 0, 0
        self._models_received, self._checked_models = self._checked_models, []

    @property
    def setup(self) -> Bytes:
        """Return the bytes exchanged before the first round."""
        return Bytes(self.setup_down, self.ledger.sent(0))

    def uses_losses(self, problem: LocalProblem) -> bool:
        """Return whether hospitals that minimise ``problem`` also send their training losses under the start models."""
        # A problem that sends nothing, such as fine-tuning, sends no losses either.
        return problem.sent is not None and (problem.sent.losses or self._losses)

    def answered(self, call: Call) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Record the messages of a client program that the strategy or selection calls by ``view.call``.

        Return two arrays ``[H]``: the bytes that each called hospital received, and the bytes that each sent.
        """
        ids, program = call.ids, call.program
        sizes = {name: np.full(len(ids), math.prod(send.shape)) for name, send in program.sends.items()}
        for name, scalars in sizes.items():
            if scalars.any():
                self.up += self.ledger.add(self._round, program.sends[name].kind, ids, scalars, program.name)
        carries = np.asarray(program.carries, dtype=np.int64)
        received = carries[ids] if carries.ndim else np.full(len(ids), carries)
        received = received + sum(np.size(array) for name, array in call.received.items() if name != "models")
        received = received + sum(np.size(array) // (len(ids) or 1) for array in call.each_of.values())
        if "models" in call.received:
            models = np.asarray(call.received["models"])
            self._note(models, ids, self._models_received)
            received = received + len(models) * self._size
        received = received * SCALAR_BYTES
        self.down += int(received.sum())
        if self._round == 0:
            self.setup_down = self.down
        return received, sum(sizes.values(), np.zeros(len(ids), dtype=np.int64)) * SCALAR_BYTES

    def summed(self, kind: str, ids: Ids, sent: int, down: int) -> None:
        """Record a secure sum: hospitals ``ids [h]`` sent ``sent`` bytes each, and received ``down`` bytes together."""
        self.up += self.ledger.add_bytes(self._round, kind, ids, np.full(len(ids), sent, dtype=np.int64))
        self.down += down
        if self._round == 0:
            self.setup_down = self.down

    def called(self, program: str, kind: str, ids: Ids, sent: NDArray[np.int64], down: int) -> None:
        """Record a call of ``program``: hospitals ``ids [h]`` sent ``sent [h]`` bytes.

        All called hospitals together received ``down`` bytes.
        """
        self.up += self.ledger.add_bytes(self._round, kind, ids, sent, program)
        self.down += down

    def recalibrated(self, round: int, ids: Ids, sent: NDArray[np.int64], received: int) -> Bytes:
        """Record the traffic of recalibration after a ``round``, and return its bytes.

        Each of the hospitals ``ids [h]`` sent ``sent [h]`` scalars and received ``received`` scalars.
        """
        down, up = len(ids) * received * SCALAR_BYTES, self.ledger.add(round, RECALIBRATION, ids, sent)
        if round == 0:
            self.setup_down += down
        return Bytes(down, up)

    def checked(
        self, ids: Ids, serve: Mapping[str, Ids], shared: bool, state: State
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Record that the hospitals ``ids [h]`` sent the validation losses of the models in ``serve`` after a round.

        Before, the hospitals received the new parts of these models (:meth:`Strategy.news`). The server does not send
        these parts again in the next round. If ``shared``, a hospital's own model contains parts of the server's model
        0, which the hospital then receives too. Return two arrays ``[h]``: the bytes that each hospital received, and
        the bytes that each sent.
        """
        received = np.zeros(len(ids), dtype=np.int64)
        named = [rows[ids].reshape(len(ids), -1) for rows in serve.values()]
        each = np.concatenate([np.where(rows == OWN, 0, rows) if shared else rows for rows in named], axis=1)
        for row in np.unique(each[each >= 0]).tolist():
            holders = (each == row).any(axis=1)
            news = self._strategy.news(self._view, state, row)
            if news is None:
                self._note(state.models[[row]], ids[holders], self._checked_models)
                received += holders * self._size * SCALAR_BYTES
                continue
            for array, receive in self._new(row, news, ids, holders):
                received += receive * array.nbytes
        received += (each == MIXTURE).any(axis=1) * self._models(state) * self._size * SCALAR_BYTES
        sent = np.full(len(ids), len(serve) * LOSS_SCALARS, dtype=np.int64)
        self.ledger.add(self._round, VALIDATION, ids, sent)
        if self._round == 0:
            self.setup_down += int(received.sum())
        return received, sent * SCALAR_BYTES

    def _new(
        self, row: int, news: Sequence[tuple[NDArray[Any], Ids]], ids: Ids, holders: NDArray[np.bool_]
    ) -> list[tuple[NDArray[Any], NDArray[np.bool_]]]:
        """Return the new arrays of model ``row``, each with a mask of the hospitals ``ids [h]`` that receive it.

        ``holders [h]`` marks the hospitals that use the model.
        """
        before = self._news_received.get(row, [])
        same = len(before) == len(news) and all(
            np.array_equal(array, old) for (array, _), (old, _) in zip(news, before, strict=True)
        )
        received, new = [], []
        for at, (array, receivers) in enumerate(news):
            receive = holders & np.isin(ids, receivers)
            self._note(array[None], ids[receive], self._checked_models)
            received.append((array, ids[receive]))
            new.append((array, receive & ~np.isin(ids, before[at][1]) if same else receive))
        self._news_received[row] = received
        return new

    def known(self, array: NDArray[Any], ids: Ids) -> int:
        """Return how many of the hospitals ``ids [h]`` received ``array`` for validation losses after the previous
        round.
        """
        return sum(
            int(np.isin(ids, holders).sum()) for model, holders in self._models_received if np.array_equal(model, array)
        )

    def trained(self, ids: Ids, problem: LocalProblem, state: State, bits: NDArray[np.int64] | None = None) -> None:
        """Record the messages of hospitals ``ids [H]`` that minimised ``problem``, and the models that they received.

        ``bits [H]`` is the number of bits of each compressed or masked update, or an upper bound.
        """
        ids = problem.entries(ids)
        models = self._models(state)
        down, up = record_training(
            self.ledger,
            self._round,
            ids,
            problem,
            self._size,
            models,
            self.uses_losses(problem),
            self._vector_bytes(bits, problem, len(ids)),
        )
        # A hospital whose update began in an earlier round has the models that it had at that time.
        hospitals, held = self._held(ids, problem, state)
        held = np.maximum(held, self.models_held[hospitals])
        self.models_held[hospitals] = 0
        self.down += down - int(held.sum()) * self._size * SCALAR_BYTES
        self.up += up

    def in_vain(self, down: int, unused: Sequence[tuple[Ids, LocalProblem]], state: State) -> None:
        """Record ``down`` bytes to hospitals that never replied, and updates that arrived but were not used."""
        self.down += down
        for ids, problem in unused:
            self.trained(ids, problem, state)

    def exchanged(self, ids: Ids, problem: LocalProblem, state: State) -> tuple[Floats, Floats]:
        """Return the bytes that each of the hospitals ``ids [H]`` will receive and send for its local update.

        The bytes are recorded only when the updates arrive.
        """
        each, models = problem.entries(ids), self._models(state)
        hospitals, held = self._held(each, problem, state)
        self.models_held[hospitals] = held
        scratch = Ledger([Entry(0, "model", each, downlink(problem, self._size, models) * SCALAR_BYTES)])
        vectors = self._vector_bytes(None, problem, len(each))
        record_training(scratch, 0, each, problem, self._size, models, self.uses_losses(problem), vectors)
        received, *sent = [
            np.bincount(np.searchsorted(ids, entry.hospitals), weights=entry.sent, minlength=len(ids)).astype(
                np.float64
            )
            for entry in scratch.entries
        ]
        received[np.searchsorted(ids, hospitals)] -= held * self._size * SCALAR_BYTES
        return received, sum(sent, np.zeros(len(ids)))

    def _vector_bytes(
        self, bits: NDArray[np.int64] | None, problem: LocalProblem, entries: int
    ) -> NDArray[np.int64] | None:
        if bits is None and (most := self._bits(problem)) is not None:
            bits = np.full(entries, most)
        return None if bits is None else -(-bits // 8)

    def _models(self, state: State) -> int:
        mixture = self._strategy.mixture(self._view, state)
        return len(state.models) if mixture is None else int(mixture.any(axis=0).sum())

    def _note(self, models: Floats, ids: Ids, received: list[tuple[Floats, Ids]]) -> None:
        """Record in ``received`` that hospitals ``ids [h]`` have received ``models [M, P]``. Equal models share one
        entry.
        """
        for model in models:
            for at, (earlier, hospitals) in enumerate(received):
                if np.array_equal(earlier, model):
                    received[at] = (earlier, np.union1d(hospitals, ids))
                    break
            else:
                received.append((model, ids))

    def _held(self, ids: Ids, problem: LocalProblem, state: State) -> tuple[Ids, Ids]:
        """Return the distinct hospitals in ``ids [H]``, and how many of the models that each of them needs it already
        has.

        ``ids`` has the hospital of each local update.
        """
        hospitals, entry = np.unique(ids, return_inverse=True)
        held = np.zeros(len(hospitals), dtype=np.int64)
        if not self._models_received:
            return hospitals, held
        # A mixture consists of many models and names none; its proximal terms are towards these models.
        named = np.where(problem.start[:, None] == MIXTURE, -1, np.maximum(named_rows(problem), -1))
        for model, holders in self._models_received:
            if model.shape != state.models.shape[1:]:
                continue
            # Models are compared by content: one model may be in several rows, and received models may be outdated.
            same = np.append((state.models == model).all(axis=1), False)
            needed = np.bincount(entry, weights=same[named].any(axis=1), minlength=len(hospitals)) > 0
            held += needed & np.isin(hospitals, holders)
        return hospitals, held
