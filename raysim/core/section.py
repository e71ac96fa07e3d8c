"""What all parts of a configuration have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Seed = Annotated[int, Field(ge=0, lt=2**63)]
"""A seed that :func:`raysim.core.streams.stream` takes."""


class Section(BaseModel):
    """A part of the configuration: immutable, with no key but its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)
