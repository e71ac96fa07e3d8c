"""How many shares of the noise are sure to be in a secure sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raysim.config.sections.secure import SecureSection


def sure_to_be_left(section: SecureSection, hospitals: int) -> int:
    """The fewest of ``hospitals`` that are in a secure sum that is opened, where each adds a share of noise.

    All hospitals if none can drop out; else the threshold of hospitals that reconstructs a secret.
    """
    if not section.loses:
        return hospitals
    # Imported here alone: most runs have no secure sums.
    from raysim.secure.graph import threshold

    return min(max(section.minimum, threshold(section.threshold, hospitals, hospitals - 1)), hospitals)
