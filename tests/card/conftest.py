"""The card that tests of this folder compute on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
_registered = False


@pytest.fixture
def card() -> Iterator[str]:
    """A device's name: ``cuda`` where torch has one, else a pretended card."""
    global _registered
    if torch.cuda.is_available():
        from raysim.cluster.devices import settle_device

        settle_device("cuda", 1.0)
        yield "cuda"
        return
    here = torch.__version__.partition("+")[0]
    if f"torch=={here}" not in CONSTRAINTS.read_text().splitlines():
        pytest.skip(f"a card is pretended by the torch of constraints.txt alone, and this is torch {here}")
    from tests.card import pretended

    if not _registered:
        pretended.register()
        _registered = True
    with pretended.Pretended():
        yield pretended.NAME
    pretended.MEMORY.limit = float("inf")


@pytest.fixture
def pretended_card(card: str) -> str:
    """The pretended card; skips where torch has a real one."""
    if card == "cuda":
        pytest.skip("this is about how a card is pretended, and torch has a real one")
    return card
