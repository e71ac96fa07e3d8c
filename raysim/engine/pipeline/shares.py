"""The number of noise shares that a secure sum is certain to contain."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raysim.config.sections.secure import SecureSection


def sure_to_be_left(section: SecureSection, hospitals: int) -> int:
    """Return the smallest possible number of noise shares in a secure sum over ``hospitals`` hospitals, when the server
    has opened it (removed all masks). Each hospital adds one share of the privacy noise.

    If no hospital can drop out, the sum contains all shares. If hospitals can drop out, the number of shares is at
    least the number of hospitals that are needed to open the sum.
    """
    if not section.loses:
        return hospitals
    # Imported only here: most runs have no secure aggregation.
    from raysim.secure.graph import threshold

    return min(max(section.minimum, threshold(section.threshold, hospitals - 1)), hospitals)
