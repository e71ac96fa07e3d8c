"""What all parts of a configuration have in common."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Seed = Annotated[int, Field(ge=0, lt=2**63)]
"""A seed that :func:`raysim.core.streams.stream` takes."""

T = TypeVar("T")


class Section(BaseModel):
    """A part of the configuration: immutable, with no key but its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def make(self, cls: type[T], **others: Any) -> T:
        """The dataclass ``cls`` with the values of all keys that are among its fields; ``others`` it has as given."""
        fields = {field.name for field in dataclasses.fields(cls)} - others.keys()  # type: ignore[arg-type]
        return cls(**{name: getattr(self, name) for name in type(self).model_fields if name in fields}, **others)
