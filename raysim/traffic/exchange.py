"""The traffic between the hospitals and the server of one job: entered in the ledger, and added up by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import MIXTURE, OWN, FederationView, Floats, Ids, LocalProblem, Question, State, Strategy
from raysim.traffic.ledger import (
    LOSS_SCALARS,
    RECALIBRATION,
    SCALAR_BYTES,
    VALIDATION,
    Bytes,
    Ledger,
    downlink,
    named_rows,
    record_training,
)


class Traffic:
    """Counts what a job's hospitals receive and send, round by round; round 0 is the set-up.

    A model that a hospital was asked about is not sent to it again for the local update that begins in that round,
    however late its update comes.
    """

    down: int
    """Bytes that hospitals have received in this round."""
    up: int
    """Bytes that hospitals have sent in this round."""
    ledger: Ledger
    """Everything that has left hospitals."""
    setup_down: int
    """Bytes that hospitals received before the first round; what they sent is in the ledger."""
    models_held: Ids
    """How many of the models of its local update each hospital had when that began, ``[N]``: a run that goes on has to
    know it of those under way."""

    def __init__(
        self,
        ledger: Ledger,
        strategy: Strategy,
        view: FederationView,
        size: int,
        losses: bool,
        bits: int | None = None,
    ) -> None:
        """``size`` scalars of a model travel. With ``losses`` the selection receives those of participants.

        ``bits`` are the most that a compressed update has; None where updates are sent whole.
        """
        self._bits = bits
        self.ledger = ledger
        self.setup_down = 0
        self.models_held = np.zeros(len(view.sizes), dtype=np.int64)
        self._strategy = strategy
        self._view = view
        self._size = size
        self._losses = losses
        self._checked: list[tuple[Floats, Ids]] = []
        self._shown: list[tuple[Floats, Ids]] = []
        self.begin(0)

    def begin(self, round: int) -> None:
        """Begin a round, to which all traffic from now on belongs."""
        self._round = round
        self.down, self.up = 0, 0
        self._shown, self._checked = self._checked, []

    @property
    def setup(self) -> Bytes:
        """What was exchanged before the first round."""
        return Bytes(self.setup_down, self.ledger.sent(0))

    def uses_losses(self, problem: LocalProblem) -> bool:
        """Whether hospitals that minimise ``problem`` send their losses before training."""
        # Whoever sends nothing sends no loss either: fine-tuning, and hospitals without rows with it.
        return problem.sent is not None and (problem.sent.losses or self._losses)

    def asked(
        self, question: Question, ids: Ids, sizes: NDArray[np.int64], models: Floats | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Hospitals ``ids [h]`` have answered with ``sizes [h]`` scalars, about ``models`` where not None.

        Returns the bytes that each received, and sent, ``[h]``.
        """
        if sizes.any():
            self.up += self.ledger.add(self._round, question.kind, ids, sizes)
        received = carried(question, ids)
        if models is not None:
            self._show(models, ids, self._shown)
            received = received + len(models) * self._size
        received = received * SCALAR_BYTES
        self.down += int(received.sum())
        if self._round == 0:
            self.setup_down = self.down
        return received, sizes * SCALAR_BYTES

    def summed(self, kind: str, ids: Ids, sent: int, down: int) -> None:
        """Hospitals ``ids [h]`` have each ``sent`` so many bytes for one secure sum, and all received ``down``."""
        self.up += self.ledger.add_bytes(self._round, kind, ids, np.full(len(ids), sent, dtype=np.int64))
        self.down += down
        if self._round == 0:
            self.setup_down = self.down

    def called(self, kind: str, ids: Ids, sent: NDArray[np.int64], down: int) -> None:
        """Hospitals ``ids [h]`` have ``sent [h]`` bytes to a client program's call, and all received ``down``."""
        self.up += self.ledger.add_bytes(self._round, kind, ids, sent)
        self.down += down

    def recalibrated(self, round: int, ids: Ids, sent: NDArray[np.int64], received: int) -> Bytes:
        """Hospitals ``ids [h]`` have ``sent`` so many scalars ``[h]`` after a ``round`` and ``received`` each as many.

        Returns the bytes of all.
        """
        down, up = len(ids) * received * SCALAR_BYTES, self.ledger.add(round, RECALIBRATION, ids, sent)
        if round == 0:
            self.setup_down += down
        return Bytes(down, up)

    def checked(
        self, ids: Ids, serve: Mapping[str, Ids], shared: bool, state: State
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Hospitals ``ids [h]`` have told the losses of the models that ``serve`` on validation rows, after a round.

        They have received those that are rows of the models, and what is ``shared`` of their own with row 0; these are
        not sent again for a local update that begins in the next round. Returns the bytes that each received, and sent,
        ``[h]``.
        """
        received = np.zeros(len(ids), dtype=np.int64)
        named = [rows[ids].reshape(len(ids), -1) for rows in serve.values()]
        each = np.concatenate([np.where(rows == OWN, 0, rows) if shared else rows for rows in named], axis=1)
        for row in np.unique(each[each >= 0]).tolist():
            holders = (each == row).any(axis=1)
            self._show(state.models[[row]], ids[holders], self._checked)
            received += holders * self._size
        received = (received + (each == MIXTURE).any(axis=1) * self._models(state) * self._size) * SCALAR_BYTES
        sent = np.full(len(ids), len(serve) * LOSS_SCALARS, dtype=np.int64)
        self.ledger.add(self._round, VALIDATION, ids, sent)
        if self._round == 0:
            self.setup_down += int(received.sum())
        return received, sent * SCALAR_BYTES

    def trained(self, ids: Ids, problem: LocalProblem, state: State, bits: NDArray[np.int64] | None = None) -> None:
        """The cohort ``ids [H]`` has sent what it sends for ``problem``, having received what it names.

        ``bits`` are those of each entry's update where it was compressed; where they are not known, the most.
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
            self._vector_bytes(bits, len(ids)),
        )
        # Whoever has been under way since an earlier round has the models that it had when it started.
        hospitals, held = self._held(ids, problem, state)
        held = np.maximum(held, self.models_held[hospitals])
        self.models_held[hospitals] = 0
        self.down += down - int(held.sum()) * self._size * SCALAR_BYTES
        self.up += up

    def in_vain(self, down: int, unused: Sequence[tuple[Ids, LocalProblem]], state: State) -> None:
        """So many bytes went to hospitals that never answered, and the updates of others came and were not used."""
        self.down += down
        for ids, problem in unused:
            self.trained(ids, problem, state)

    def exchanged(self, ids: Ids, problem: LocalProblem, state: State) -> tuple[Floats, Floats]:
        """Bytes that each of hospitals ``ids [H]``, whose visits begin, will receive and send for ``problem``.

        They are entered when the updates come.
        """
        each, models = problem.entries(ids), self._models(state)
        hospitals, held = self._held(each, problem, state)
        self.models_held[hospitals] = held
        scratch = Ledger([(0, "model", each, downlink(problem, self._size, models) * SCALAR_BYTES)])
        vectors = self._vector_bytes(None, len(each))
        record_training(scratch, 0, each, problem, self._size, models, self.uses_losses(problem), vectors)
        received, *sent = [
            np.bincount(np.searchsorted(ids, who), weights=moved, minlength=len(ids)).astype(np.float64)
            for _, _, who, moved in scratch.entries
        ]
        received[np.searchsorted(ids, hospitals)] -= held * self._size * SCALAR_BYTES
        return received, sum(sent, np.zeros(len(ids)))

    def _vector_bytes(self, bits: NDArray[np.int64] | None, entries: int) -> NDArray[np.int64] | None:
        """The bytes of each entry's update ``[H]``, or None: all scalars."""
        if bits is None and self._bits is not None:
            bits = np.full(entries, self._bits)
        return None if bits is None else -(-bits // 8)

    def _models(self, state: State) -> int:
        """How many of the server's models a mixture is made of."""
        mixture = self._strategy.mixture(self._view, state)
        return len(state.models) if mixture is None else int(mixture.any(axis=0).sum())

    def _show(self, models: Floats, ids: Ids, shown: list[tuple[Floats, Ids]]) -> None:
        """Note in ``shown`` that hospitals ``ids [h]`` have received ``models [M, P]``, each model once."""
        for model in models:
            for at, (earlier, hospitals) in enumerate(shown):
                if np.array_equal(earlier, model):
                    shown[at] = (earlier, np.union1d(hospitals, ids))
                    break
            else:
                shown.append((model, ids))

    def _held(self, ids: Ids, problem: LocalProblem, state: State) -> tuple[Ids, Ids]:
        """The hospitals ``[h]`` of the entries ``ids [H]``, and how many models that ``problem`` names they have.

        They have those that they were asked about in this round.
        """
        hospitals, entry = np.unique(ids, return_inverse=True)
        held = np.zeros(len(hospitals), dtype=np.int64)
        if not self._shown:
            return hospitals, held
        # A mixture is of many, and names none by itself; nor do its pulls, which are to models that it is of.
        named = np.where(problem.start[:, None] == MIXTURE, -1, np.maximum(named_rows(problem), -1))
        for model, holders in self._shown:
            # By what they hold: the same model may be in several rows, and old ones are behind the server's models.
            same = np.append((state.models == model).all(axis=1), False)
            needed = np.bincount(entry, weights=same[named].any(axis=1), minlength=len(hospitals)) > 0
            held += needed & np.isin(hospitals, holders)
        return hospitals, held


def carried(question: Question, ids: Ids) -> NDArray[np.int64]:
    """The scalars that travel with a question to each of hospitals ``ids [h]``, ``[h]``."""
    scalars = np.asarray(getattr(question, "scalars", 0), dtype=np.int64)
    return scalars[ids] if scalars.ndim else np.full(len(ids), scalars)
