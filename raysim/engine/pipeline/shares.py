"""The number of noise shares that a secure sum is certain to contain."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raysim.config.sections.secure import SecureSection


def sure_to_be_left(section: SecureSection, hospitals: int) -> int:
    """Return the smallest number of noise shares in an opened secure sum of ``hospitals``; each hospital adds one
    share.

    If no hospital can drop out, all hospitals' shares are in the sum. Otherwise the sum has at least the number of
    shares that reconstructs a secret.
    """
    if not section.loses:
        return hospitals
    # Imported only here: most runs have no secure sums.
    from raysim.secure.graph import threshold

    return min(max(section.minimum, threshold(section.threshold, hospitals, hospitals - 1)), hospitals)
