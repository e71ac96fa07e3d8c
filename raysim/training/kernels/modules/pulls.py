"""The gradient of a task's penalties beside its loss, for the autograd loop."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from raysim.training.base import Layout, Optimizer, Task
from raysim.training.kernels.descent import combined_pull


class Pulls:
    """A task's pulls and linear term, and weight decay, on ``parameters`` in the order of ``layout``."""

    def __init__(self, task: Task, optimizer: Optimizer, parameters: Sequence[nn.Parameter], layout: Layout) -> None:
        like = parameters[0].detach()
        weight, anchor = combined_pull(task, str(like.dtype).removeprefix("torch."))
        towards: list[Tensor | None] = [None] * len(parameters)
        if anchor is not None:
            towards = list(layout.split(torch.from_numpy(anchor).to(like.device)).values())[: len(parameters)]
        decays = (optimizer.weight_decay if layout.penalised(name) else 0.0 for name in layout.names)
        self._terms = [
            (parameter, weight + decay, place)
            for parameter, decay, place in zip(parameters, decays, towards, strict=False)
            if weight + decay or place is not None
        ]

    def add_gradient(self) -> None:
        """Add it to the parameters' gradients."""
        for parameter, factor, towards in self._terms:
            pull = factor * parameter.detach()
            if towards is not None:
                pull = pull - towards
            parameter.grad = pull if parameter.grad is None else parameter.grad.add_(pull)
