"""How many shares of the noise are sure to be in a secure sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raysim.config.sections.secure import SecureSection


def sure_to_be_left(section: SecureSection, hospitals: int) -> int:
    """How many of so many ``hospitals`` at least are in a secure sum that is opened, where each adds a share of noise.

    All where none is lost; else as many as open a secret that they all hold.
    """
    if not section.loses:
        return hospitals
    # Only now: a run without secure sums does without their code.
    from raysim.secure.graph import threshold

    return min(max(section.minimum, threshold(section.threshold, hospitals, hospitals - 1)), hospitals)
