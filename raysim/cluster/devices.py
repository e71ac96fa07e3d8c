"""What a process computes on."""

from __future__ import annotations

import os
from pathlib import Path

from raysim.core.errors import ResourceError


def resolve_device(device: str) -> tuple[str, str]:
    """The device, ``cpu`` or ``cuda``, that ``auto``, ``cpu`` or ``cuda`` means here, and what torch sees, for
    errors.
    """
    if device == "cpu":
        return "cpu", ""
    import torch

    seen = f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', '')!r}, torch {torch.__version__}"
    return "cuda" if torch.cuda.is_available() else "cpu", seen


QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Where Linux says how many microseconds of processor time a container has in how many."""


def cores() -> float:
    """The cores that a Ray started here would find, as the container limits them."""
    count = os.cpu_count() or 1
    try:
        quota, period = QUOTA.read_text().split()
        return min(count, int(quota) / int(period))
    except (OSError, ValueError):  # there is none, or it says "max"
        return count


def cards() -> int:
    """The GPUs that a Ray started here would find: those that NVIDIA's driver lists and torch sees."""
    if not os.path.isdir("/proc/driver/nvidia/gpus"):
        return 0  # else torch is imported only to say so
    import torch

    return torch.cuda.device_count()


def device_for(device: str, gpus: float) -> str:
    """What an actor that holds ``gpus`` is told to compute on: without a share, ``auto`` is the CPU.

    Such an actor may see the GPU of its node, of which it may take nothing.
    """
    return "cpu" if device == "auto" and not gpus else device


def settle_device(device: str, gpus: float) -> None:
    """Have this process compute on ``device``, of which it holds ``gpus``, a fraction or a number of cards.

    A fraction of a card is that part of its memory: a process that would take more runs out of memory itself, and
    leaves its neighbours theirs. Convolutions are computed in float32, not in TF32 with its ten bits, and by algorithms
    that give the same bits each time.
    """
    if device != "cuda":
        return
    import torch

    from raysim.training.kernels.gpu_memory import claim

    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = False, True
    claim(gpus)


def check_device(wanted: str, resolved: str, seen: str) -> str | None:
    """A warning where a GPU was reserved and torch sees none, or None. Raises ``ResourceError`` for ``cuda`` without
    one.
    """
    if wanted == "cuda" and resolved != "cuda":
        raise ResourceError(f"resources.device: cuda, but torch sees no CUDA device ({seen}); install a CUDA build")
    if wanted == "auto" and resolved == "cpu":
        return f"a hospital actor holds a GPU share, but torch sees no CUDA device ({seen}): it computes on the CPU"
    return None
