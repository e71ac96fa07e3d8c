"""The device that a process computes on."""

from __future__ import annotations

import os
from pathlib import Path

from raysim.core.errors import ResourceError


def resolve_device(device: str) -> tuple[str, str]:
    """Return the device that ``auto``, ``cpu`` or ``cuda`` means here, and what torch finds, for errors."""
    if device == "cpu":
        return "cpu", ""
    import torch

    seen = f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', '')!r}, torch {torch.__version__}"
    return "cuda" if torch.cuda.is_available() else "cpu", seen


QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Linux' file with a container's processor time limit: microseconds of time in microseconds of period."""


def cores() -> float:
    """Return the number of cores of a Ray started here, as the container limits them."""
    count = os.cpu_count() or 1
    try:
        quota, period = QUOTA.read_text().split()
        return min(count, int(quota) / int(period))
    except (OSError, ValueError):  # there is none, or it says "max"
        return count


def cards() -> int:
    """Return the number of GPUs of a Ray started here: those that NVIDIA's driver lists and torch finds."""
    if not os.path.isdir("/proc/driver/nvidia/gpus"):
        return 0  # else torch is imported only to say so
    import torch

    return torch.cuda.device_count()


def device_for(device: str, gpus: float) -> str:
    """Return the device for an actor with a share ``gpus``: without a share, ``auto`` is the CPU.

    Such an actor may see the GPU of its node, but may use none of it.
    """
    return "cpu" if device == "auto" and not gpus else device


def settle_device(device: str, gpus: float) -> None:
    """Make this process compute on ``device`` with its share ``gpus``, a fraction or a number of cards.

    A fraction of a card limits memory to that part: a process that needs more runs out of memory itself, without harm
    to its neighbours. Convolutions are computed in float32, not in TF32 with its ten bits, and by deterministic
    algorithms.
    """
    if device != "cuda":
        return
    import torch

    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = False, True
    if gpus < 1:
        torch.cuda.set_per_process_memory_fraction(gpus)


def check_device(wanted: str, resolved: str, seen: str) -> str | None:
    """Return a warning if a reserved GPU is missing, or None. Raises ``ResourceError`` for ``cuda`` without one."""
    if wanted == "cuda" and resolved != "cuda":
        raise ResourceError(f"resources.device: cuda, but torch sees no CUDA device ({seen}); install a CUDA build")
    if wanted == "auto" and resolved == "cpu":
        return f"a hospital actor holds a GPU share, but torch sees no CUDA device ({seen}): it computes on the CPU"
    return None
