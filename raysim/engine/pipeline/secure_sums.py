"""Secure aggregation in rounds: which hospitals mask together, what they send, and which sums the server opens.

The hospitals whose updates belong to the same weighted sum form one group for secure aggregation. A hospital that drops
out before it sends its masked update is left out, and the sum is scaled up to the weights of all hospitals of the
group. If too few hospitals remain, the sum is discarded: it becomes 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import ConfigError
from raysim.core.plain_checks import whole_number
from raysim.core.streams import stream
from raysim.engine.messages.update_sums import extra_weights, number_rows, weight_of
from raysim.engine.pipeline.masking import Masking, Opening
from raysim.engine.pipeline.shares import sure_to_be_left
from raysim.engine.pipeline.step import Step
from raysim.secure import graph, traffic
from raysim.secure.protocol import Lost, SecureSum
from raysim.strategies.base import POOLED, Call, Floats, Ids, LocalProblem, State, Update
from raysim.traffic.ledger import UPDATE

if TYPE_CHECKING:
    from raysim.config.sections.privacy import PrivacySection
    from raysim.config.sections.secure import SecureSection


FIRST_OF_CALLS = 2**20
"""The index of the first sum of client programs in a round, larger than the indices of all sums of updates. Sums with
different indices have different masks."""


class SecureSums(Step):
    """The server's side of secure aggregation in one job.

    ``name`` is the strategy's name in errors. ``size`` is the number of parameters that a hospital sends, without those
    that are private or that ``random_k`` leaves out. ``width`` is the number of all parameters; None means ``size``.
    """

    def __init__(
        self,
        section: SecureSection,
        seed: int,
        name: str,
        size: int,
        privacy: PrivacySection | None = None,
        width: int | None = None,
    ) -> None:
        """If ``privacy`` is given, hospitals may add shares of the privacy noise to their messages. A sum is then
        opened only if it contains enough of these shares.
        """
        self._section, self._seed, self._name, self._size, self._privacy = section, seed, name, size, privacy
        self._width = size if width is None else width
        self._noisy = privacy is not None and privacy.effective_mode in ("pooled", "distributed")
        self._sends_bits = privacy is not None and privacy.sends_bits
        self._sends = Counter[int]()
        self._masking: Masking | None = None
        self._opening: Opening | None = None
        self._tried = 0
        self._given_up = 0
        self._loses = section.loses
        self._weighed: tuple[LocalProblem, Floats] | None = None

    def call_step(self, round: int, call: Call, number: int, name: str) -> Masking | None:
        """Return how hospitals mask what they send for a client program's ``call``. Return None for pooled rows, whose
        sums are not hidden.
        """
        self._masking, section = None, self._section
        if POOLED in call.ids:
            return None
        if each := next((name for name, send in call.program.sends.items() if send.how == "each"), None):
            raise ConfigError(
                f"secure.mode: '{section.mode}' hides what each hospital sends, and {name} needs '{each}' of each "
                "hospital; leave secure out, or choose another strategy"
            )
        secure = self._sum(round, FIRST_OF_CALLS + number, call.ids)
        if secure is None:
            raise ConfigError(
                f"secure.minimum: {section.minimum} is more than the {len(call.ids)} hospitals that strategy "
                f"'{self._name}' calls; lower it, or sample more hospitals"
            )
        self._masking = Masking((secure,), section.mode == "execute")
        return self._masking

    def opened_call(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Remove the masks from the sums of the last call of a client program, and return the sums. They are 0 if too
        few hospitals remain to open them.
        """
        secure = None if self._masking is None else self._masking.sums[0]
        if self._masking is None or secure is None:
            return units
        self._tried += 1
        self._given_up += not secure.opens
        if not secure.opens:
            return np.zeros_like(units)
        return secure.unmasked(units.view(np.uint64)) if self._masking.execute else units

    def bytes_of_call(self, ids: Ids, entries: int) -> tuple[NDArray[np.int64], int] | None:
        """Return the bytes of secure aggregation for the last call of a client program; None if its sums were not
        hidden.

        The result has the bytes that each of the hospitals ``ids [h]`` has sent, and the total number of bytes that the
        server has sent in addition to the call. ``entries`` is the number of entries of the sums.
        """
        secure = None if self._masking is None else self._masking.sums[0]
        if secure is None:
            return None
        up, down = _bytes_of(secure, ids, entries - 1)  # one of the entries counts hospitals, as the weight does
        return np.broadcast_to(np.asarray(up, np.int64), ids.shape), down

    def check_clusters(self, state: State, ids: Ids) -> None:
        """Raise ``ConfigError`` if a cluster has fewer hospitals among ``ids`` than secure aggregation requires."""
        if state.cluster is None:
            return
        rows, sizes = np.unique(state.cluster[ids], return_counts=True)
        small = [(int(row), int(size)) for row, size in zip(rows, sizes, strict=True) if size < self._section.minimum]
        if small:
            row, size = small[0]
            raise ConfigError(
                f"secure.minimum: {self._section.minimum} is more than the {size} hospitals of cluster {row} of "
                f"strategy '{self._name}'; make fewer clusters (strategy.clusters), let small ones join the nearest "
                "(secure.small_clusters: merge) or leave secure out"
            )

    def masking(self, round: int, problem: LocalProblem, ids: Ids, number: int = 0) -> Masking | None:
        """Return how the hospitals ``ids``, which minimise ``problem`` in ``round``, mask their updates. None if no
        updates are sent, or if rows are pooled.

        ``number`` says how often hospitals have already sent their updates in this round.
        """
        sent = problem.sent
        if sent is None or POOLED in ids:
            return None
        reasons = {
            "needs each update separately": sent.single,
            "sends whole models": sent.what == "parameters",
            "sends a vector for each group of patients": problem.groups is not None,
        }
        for reason, applies in reasons.items():
            if applies:
                raise ConfigError(
                    f"secure.mode: strategy '{self._name}' {reason}, which secure aggregation does not support; choose "
                    "another strategy or leave secure out"
                )
        members = [ids[column != 0] for column in self._weights(problem, len(ids)).T]
        return Masking(
            tuple(self._sum(round, number * len(members) + g, of_group) for g, of_group in enumerate(members)),
            self._section.mode == "execute",
            self._sum(round, len(members), ids) if self._sends_bits else None,
        )

    def opening(self, masking: Masking, problem: LocalProblem, ids: Ids) -> Opening:
        """Return how the server removes the masks from the sums of a round in which the hospitals ``ids`` minimised
        ``problem``.
        """
        weights = self._weights(problem, len(ids))
        scale = np.zeros(len(masking.sums))
        for g, secure in enumerate(masking.sums):
            used = bool(weights[:, g].any())
            self._tried += used
            if secure is None or not secure.opens:
                self._given_up += used
                continue
            if not secure.lost.anybody:
                scale[g] = 1.0
                continue
            left = np.isin(ids, secure.masking)
            whole, those = weights[:, g].sum(), weights[left, g].sum()
            scale[g] = 1.0 if left[weights[:, g] != 0].all() or those == 0 else whole / those
        return Opening(masking, scale)

    def hospital_step(self, round: int, problem: LocalProblem, ids: Ids) -> Masking | None:
        number, self._sends = self._sends[round], Counter({round: self._sends[round] + 1})
        # Each pass over the updates of a round has separate masks.
        self._masking = self.masking(round, problem, ids, number)
        return self._masking

    def opened(self, round: int, problem: LocalProblem, ids: Ids, units: NDArray[np.int64]) -> NDArray[np.int64]:
        self._opening = None if self._masking is None else self.opening(self._masking, problem, ids)
        return units if self._opening is None else self._opening.opened(units)

    @property
    def given_up(self) -> Ids:
        """Return the indices of the sums of the last round that were discarded because too few hospitals remained."""
        return np.flatnonzero(() if self._opening is None else self._opening.scale == 0)

    def learned(self, round: int, update: Update, problem: LocalProblem) -> Update | None:
        """Return the update with sums scaled up to the weights of all hospitals. None if all sums were discarded and
        the server adds no noise.

        Under a privacy guarantee, sums are rescaled only if each hospital adds noise to its own training steps.
        """
        opening, privacy = self._opening, self._privacy
        if opening is None or (privacy is not None and privacy.effective_mode == "central"):
            return update
        if not opening.scale.any():
            return None
        return opening.scaled(update) if privacy is None or privacy.own_steps else update

    def sent(self, problem: LocalProblem, ids: Ids) -> tuple[NDArray[np.int64], int] | None:
        """Return the bytes of the round's last secure sums, as :meth:`bytes` does; None if no sum was hidden."""
        return None if self._masking is None else self.bytes(self._masking, problem, ids)

    def bytes(self, masking: Masking, problem: LocalProblem, ids: Ids) -> tuple[NDArray[np.int64], int]:
        """Return an array ``[H]`` with the bytes of each local update, and the total number of bytes that the server
        sends in addition to models.

        The bytes of numbers that :func:`record_training` counts separately are not included; see
        :func:`_counted_apart`.
        """
        weights = self._weights(problem, len(ids))
        first = 0 if problem.sent is None else problem.sent.sums
        sent, down = np.zeros(len(ids), dtype=np.int64), 0
        for g, secure in enumerate(masking.sums):
            if secure is None:
                continue
            at = np.flatnonzero(weights[:, g])
            p = self._size
            if g >= first:
                p = min(self._width, problem.extra_numbers - (g - first) * self._width)
            of_sum = _bytes_of(secure, ids[at], p)
            sent[at] += of_sum[0]
            down += of_sum[1]
        if masking.number_sum is not None:
            of_number = _bytes_of(masking.number_sum, ids, 1)
            sent += of_number[0]
            down += of_number[1]
        return np.maximum(sent - _counted_apart(problem), 0), down

    def most_bits(self, hospitals: int, problem: LocalProblem) -> int:
        """Return the largest number of bits that one hospital sends for the secure sums of ``problem`` over
        ``hospitals`` hospitals.
        """
        around, numbers = graph.degree(self._section.neighbours, hospitals), problem.extra_numbers
        sums = problem.sent.sums if problem.sent is not None and problem.spread else 1
        parts = [self._size] * sums + [min(self._width, numbers - at) for at in range(0, numbers, self._width)]
        parts += [1] if self._sends_bits else []
        return 8 * (sum(int(traffic.up(p, around)) for p in parts) - _counted_apart(problem))

    def of_setup(self, hospitals: int, scalars: int) -> tuple[int, int]:
        """Return the bytes of a secure sum before the first round: what each hospital sends, and what the server sends
        in total. Each of ``hospitals`` hospitals contributes ``scalars`` numbers.
        """
        around = graph.degree(self._section.neighbours, hospitals)
        return int(traffic.up(scalars, around)), hospitals * int(traffic.down(around))

    def facts(self) -> dict[str, float]:
        """Return the number of secure sums of the run, and how many of them were discarded."""
        return {"secure_sums": float(self._tried), "secure_sums_given_up": float(self._given_up)}

    @property
    def memory(self) -> tuple[int, int]:
        """Return the number of secure sums so far and how many were discarded."""
        return self._tried, self._given_up

    def resume(self, memory: Sequence[int] | None) -> None:
        """Continue from ``memory``, the two counts in a checkpoint. Raises ``ValueError`` if they are impossible."""
        if memory is None or len(memory) != 2:
            raise ValueError("it lacks two counts: the secure sums so far, and how many of them were discarded")
        self._tried = whole_number(memory[0], "number of secure sums", 2**53)
        self._given_up = whole_number(memory[1], "number of secure sums given up", self._tried)

    def _weights(self, problem: LocalProblem, entries: int) -> Floats:
        """Return the weight of each of H local updates (``entries``) in each of G sums, ``[H, G]``. The last columns
        are for sums of further numbers that hospitals send with their updates.
        """
        if self._weighed is None or self._weighed[0] is not problem:
            self._weighed = problem, self._weights_of(problem, entries)
        return self._weighed[1]

    def _weights_of(self, problem: LocalProblem, entries: int) -> Floats:
        sent, weight = problem.sent, weight_of(problem.sent)
        assert sent is not None  # it has weights
        if weight.ndim == 1:
            into = np.zeros(entries, dtype=np.int64) if sent.sum_index is None else sent.sum_index
            of_one, weight = weight, np.zeros((entries, sent.sums))
            weight[np.arange(entries), into] = of_one
            if problem.spread:  # a hospital is in all sums, whichever it has chosen
                weight[:] = of_one[:, None]
        rows = number_rows(problem, self._width)
        return np.column_stack([weight, np.ones((entries, rows)) * extra_weights(sent)[:, None]]) if rows else weight

    def _sum(self, round: int, group: int, ids: Ids) -> SecureSum | None:
        section, m = self._section, len(ids)
        if m < section.minimum:
            return None
        least = sure_to_be_left(section, m) if self._noisy else section.minimum
        count = graph.degree(section.neighbours, m)
        threshold = graph.threshold(section.threshold, count)
        stages = section.drop if self._loses else ()
        lost = Lost(*(self._lost(round, stage, chance, ids) for stage, chance in stages))
        return SecureSum(ids, count, threshold, least, lost, self._seed, round, group)

    def _lost(self, round: int, stage: str, chance: float, ids: Ids) -> frozenset[int]:
        """Return which of the hospitals ``ids`` drop out at a ``stage`` of secure aggregation, each with the
        probability ``chance``.
        """
        if not chance:
            return frozenset()
        return frozenset(i for i in ids.tolist() if stream(self._seed, f"lost {stage}", round, i).random() < chance)


def _counted_apart(problem: LocalProblem) -> int:
    """Return how many bytes of a hospital's secure sums :func:`record_training` counts separately: those of the number
    of rows, and of further arrays whose kind is not ``UPDATE``.
    """
    return 4 + 4 * sum(math.prod(shape) for kind, shape in problem.extras.values() if kind != UPDATE)


def _bytes_of(secure: SecureSum, ids: Ids, p: int) -> tuple[int | NDArray[np.int64], int]:
    """Return the bytes that each of the hospitals ``ids [h]`` sends for a secure sum of ``p`` numbers, and the total
    number of bytes that the server sends to them.
    """
    if not secure.lost.anybody:
        return traffic.up(p, secure.degree), len(ids) * traffic.down(secure.degree)
    shares, masked, reveals = (np.isin(ids, left) for left in (secure.sharing, secure.masking, secure.revealing))
    up = traffic.up(p, secure.degree, shares=shares, masked=masked, reveals=reveals)
    return up, int(np.sum(traffic.down(secure.degree, shares=shares)))
