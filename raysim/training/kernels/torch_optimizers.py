"""torch's own optimisers for the autograd loop: made, brought to where an earlier visit left them, and read out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from raysim.training.base import Layout, Moments
from raysim.training.kernels.descent import MOMENTUM


def make_solver(name: str, parameters: Sequence[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """torch's own optimiser of that name, with its state fresh; fused, Adam takes a fifth of the time."""
    if name == "adam":
        return torch.optim.Adam(parameters, lr=rate, fused=True)
    return torch.optim.SGD(parameters, lr=rate, momentum=MOMENTUM if name == "momentum" else 0.0, fused=True)


MOMENTS = ("momentum_buffer",), ("exp_avg", "exp_avg_sq")
"""What torch calls a parameter's moments: those of SGD with momentum, and Adam's."""


def resume(solver: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], layout: Layout, moments: Moments) -> None:
    """Let a fresh ``solver`` of ``parameters`` go on from ``moments``."""
    names = MOMENTS[isinstance(solver, torch.optim.Adam)]
    for name, vector in zip(names, (moments.first, moments.second), strict=False):
        if vector is not None:
            for parameter, view in zip(parameters, layout.split(vector).values(), strict=False):
                solver.state[parameter][name] = torch.from_numpy(view.copy()).to(parameter)
    if moments.steps:
        for parameter in parameters:
            solver.state[parameter]["step"] = torch.tensor(float(moments.steps), device=parameter.device)


def leave(solver: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], layout: Layout, moments: Moments) -> None:
    """Renew ``moments`` from what ``solver`` has; buffers and parameters without a gradient have zeros."""
    names = MOMENTS[isinstance(solver, torch.optim.Adam)]
    if not any(names[0] in solver.state[parameter] for parameter in parameters):
        return  # plain SGD
    vectors = []
    for name in names:
        vector = np.zeros(layout.size, parameters[0].detach().cpu().numpy().dtype)
        for parameter, view in zip(parameters, layout.split(vector).values(), strict=False):
            if name in solver.state[parameter]:
                view[...] = solver.state[parameter][name].cpu().numpy()
        vectors.append(vector)
    moments.first, moments.second = vectors[0], vectors[1] if len(vectors) > 1 else None
    moments.steps = max((int(solver.state[p]["step"]) for p in parameters if "step" in solver.state[p]), default=0)
