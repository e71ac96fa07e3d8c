"""The section ``compression``: smaller messages instead of hospitals' whole updates."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from raysim.core.defaults import default
from raysim.core.errors import ConfigError
from raysim.core.section import Section

USED = {
    # A compressor that is switched off may keep its settings.
    "ratio": ("none", "top_k", "random_k"),
    "levels": ("none", "qsgd"),
    "bits": ("none", "grid"),
    "step": ("none", "grid"),
    "indices": ("none", "random_k"),
}
"""The compressors that use each key."""


class CompressionSection(Section):
    """The section ``compression``: a compressor of updates, and what happens to the part that it loses.

    If ``feedback`` is None, only the biased ``top_k`` and ``sign`` use error feedback.
    """

    name: Literal["none", "top_k", "random_k", "sign", "qsgd", "grid"] = default("compression.name")
    ratio: float = default("compression.ratio", gt=0, le=1)
    levels: int = default("compression.levels", ge=1, le=2**20)
    bits: int = default("compression.bits", ge=2, le=32)
    step: float = default("compression.step", gt=0, allow_inf_nan=False)
    indices: Literal["common", "own"] = default("compression.indices")
    feedback: Literal["none", "ef", "ef21"] | None = default("compression.feedback")

    @property
    def remembers(self) -> Literal["none", "ef", "ef21"]:
        """Return the kind of error feedback."""
        if self.feedback is not None:
            return self.feedback
        return "ef" if self.name in ("top_k", "sign") else "none"

    @property
    def of_common_entries(self) -> bool:
        """Whether all hospitals send the same coordinates of their updates. False with error feedback."""
        return self.name == "random_k" and self.indices == "common" and self.remembers == "none"

    @property
    def on_common_grid(self) -> bool:
        """Whether all hospitals round their updates to multiples of the same step. False with error feedback."""
        return self.name == "grid" and self.remembers == "none"

    @property
    def linear(self) -> bool:
        """Whether the server can add compressed messages and decompress only their sum."""
        common = self.name in ("none", "grid") or (self.name == "random_k" and self.indices == "common")
        return common and self.remembers != "ef21"

    @model_validator(mode="after")
    def _contracting(self) -> CompressionSection:
        self.refuse_idle("compression", "name", USED)
        if self.name == "random_k" and self.remembers != "none" and self.ratio < 1:
            raise ConfigError(
                f"compression.feedback: '{self.feedback}' grows without bound with 'random_k', which enlarges the "
                "entries that it sends; write none, or compression.name: top_k"
            )
        return self
