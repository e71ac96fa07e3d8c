"""The device on which a process computes."""

from __future__ import annotations

import os
from pathlib import Path

from raysim.core.errors import ResourceError


def resolve_device(device: str) -> tuple[str, str]:
    """Return the device that ``auto``, ``cpu`` or ``cuda`` means here, and a text on CUDA for messages (empty for
    ``cpu``).
    """
    if device == "cpu":
        return "cpu", ""
    import torch

    cuda = f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', '')!r}, torch {torch.__version__}"
    return "cuda" if torch.cuda.is_available() else "cpu", cuda


QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""The Linux file with a container's limit: microseconds of computing per period, and the period in microseconds."""


def cores() -> float:
    """Return the number of cores that a Ray on this machine may use, within the container's limit."""
    count = os.cpu_count() or 1
    try:
        quota, period = QUOTA.read_text().split()
        return min(count, int(quota) / int(period))
    except (OSError, ValueError):  # there is none, or it says "max"
        return count


def cards() -> int:
    """Return the number of GPUs of a Ray on this machine: those that both NVIDIA's driver and torch find."""
    if not os.path.isdir("/proc/driver/nvidia/gpus"):
        return 0  # else torch is imported only to say so
    import torch

    return torch.cuda.device_count()


def device_for(device: str, gpus: float) -> str:
    """Return the device setting for an actor that reserves ``gpus`` GPUs, which may be a fraction.

    If the actor reserves none, ``auto`` means the CPU, even on a node with a GPU.
    """
    return "cpu" if device == "auto" and not gpus else device


def settle_device(device: str, gpus: float) -> None:
    """For ``cuda``, make this process's computations reproducible, and limit the process to its share of a GPU.

    ``gpus`` is a fraction of one GPU, or a number of GPUs. A fraction limits the process to this part of the GPU's
    memory. Convolutions use deterministic algorithms in float32, not TF32.
    """
    if device != "cuda":
        return
    import torch

    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = False, True
    if gpus < 1:
        torch.cuda.set_per_process_memory_fraction(gpus)


def check_device(wanted: str, resolved: str, cuda: str) -> str | None:
    """Return a warning if an actor has reserved a GPU that torch does not find, else None.

    ``wanted`` is the configured device, ``resolved`` the device in use, and ``cuda`` the text on CUDA of
    :func:`resolve_device`. Raises ``ResourceError`` if the device ``cuda`` is configured and there is no GPU.
    """
    if wanted == "cuda" and resolved != "cuda":
        raise ResourceError(
            f"resources.device: cuda, but torch sees no CUDA device ({cuda}); install a CUDA build of torch"
        )
    if wanted == "auto" and resolved == "cpu":
        return f"a hospital actor holds a GPU share, but torch sees no CUDA device ({cuda}): it computes on the CPU"
    return None
