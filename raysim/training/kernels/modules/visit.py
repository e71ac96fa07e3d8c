"""A hospital's visit in the autograd loop, step by step, so that several may take theirs side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from raysim.training.base import Layout, Optimizer, Task, Vector
from raysim.training.kernels.descent import rows_per_batch
from raysim.training.kernels.modules.batch_norms import running
from raysim.training.kernels.modules.contrast import Contrasting
from raysim.training.kernels.modules.flat import FlatModule
from raysim.training.kernels.modules.lookup import condense
from raysim.training.kernels.modules.losses import TORCH_LOSSES, derive
from raysim.training.kernels.modules.optimizers import make_solver
from raysim.training.kernels.modules.pulls import Pulls
from raysim.training.losses import LOG_LOSS
from raysim.training.networks.joint import JointModule
from raysim.training.networks.numpy_layers import by_numpy
from raysim.training.networks.written import WrittenModule


class Batch(NamedTuple):
    """The batch of one step."""

    X: Tensor
    """Its rows ``[b, F]``."""
    y: Tensor
    """Their labels ``[b]``."""
    shares: Tensor
    """The factors ``[b]`` of their losses in the objective: weights over b."""


Begin = Callable[[FlatModule, Task, Vector], "Visit"]


class Visit:
    """LocalSGD of ``task`` with the module of ``flat``, which nothing else may use until the visit is closed.

    - ``into [P]`` gets what it has trained.
    - ``loss``: one of ``raysim.training.losses``.
    - ``halves``: whether products are taken in bfloat16.
    - ``aside``: whether other visits may draw from torch's generator between this one's steps; for CPUs only.
    """

    def __init__(
        self, flat: FlatModule, task: Task, into: Vector, optimizer: Optimizer, loss: str, halves: bool, aside: bool
    ) -> None:
        small = condense(task, flat.layout, flat.lookup, optimizer) if flat.lookup else None
        self._entries = None if small is None else small.entries
        self._task, self._layout = (task, flat.layout) if small is None else (small.task, small.layout)
        self.flat, self._loss, self._halves, self._aside = flat, loss, halves, aside and flat.draws
        self._size = rows_per_batch(optimizer.batch_size, len(task.y))
        into[:] = task.start  # only now, so that the first step finds some of it in the cache
        self._into, in_place = into, small is None and flat.device.type == "cpu"
        self._theta = torch.from_numpy(into) if in_place else flat.send(self._task.start)
        self._contrast = self._contrasting()
        by_hand = flat.device.type == "cpu" and not halves and task.contrast is None
        self._written = flat.module if by_hand and isinstance(flat.module, WrittenModule) else None
        flat.become(self._layout.split(self._theta))  # parameters and buffers are now views of theta
        flat.module.train()
        self._pulls = Pulls(self._task, optimizer, flat.parameters, self._layout)
        frozen = self._task.frozen
        self._frozen = None if frozen is None else flat.indices(np.flatnonzero(frozen))
        self._frozen_values = None if self._frozen is None else self._theta[self._frozen]
        moved, self._moved = flat.parameters, self._layout
        if self._written is not None:
            moved, self._moved = self._as_one(), Layout(("parameters",), ((len(self._theta),),))
        self._solver = make_solver(optimizer.name, moved, task.learning_rate)
        if task.moments is not None:
            self._solver.resume(self._moved, task.moments)
        self._generator_state: Tensor | None = None  # of torch's generator, after the visit's latest draw
        self._batches = self._in_order()
        self._open = ExitStack()
        self._open.enter_context(by_numpy(flat.module, flat.device.type == "cpu" and self._written is None))
        if self._contrast is not None:
            self._open.enter_context(self._contrast)

    def close(self) -> None:
        """Give the module back for other visits."""
        self._open.close()

    def advance(self) -> Batch | None:
        """The batch of the next step, with gradients cleared; None at the end."""
        with self._drawing():
            batch = next(self._batches, None)
        if self._written is None:
            for parameter in self.flat.parameters:
                parameter.grad = None
        return batch

    @contextmanager
    def forward(self, rows: int) -> Iterator[None]:
        """A context in which the module may be called on the visit's batch of so many rows."""
        with (
            self._drawing(),
            running(self.flat.normed) if rows == 1 else nullcontext(),
            torch.autocast("cpu", torch.bfloat16) if self._halves else nullcontext(),
        ):
            yield

    def objective(self, batch: Batch, outputs: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The terms of the step's objective from the module's ``outputs [b, C]``, without the pulls.

        Each with its factors: the objective is the sum of all products, which nobody needs.
        """
        terms = [(TORCH_LOSSES[self._loss](outputs.to(self.flat.torch_dtype), batch.y), batch.shares)]
        if self._contrast is not None:
            term = self._contrast.term(batch.X)
            terms.append((term, torch.ones_like(term)))
        return terms

    def derive(self, batch: Batch) -> bool:
        """Whether the module has written its gradients out, for the step's objective without the pulls."""
        if self._written is None:
            return False
        outputs, backward = self._written.written(batch.X)
        derive(self._loss, outputs, batch.y.numpy())
        outputs *= batch.shares.numpy()[:, None]
        backward(outputs, self._gradients)
        return True

    def step(self) -> None:
        """Move the parameters by their gradients and the pulls."""
        self._pulls.add_gradient()
        self._solver.step()
        if self._frozen is not None and self._frozen_values is not None:
            self._theta[self._frozen] = self._frozen_values

    def finish(self) -> None:
        """Store the optimiser's moments in the task, and the moved parameters in ``into``."""
        if self._task.moments is not None:
            self._solver.leave(self._moved, self._task.moments)
        if self._entries is not None:
            self._entries.put(self._theta.cpu().numpy(), self._into)
        elif self.flat.device.type != "cpu":
            self._into[:] = self._theta.cpu().numpy()

    def _in_order(self) -> Iterator[Batch]:
        """The batches of all epochs; seeds torch's generator at the beginning of an epoch, if the module draws."""
        task, n, size = self._task, len(self._task.y), self._size
        for epoch in range(task.epochs):
            X, y, weights = task.X, task.y, task.weights
            if size < n or self.flat.draws:
                rng = task.batches(epoch)
                if size < n:
                    order = rng.permutation(n)
                    X, y, weights = X[order], y[order], None if weights is None else weights[order]
                if self.flat.draws:
                    self._seed(int(rng.integers(2**63 - 1)))
            rows = self.flat.send(X)
            labels = self.flat.indices(y) if self._loss == LOG_LOSS else self.flat.send(y)
            factors = self.flat.send(np.ones(n) if weights is None else weights)
            for low in range(0, n, size):
                part = slice(low, low + size)
                yield Batch(rows[part], labels[part], factors[part] * (1.0 / min(size, n - low)))

    def _seed(self, seed: int) -> None:
        """Seed the generator of the module's device. On a CPU alone, ``torch.manual_seed`` would take 2 ms."""
        seeded = torch.default_generator.manual_seed if self.flat.device.type == "cpu" else torch.manual_seed
        seeded(seed)

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """A context in which torch's generator continues from where the visit left it."""
        if self._aside and self._generator_state is not None:
            torch.default_generator.set_state(self._generator_state)
        yield
        if self._aside:
            self._generator_state = torch.default_generator.get_state()

    def _as_one(self) -> list[nn.Parameter]:
        """All parameters as one, with a gradient that the module writes: the optimiser has a single call."""
        whole, gradient = nn.Parameter(self._theta, requires_grad=False), torch.empty_like(self._theta)
        whole.grad, views = gradient, self._layout.split(gradient)
        for parameter, view in zip(self.flat.parameters, views.values(), strict=True):
            parameter.grad = view
        self._gradients = [view.numpy() for view in views.values()]
        return [whole]

    def _contrasting(self) -> Contrasting | None:
        term, flat = self._task.contrast, self.flat
        if term is None:
            return None
        previous, received = (flat.views(vector) | flat.constant for vector in (term.previous, term.received))
        return Contrasting(flat.module, term.weight, term.temperature, previous, received)


def play(tasks: Iterable[tuple[Task, Vector]], flats: Sequence[FlatModule], begin: Begin) -> None:
    """Train each task, as many side by side as there are ``flats``, which are copies of one module.

    The vector ``[P]`` beside a task gets the result. ``begin(flat, task, vector)`` makes its visit. Several flats are
    for a :class:`JointModule`; no bit depends on who else is in progress.
    """
    waiting, free = iter(tasks), list(flats)
    active: list[Visit] = []
    gpus = [flat.device for flat in flats[:1] if flat.device.type != "cpu"]
    kind = gpus[0].type if gpus else "cuda"
    with torch.random.fork_rng(devices=gpus, enabled=flats[0].draws, device_type=kind):
        try:
            while True:
                while free and (entry := next(waiting, None)) is not None:
                    active.append(begin(free[-1], *entry))
                    free.pop()
                if not active:
                    return
                batches: dict[Visit, Batch] = {}
                for visit in list(active):
                    batch = visit.advance()
                    if batch is None:
                        visit.finish()
                        visit.close()
                        free.append(visit.flat)
                        active.remove(visit)
                    else:
                        batches[visit] = batch
                _step(batches)
        finally:
            for visit in active:
                visit.close()


def _step(batches: Mapping[Visit, Batch]) -> None:
    by_autograd = {visit: batch for visit, batch in batches.items() if not visit.derive(batch)}
    if by_autograd:
        given = zip(by_autograd.items(), _outputs(by_autograd), strict=True)
        terms = [term for (visit, batch), outputs in given for term in visit.objective(batch, outputs)]
        torch.autograd.backward([term for term, _ in terms], [factors for _, factors in terms])
    for visit in batches:
        visit.step()


def _outputs(batches: Mapping[Visit, Batch]) -> list[Tensor]:
    """The outputs of each visit's module, ``[b, C]``."""

    def call(part: Callable[[Tensor], Any], visit: Visit, x: Tensor) -> Any:
        with visit.forward(len(x)):
            return part(x)

    modules = [visit.flat.module for visit in batches]
    first, given = modules[0], [(visit, batch.X) for visit, batch in batches.items()]
    if not isinstance(first, JointModule):
        return [call(module, *of) for module, of in zip(modules, given, strict=True)]
    joint = [module for module in modules if isinstance(module, JointModule)]
    brought = [call(module.before, *of) for module, of in zip(joint, given, strict=True)]
    states = first.joint(brought)
    return [call(module.after, visit, state) for module, visit, state in zip(joint, batches, states, strict=True)]
