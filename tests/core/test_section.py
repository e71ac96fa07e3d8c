"""What is made of a section of the configuration."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from raysim.core.section import Section


class Steps(Section):
    width: float = 0.5
    count: int = 3
    unread: str = ""


@dataclass(frozen=True)
class Stair:
    width: float
    count: int
    material: str = "oak"


def test_a_section_makes_a_dataclass_of_the_keys_that_both_have():
    assert Steps(width=0.25).make(Stair) == Stair(0.25, 3, "oak")
    assert Steps().make(Stair, count=7, material="stone") == Stair(0.5, 7, "stone")
    with pytest.raises(TypeError, match="step"):
        Steps().make(Stair, step=1)
