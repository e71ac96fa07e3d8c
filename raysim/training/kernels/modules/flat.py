"""A module with its parameters and floating-point buffers as one vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor, nn

from raysim.core.errors import ConfigError, RaysimError
from raysim.core.words import as_yaml
from raysim.training.base import Layout, Vector
from raysim.training.kernels.modules.batch_norms import BATCH_NORMS
from raysim.training.kernels.modules.checks import check_lazy, check_module, parameter_count
from raysim.training.size import check_size


class FlatModule:
    """The module ``cls(n_features, n_outputs, **options)`` on a device, with its state as one vector ``[P]``.

    The vector has the parameters in the order of ``named_parameters``, then the persistent floating-point buffers.
    Raises ``ConfigError`` if the module cannot be constructed or trained (:func:`.checks.check_module`), and
    ``ResourceError`` if it is too large for this machine.
    """

    layout: Layout
    """The tensors in the vector."""
    module: nn.Module
    """The module on the device, with the parameters of the last call of :meth:`become`."""
    parameters: list[nn.Parameter]
    """The module's parameters, in the order of the vector."""
    constant: dict[str, Tensor]
    """The initial values of the buffers that are not in the vector, by name."""
    normed: list[nn.Module]
    draws: bool
    lookup: str | None
    """The name of a parameter, such as an embedding, if all features are indices of its rows; otherwise None."""

    def __init__(
        self,
        cls: type[nn.Module],
        n_features: int,
        n_outputs: int,
        options: dict[str, Any],
        init: str,
        device: str,
        precision: str,
    ) -> None:
        self._make: Callable[[], nn.Module] = lambda: cls(n_features, n_outputs, **options)
        self._init, self.device = init, torch.device(device)
        self.dtype, self.torch_dtype = np.dtype(precision), getattr(torch, precision)
        try:
            check_size(parameter_count(self._make), options)
            module = self._seeded(0).to(self.torch_dtype)
        except RaysimError:
            raise
        except ValueError as error:
            raise ConfigError(f"model.{error}") from error
        except Exception as error:  # whatever the user's module raises
            raise ConfigError(
                f"model.options: {as_yaml(options)} does not construct {cls.__qualname__}: "
                f"{type(error).__name__}: {error}".splitlines()[0]
            ) from error
        check_lazy(module, cls.__qualname__)
        named, buffers = dict(module.named_parameters()), dict(module.named_buffers())
        carried = [name for name in module.state_dict() if name in buffers and buffers[name].is_floating_point()]
        self._carried = {name: buffers[name].clone() for name in carried}
        self.constant = {name: b.clone().to(self.device) for name, b in buffers.items() if name not in carried}
        shapes = [tuple(tensor.shape) for tensor in (*named.values(), *self._carried.values())]
        self.layout = Layout((*named, *carried), tuple(shapes), len(carried))
        self.draws = check_module(module, cls.__qualname__, n_features, n_outputs)
        self.lookup = getattr(module, "lookup", None)
        self.module = module.to(self.device)
        self.parameters = list(self.module.parameters())
        self.normed = [part for part in self.module.modules() if isinstance(part, BATCH_NORMS)]
        self._variances = [name for name in carried if name.rpartition(".")[2] == "running_var"]

    def initial(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return the initial vector ``[P]``: the module's own, with all parameters 0 if ``init`` is ``zeros``."""
        fresh = self._seeded(0 if self._init == "zeros" else int(rng.integers(2**63 - 1)))
        buffers = dict(fresh.named_buffers())
        parts = [p.detach() for p in fresh.parameters()]
        if self._init == "zeros":
            parts = [torch.zeros_like(p) for p in parts]
        parts += [buffers[name] for name in self._carried]
        return torch.cat([part.double().reshape(-1) for part in parts]).numpy()

    def copy(self, theta: Vector) -> nn.Module:
        """Return a new module whose parameters and buffers are those of ``theta [P]``."""
        named = self._checked(self.views(theta)) | self.constant
        module = self._seeded(0).to(self.torch_dtype)
        module.load_state_dict(named, strict=False)  # a tied parameter has one name in the vector
        return module

    def views(self, theta: Vector) -> dict[str, Tensor]:
        """Copy ``theta [P]`` to the device, and return its tensors by name."""
        return self.layout.split(self.send(theta))

    def become(self, views: dict[str, Tensor]) -> None:
        """Use the tensors ``views`` as the module's parameters and floating-point buffers.

        All other buffers are reset to their initial values.
        """
        buffers = dict(self.module.named_buffers())
        held = [*self.parameters, *(buffers[name] for name in self._carried)]
        for tensor, view in zip(held, self._checked(views).values(), strict=True):
            tensor.data = view
        for name, made in self.constant.items():
            buffers[name].copy_(made)

    def send(self, array: NDArray[Any], kind: DTypeLike | None = None) -> Tensor:
        """Return a copy of ``array`` on the device, with the number type ``kind``; None means the run's precision."""
        return torch.from_numpy(np.array(array, self.dtype if kind is None else kind)).to(self.device)

    def _checked(self, views: dict[str, Tensor]) -> dict[str, Tensor]:
        """Set negative variances in ``views`` to 0, in place; a server's optimiser can cause them."""
        for name in self._variances:
            views[name].clamp_(min=0.0)
        return views

    def _seeded(self, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return self._make()
