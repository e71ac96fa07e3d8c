"""The section ``secure``: secure aggregation, where the server learns only the sum of what hospitals send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_validator

from raysim.core.defaults import default
from raysim.core.section import Section, auto_or_from

if TYPE_CHECKING:
    from raysim.secure.setup import SetupSums

OF_PREPROCESSING, OF_LABELS = 0, 1
"""The indices of the secure sums before the first round."""


class DropSection(Section):
    """``secure.drop``: the probability that a hospital is lost at each stage of secure aggregation."""

    share: float = default("secure.drop.share", ge=0, lt=1)
    mask: float = default("secure.drop.mask", ge=0, lt=1)
    unmask: float = default("secure.drop.unmask", ge=0, lt=1)


class SecureSection(Section):
    """The section ``secure``: hospitals' updates are masked, and only their sum can be read.

    - ``mode``: ``model`` only counts the bytes of masks, and ``execute`` computes the masks. Both give bit-identical
      results.
    - ``threshold``: the number of shares that reconstruct a secret; ``auto`` is the smallest number above two thirds of
      the shares.
    - ``neighbours``: the number of hospitals with which each hospital shares masks; ``auto`` is about 6 plus
      three times the binary logarithm of the number of hospitals in the sum, or all others if these are fewer.
    - ``small_clusters``: a cluster with fewer hospitals than ``minimum`` ends the run (``refuse``), or is merged with
      the nearest cluster (``merge``).
    """

    mode: Literal["model", "execute"] = default("secure.mode")
    minimum: int = default("secure.minimum")
    small_clusters: Literal["refuse", "merge"] = default("secure.small_clusters")
    threshold: Annotated[Literal["auto"] | int, auto_or_from(2)] = default("secure.threshold")
    neighbours: Literal["auto", "all"] | int = default("secure.neighbours")
    drop: DropSection = Field(default_factory=DropSection)

    @property
    def least_members(self) -> int:
        """Return the number of hospitals below which a cluster is merged with another; 1 if none is merged."""
        return self.minimum if self.small_clusters == "merge" else 1

    def of_setup(self, group: int) -> SetupSums:
        """Return how the secure sum ``group`` (:data:`OF_PREPROCESSING` or :data:`OF_LABELS`) is masked.

        Raises ``ConfigError`` if the package for masks is needed but not installed.
        """
        # Imported here alone: most runs have no secure aggregation.
        from raysim.secure import masks
        from raysim.secure.setup import SetupSums

        if self.mode == "execute":
            masks.check_installed()
        return SetupSums(self.neighbours, self.threshold, group, self.mode == "execute")

    @property
    def loses(self) -> bool:
        """Whether hospitals can drop out during secure aggregation."""
        return any(chance > 0 for _, chance in self.drop)

    @field_validator("minimum")
    @classmethod
    def _hides(cls, value: int) -> int:
        if value < 3:
            raise ValueError(
                f"{value} is too small, because a sum of {value} can reveal single updates; write 3 or more"
            )
        return value

    @field_validator("neighbours")
    @classmethod
    def _even(cls, value: str | int) -> str | int:
        if value not in ("auto", "all") and (int(value) < 2 or int(value) % 2):
            raise ValueError(f"{value} is not auto, all or an even number from 2 on")
        return value
