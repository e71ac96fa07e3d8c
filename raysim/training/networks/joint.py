"""Networks of which a part is computed for several hospitals in one call."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn


class JointModule(nn.Module):
    """A network ``after(joint([before(x)])[0])``, whose middle has calls so small that several had better share them.

    The middle has no parameters and draws no random numbers, and gives each the bits that it would give it alone.
    """

    @abstractmethod
    def before(self, x: Tensor) -> Any:
        """What rows ``x [b, F]`` bring to the middle."""

    @staticmethod
    @abstractmethod
    def joint(several: Sequence[Any]) -> Sequence[Tensor]:
        """The middle, of what several hospitals bring to it."""

    @abstractmethod
    def after(self, state: Tensor) -> Tensor:
        """The outputs ``[b, outputs]`` of what came out of the middle."""

    def forward(self, x: Tensor) -> Tensor:
        """``[b, outputs]`` of rows ``x [b, F]``."""
        (state,) = self.joint([self.before(x)])
        return self.after(state)
