"""The common parts of all sections of a configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from raysim.core.errors import ConfigError

Seed = Annotated[int, Field(ge=0, lt=2**63)]
"""A seed for :func:`raysim.core.streams.stream`."""


def auto_or_from(least: int) -> AfterValidator:
    """Return a validator of a key that is ``auto`` or a whole number of at least ``least``."""

    def checked(value: str | int) -> str | int:
        if value != "auto" and int(value) < least:
            raise ValueError(f"{value} is neither auto nor at least {least}")
        return value

    return AfterValidator(checked)


T = TypeVar("T")


class Section(BaseModel):
    """A section of the configuration. It is immutable, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def make(self, cls: type[T], **others: Any) -> T:
        """Make an instance of the dataclass ``cls``. Fields in ``others`` get the values given there; the other fields
        get the values of the section's keys of the same names.
        """
        fields = {field.name for field in dataclasses.fields(cls)} - others.keys()  # type: ignore[arg-type]
        return cls(**{name: getattr(self, name) for name in type(self).model_fields if name in fields}, **others)

    def refuse_idle(self, where: str, chooser: str, used: Mapping[str, Container[str]]) -> None:
        """Raise ``ConfigError`` for a key that has no effect because of the value of another key, ``chooser``.

        ``used`` maps a key to the values of ``chooser`` with which the key has an effect; other keys always have an
        effect. Keys at their default are allowed, because stored configurations contain them. ``where`` is the
        section's name.
        """
        choice = getattr(self, chooser)
        for name, choices in used.items():
            value = getattr(self, name)
            if choice not in choices and value != type(self).model_fields[name].get_default(call_default_factory=True):
                raise ConfigError(f"{where}.{name}: {value} is not used by {where}.{chooser}: '{choice}'; remove it")
