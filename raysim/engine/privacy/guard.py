"""What privacy guarantees for hospitals and for patients have in common at the server."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.config.sections.privacy import PrivacySection
from raysim.engine.pipeline.step import Step
from raysim.engine.privacy.release import Release
from raysim.strategies.base import Ids, LocalProblem

if TYPE_CHECKING:
    from raysim.engine.pipeline.secure_sums import SecureSums


class Guard(Step):
    """The server's side of a privacy guarantee for updates; the hospital's side is a :class:`Release`."""

    def __init__(self, section: PrivacySection, seed: int, secure: SecureSums | None) -> None:
        self._section, self._seed, self._secure = section, seed, secure

    @property
    def bit(self) -> bool:
        """Whether each hospital also sends one bit, which says whether its update was within the clipping bound."""
        return self._section.sends_bits

    def release(self) -> Release:
        """Return the clipping and noise that hospitals apply to their updates before sending them."""
        raise NotImplementedError

    def noised(self, round: int, problem: LocalProblem, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the noisy sums of a ``round``, as integers in fixed point. ``units [G, P]`` are the sums of what
        hospitals sent.
        """
        raise NotImplementedError

    def resume(self, memory: Any) -> None:
        """Continue from ``memory``, the state in a checkpoint. Raises ``ValueError`` for impossible values."""

    def hospital_step(self, round: int, problem: LocalProblem, ids: Ids) -> Release | None:
        return None if problem.sent is None else replace(self.release(), seed=self._seed, round=round)

    def opened(self, round: int, problem: LocalProblem, ids: Ids, units: NDArray[np.int64]) -> NDArray[np.int64]:
        if problem.sent is None:
            return units
        units = self.noised(round, problem, units)
        if self._secure is not None and self._section.effective_mode != "central":
            units[self._secure.given_up] = 0  # a discarded sum is 0, without noise
        return units
