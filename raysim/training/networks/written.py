"""Networks that write their derivatives out: with small layers, autograd takes most of a step to call them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[Any]

Backward = Callable[[Array, Sequence[Array]], None]
"""Store, for the objective's gradient by the outputs ``[b, C]``, that by each parameter, in their order."""


class WrittenModule(nn.Module):
    """A network whose steps on a CPU need no autograd. It has no buffers and draws no random numbers."""

    @abstractmethod
    def written(self, x: Tensor) -> tuple[Array, Backward]:
        """The outputs ``[b, C]`` of rows ``x [b, F]``, which may be overwritten, and their derivatives.

        These are called before the next rows come.
        """
