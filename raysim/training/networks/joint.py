"""Networks with a part that is computed for several hospitals in one call."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn


class JointModule(nn.Module):
    """A network ``after(joint([before(x)])[0])``, whose middle makes calls so small that hospitals should share them.

    The middle has no parameters, draws no random numbers, and gives each hospital the same bits as alone.
    """

    @abstractmethod
    def before(self, x: Tensor) -> Any:
        """The input of the middle for rows ``x [b, F]``."""

    @staticmethod
    @abstractmethod
    def joint(several: Sequence[Any]) -> Sequence[Tensor]:
        """The outputs of the middle for the inputs of several hospitals."""

    @abstractmethod
    def after(self, state: Tensor) -> Tensor:
        """The network's outputs ``[b, outputs]`` from the middle's output ``state``."""

    def forward(self, x: Tensor) -> Tensor:
        """``[b, outputs]`` of rows ``x [b, F]``."""
        (state,) = self.joint([self.before(x)])
        return self.after(state)
