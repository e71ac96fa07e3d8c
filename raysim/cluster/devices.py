"""What a process computes on."""

from __future__ import annotations

import os

from raysim.core.errors import ResourceError


def resolve_device(device: str) -> tuple[str, str]:
    """``auto``, ``cpu`` or ``cuda`` to what this process computes on, and what torch sees."""
    if device == "cpu":
        return "cpu", ""
    import torch

    seen = f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', '')!r}, torch {torch.__version__}"
    return "cuda" if torch.cuda.is_available() else "cpu", seen


def check_device(wanted: str, resolved: str, seen: str) -> str | None:
    """A warning where a GPU was meant and there is none; ``ResourceError`` where ``cuda`` is required."""
    if wanted == "cuda" and resolved != "cuda":
        raise ResourceError(f"resources.device: cuda, but torch sees no CUDA device ({seen}); install a CUDA build")
    if wanted == "auto" and resolved == "cpu":
        return f"a hospital actor holds a GPU share, but torch sees no CUDA device ({seen}): it computes on the CPU"
    return None
