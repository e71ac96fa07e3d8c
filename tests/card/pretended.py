"""A pretended card: a device of torch whose values lie in the memory of the CPU, and are computed there.

torch counts its tensors as of another device, ``card:0``. An operation with tensors of both raises ``RuntimeError``,
as on a GPU, and so does one on a tensor of the card that asks for its memory (``numpy()``). What it allocates is
counted, and an operation that would need more than ``limit`` bytes raises ``torch.OutOfMemoryError``.

torch calls the interface to such devices experimental, so it holds for the version of ``constraints.txt`` alone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "card"
aten = torch.ops.aten
COPIES = (aten._to_copy.default, aten.copy_.default)
"""Operations that may have tensors of the card and of the CPU."""


def lstm_cell(
    inputs: Tensor, hidden: Tensor, cell: Tensor, by_input: Tensor | None = None, by_hidden: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """A step of ``nn.LSTM``, which GPUs take in an operation that CPUs have not."""
    for bias in (by_input, by_hidden):
        inputs = inputs if bias is None else inputs + bias
    i, f, g, o = (inputs + hidden).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    after = f * cell + i * g
    return o * after.tanh(), after, torch.cat([i, f, g, o], 1)


def lstm_cell_backward(
    by_state: Tensor | None, by_cell: Tensor | None, cell: Tensor, after: Tensor, gates: Tensor, biased: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Its derivatives."""
    zero, (i, f, g, o), squashed = torch.zeros_like(cell), gates.chunk(4, 1), after.tanh()
    by_state = zero if by_state is None else by_state
    by_after = (zero if by_cell is None else by_cell) + by_state * o * (1 - squashed**2)
    parts = by_after * g * i * (1 - i), by_after * cell * f * (1 - f), by_after * i * (1 - g**2)
    by_gates = torch.cat([*parts, by_state * squashed * o * (1 - o)], 1)
    return by_gates, by_after * f, by_gates.sum(0) if biased else None


OF_GPUS = {
    aten._thnn_fused_lstm_cell.default: lstm_cell,
    aten._thnn_fused_lstm_cell_backward_impl.default: lstm_cell_backward,
}


class PretendedMemory:
    """The card's memory: a limit of bytes, those that are held, and the most at once."""

    def __init__(self) -> None:
        self.limit, self.held, self.most = float("inf"), 0, 0
        self.sent = 0
        self._tensors: dict[int, int] = {}

    def add(self, tensor: Tensor, held: Tensor) -> Callable[[], object]:
        """Count the storage of ``held`` until the last ``tensor`` of it is gone, or what is returned is called."""
        storage = held.untyped_storage()
        place, size = storage.data_ptr(), storage.nbytes()
        if place not in self._tensors:
            if self.held + size > self.limit:
                raise torch.OutOfMemoryError(f"the card is out of memory. Tried to allocate {size} bytes")
            self._tensors[place] = 0
            self.held += size
            self.most = max(self.most, self.held)
        self._tensors[place] += 1
        return weakref.finalize(tensor, self._drop, place, size)

    def _drop(self, place: int, size: int) -> None:
        self._tensors[place] -= 1
        if not self._tensors[place]:
            del self._tensors[place]
            self.held -= size


MEMORY = PretendedMemory()


class CardTensor(Tensor):
    """A tensor of the card, with its values in ``held``, a tensor of the CPU."""

    held: Tensor
    _counted: Callable[[], object]

    @staticmethod
    def __new__(cls, held: Tensor) -> CardTensor:
        made = Tensor._make_wrapper_subclass(
            cls, held.shape, held.stride(), held.storage_offset(), dtype=held.dtype, device=torch.device(NAME, 0)
        )
        made.held = held
        made._counted = MEMORY.add(made, held)
        return made

    @property
    def data(self) -> Tensor:
        return CardTensor(self.held)

    @data.setter
    def data(self, value: Tensor) -> None:
        assert isinstance(value, CardTensor)
        Tensor.data.__set__(self, value)
        self._counted()
        self.held, self._counted = value.held, MEMORY.add(self, value.held)

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


class Pretended(TorchDispatchMode):
    """A context in which tensors can be made on the card."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


class _Module(_DummyBackendModule):
    """What torch asks of a device's module. Random numbers are those of the CPU's generator."""

    def get_rng_state(self, device: Any = None) -> Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)


def computed(func: Any, args: Any, kwargs: Any) -> Any:
    """The result of an operation, of the card where its tensors are, or where it is set to be."""
    here: list[CardTensor] = []
    elsewhere: list[Tensor] = []

    def on_cpu(value: Any) -> Any:
        if isinstance(value, CardTensor):
            here.append(value)
            return value.held
        if isinstance(value, Tensor):
            elsewhere.append(value)
        return value

    plain, options = tree_map(on_cpu, (args, kwargs))
    # A number may be of the CPU on a GPU too.
    if here and func not in COPIES and any(tensor.dim() for tensor in elsewhere):
        raise RuntimeError(f"{func}: expected all tensors to be on the same device, found {NAME} and cpu")
    wanted = kwargs.get("device")
    to_card = bool(here) if wanted is None else wanted.type == NAME
    if wanted is not None:
        options["device"] = torch.device("cpu")
    result = OF_GPUS.get(func, func)(*plain, **options)
    if func is aten.copy_.default:
        return args[0]
    if func is aten._to_copy.default and to_card and not here:
        MEMORY.sent += result.nbytes
    if func is aten._to_copy.default and any(result is tensor.held for tensor in here):
        result = result.clone()
    if torch.Tag.inplace_view in func.tags:
        with no_dispatch():
            func(*args, **kwargs)  # the shape that torch has of the tensor itself
    made = {id(tensor.held): tensor for tensor in here}

    def on_card(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return made.get(id(value)) if id(value) in made else CardTensor(value) if to_card else value

    return tree_map(on_card, result)


def register() -> None:
    """Make the card known to torch, for the rest of this process."""
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Module())

    @torch.library.impl("aten::empty_strided", "privateuseone")
    def empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> Tensor:
        return CardTensor(torch.empty_strided(size, stride, dtype=dtype))

    @torch.library.impl("aten::_copy_from", "privateuseone")
    def copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
        target.held.copy_(source.held if isinstance(source, CardTensor) else source)
        return target
