"""Secure aggregation of one sum among a group of hospitals in a round; hospitals may be lost at any stage.

K. Bonawitz et al.: *Practical Secure Aggregation for Privacy-Preserving Machine Learning*, CCS 2017.

Pairs of neighbouring hospitals agree on masks that cancel in the sum, and each hospital adds a mask of its own. Each
hospital divides the secrets behind its masks into shares. The hospital and its neighbours store these shares. After the
sum, the remaining hospitals reveal shares of one secret of each hospital that sent shares: the secret behind its own
mask if its vector is in the sum, else its private key. They never reveal both for the same hospital. Arithmetic is
modulo 2^64, so that the sum of masked vectors equals the sum of the vectors to the last bit.

Secrets are generated from the run's seed. The protocol is simulated and protects nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Ids
from raysim.core.streams import stream
from raysim.secure import graph, masks, shamir

Words = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Lost:
    """The hospitals that drop out of secure aggregation, by stage."""

    before_shares: frozenset[int] = frozenset()
    """The hospitals that sent keys, but no shares."""
    before_mask: frozenset[int] = frozenset()
    """The hospitals that sent shares, but no masked vector."""
    before_unmask: frozenset[int] = frozenset()
    """The hospitals that sent a masked vector, but revealed no shares."""

    @property
    def anybody(self) -> bool:
        """Whether any hospital drops out at any stage."""
        return bool(self.before_shares or self.before_mask or self.before_unmask)


@dataclass(frozen=True, eq=False)
class SecureSum:
    """The secure sum of the vectors of one group of hospitals in a round."""

    ids: Ids
    """The hospitals of the group, ``[m]``, ascending."""
    neighbours: int
    """The number of neighbours with which each hospital shares masks; see :func:`raysim.secure.graph.neighbours`. In a
    group with fewer other hospitals, all of them are neighbours."""
    threshold: int
    """The number of shares from which a secret can be reconstructed."""
    minimum: int
    """The smallest number of vectors whose sum may be revealed."""
    lost: Lost
    seed: int
    round: int
    group: int
    """The index of this sum among the sums of the round."""
    _keys: dict[int, tuple[Any, bytes]] = field(default_factory=dict)
    _agreed: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        # Keys are not serialised: a process that needs them makes them again.
        return {**self.__dict__, "_keys": {}, "_agreed": {}}

    @cached_property
    def around(self) -> Mapping[int, Ids]:
        """Return the neighbours with which each hospital of the group shares masks."""
        return graph.neighbours(self.ids, self.neighbours, self.seed, self.round)

    @property
    def degree(self) -> int:
        """Return the number of neighbours with which each hospital shares masks, at most all others of the group."""
        return min(self.neighbours, len(self.ids) - 1)

    @cached_property
    def sharing(self) -> list[int]:
        """Return U2, the hospitals that have sent secret shares, in ascending order."""
        return [i for i in self.ids.tolist() if i not in self.lost.before_shares]

    @cached_property
    def masking(self) -> list[int]:
        """Return U3, the hospitals whose vectors are in the sum, in ascending order."""
        return [i for i in self.sharing if i not in self.lost.before_mask]

    @cached_property
    def revealing(self) -> list[int]:
        """Return U4, the hospitals that reveal secret shares after the sum, in ascending order."""
        return [i for i in self.masking if i not in self.lost.before_unmask]

    @cached_property
    def in_sum(self) -> frozenset[int]:
        """Return U3, the hospitals whose vectors are in the sum, as a set."""
        return frozenset(self.masking)

    @cached_property
    def opens(self) -> bool:
        """Whether enough hospitals remain to reconstruct the sum. If not, the sum is discarded, and the server learns
        nothing about it.
        """
        if not self.lost.anybody:
            return len(self.ids) >= self.minimum and self.degree + 1 >= self.threshold
        sharing, masking, revealing = set(self.sharing), self.masking, set(self.revealing)
        if len(masking) < self.minimum:
            return False
        if len(revealing) == len(self.ids):
            return self.degree + 1 >= self.threshold
        for i in sharing:
            holders = {*self.around[i].tolist(), i}
            if len(holders & sharing) < self.threshold or len(holders & revealing) < self.threshold:
                return False
        return True

    def masked(self, hospital: int, vector: Ids) -> Words:
        """Return the masked vector that ``hospital`` sends in place of ``vector [n]``."""
        sent = vector.view(np.uint64) + masks.mask(self._own_key(hospital), len(vector))
        sharing = set(self.sharing)
        for other in self.around[hospital].tolist():
            if other not in sharing:
                continue
            between = masks.mask(self._agreed_key(hospital, other), len(vector))
            sent = sent + between if other > hospital else sent - between
        return sent

    def unmasked(self, total: Words) -> Ids:
        """Return the sum of the hospitals' vectors, given ``total``, the sum of their masked vectors.

        Raises ``ValueError`` if too few hospitals remain.
        """
        if not self.opens:
            raise ValueError("too few hospitals remain to remove the masks from the sum")
        held = self._held_shares()
        masking, count = set(self.masking), len(total)
        opened = total.copy()
        for i in self.sharing:
            which = 0 if i in masking else 1
            holders = [j for j in self.revealing if (i, j) in held][: self.threshold]
            secret = shamir.combine({j + 1: held[i, j][which] for j in holders})
            if i in masking:
                opened -= masks.mask(_key_of(secret), count)
                continue
            private = masks.private_key(secret.to_bytes(32, "little"))
            for other in self.around[i].tolist():
                if other in masking:
                    between = masks.mask(masks.agreed_key(private, self._pair(other)[1], self._info), count)
                    # The other hospital has added, or taken away, a mask that the lost one cannot cancel.
                    opened = opened - between if i > other else opened + between
        return opened.view(np.int64)

    def _held_shares(self) -> dict[tuple[int, int], tuple[int, int]]:
        held, revealing = {}, set(self.revealing)
        for i in self.sharing:
            holders = [*self.around[i].tolist(), i]
            mask_shares = self._shares(i, "own", self._own_secret(i), holders)
            key = self._shares(i, "key", int.from_bytes(self._secret(i, "mask"), "little"), holders)
            for j in holders:
                if j not in revealing:
                    continue
                text = mask_shares[j + 1].to_bytes(33, "little") + key[j + 1].to_bytes(33, "little")
                if j != i:
                    # One key for each direction: no nonce is used twice.
                    channel = self._channel(i, j)
                    text = masks.opened(channel, masks.sealed(channel, text))
                held[i, j] = (int.from_bytes(text[:33], "little"), int.from_bytes(text[33:], "little"))
        return held

    def _shares(self, hospital: int, what: str, secret: int, holders: list[int]) -> dict[int, int]:
        random_bytes = stream(self.seed, f"secagg {what} shares", self.round, self.group, hospital).bytes(
            40 * (self.threshold - 1)
        )
        rest = [int.from_bytes(random_bytes[40 * k : 40 * (k + 1)], "little") for k in range(self.threshold - 1)]
        return shamir.split(secret, [value % shamir.PRIME for value in rest], [j + 1 for j in holders])

    @property
    def _info(self) -> bytes:
        return masks.INFO + self.round.to_bytes(8, "little") + self.group.to_bytes(8, "little")

    def _secret(self, hospital: int, what: str) -> bytes:
        random_bytes: bytes = stream(self.seed, f"secagg {what}", self.round, self.group, hospital).bytes(32)
        return random_bytes

    def _own_secret(self, hospital: int) -> int:
        return int.from_bytes(self._secret(hospital, "own"), "little")

    def _own_key(self, hospital: int) -> bytes:
        return _key_of(self._own_secret(hospital))

    def _pair(self, hospital: int, what: str = "mask") -> tuple[Any, bytes]:
        at = hospital if what == "mask" else -1 - hospital
        if at not in self._keys:
            private = masks.private_key(self._secret(hospital, what))
            self._keys[at] = private, masks.public_bytes(private)
        return self._keys[at]

    def _agreed_key(self, hospital: int, other: int) -> bytes:
        pair = (min(hospital, other), max(hospital, other))
        if pair not in self._agreed:
            self._agreed[pair] = masks.agreed_key(self._pair(hospital)[0], self._pair(other)[1], self._info)
        return self._agreed[pair]

    def _channel(self, sender: int, receiver: int) -> bytes:
        pair = (-1 - min(sender, receiver), -1 - max(sender, receiver))
        if pair not in self._agreed:
            private, public = self._pair(sender, "channel")[0], self._pair(receiver, "channel")[1]
            self._agreed[pair] = masks.agreed_key(private, public, b"raysim/secagg/channel")
        direction = b"up" if sender < receiver else b"down"
        return masks.derived(self._agreed[pair], b"raysim/secagg/" + direction)


def _key_of(secret: int) -> bytes:
    return masks.derived(secret.to_bytes(33, "little"), b"raysim/secagg/own")
