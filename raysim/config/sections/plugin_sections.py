"""Sections that name a plug-in: data, model, selection, strategy.

The plug-in's class checks their further keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from raysim.config.serialise import made, place_of, section_of
from raysim.core.defaults import default
from raysim.data.split import Split
from raysim.strategies.base import Strategy

T = TypeVar("T")

LONGEST_NAME = 100
"""The largest number of characters of an experiment's name and of a strategy's label."""


def short_enough(name: str) -> str:
    """Return ``name`` unchanged. Raises ``ValueError`` if it is too long to name a folder."""
    size = len(name.encode(errors="replace"))
    if len(name) > LONGEST_NAME or size > 2 * LONGEST_NAME:
        raise ValueError(
            f"'{name}' has {len(name)} characters ({size} bytes); at most {LONGEST_NAME} characters and "
            f"{2 * LONGEST_NAME} bytes are allowed"
        )
    return name


Label = Annotated[str, AfterValidator(short_enough)]
"""A name for tables and folders."""


class OpenSection(BaseModel):
    """A section whose further keys belong to the plug-in that it names."""

    model_config = ConfigDict(extra="allow", frozen=True)

    _made: tuple[dict[str, Any], Any] | None = PrivateAttr(None)

    def once(self, make: Callable[[], T]) -> T:
        """Return the plug-in that this section describes. ``make`` makes it in the first call, and again only if the
        section's keys have changed.
        """
        if self._made is None or self._made[0] != dict(self):
            self._made = dict(self), make()
        plug_in: T = self._made[1]
        return plug_in

    def options(self) -> dict[str, Any]:
        """Return the keys that belong to the plug-in."""
        return dict(self.model_extra or {})

    def having(self, options: Mapping[str, Any], plug_in: Any = None) -> Self:
        """Return a copy of this section in which ``options`` replace the keys that belong to the plug-in.

        ``plug_in`` is the plug-in that was made from ``options``, if there is one.
        """
        fields = {field.alias or name: getattr(self, name) for name, field in type(self).model_fields.items()}
        section = type(self).model_validate({**fields, **options})
        section._made = None if plug_in is None else (dict(section), plug_in)
        return section

    def frozen(self) -> dict[str, Any]:
        """Return the section as plain YAML types, with all defaults."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @model_serializer(mode="wrap")
    def _keep_unset_options(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A key that is None may have another default, so it is written, too.
        return {**write(self), **{key: None for key, value in self.options().items() if value is None}}


class DataSection(OpenSection):
    """The section ``data``: the source and its keys, which hospitals and rows are used, and how features are prepared.

    - ``minimum``: hospitals with fewer rows are dropped. ``largest``: the number of largest hospitals that are kept;
      None: all.
    - ``missing_flags``: whether each feature with missing training values gets a further feature that marks them.
    - ``ranges``: for each feature a list of its smallest and largest value, or of its categories. The list includes
      null if the feature may be missing.
    - ``scores``: existing scores of the rows, such as APACHE IV, as references of a comparison. They are never
      features. None: there are none.
    - ``predicts``: what reports call the label, a phrase in one line. None: the source's phrase.
    """

    source: str = default("data.source")
    predicts: str | None = default("data.predicts")
    minimum: int | None = default("data.minimum", ge=1)
    largest: int | None = default("data.largest", ge=1)
    scores: tuple[str, ...] | None = default("data.scores")
    split: Split = Field(default_factory=Split)
    preprocessing: Literal["standard", "median", "none", "declared"] = default("data.preprocessing")
    missing_flags: bool = default("data.missing_flags")
    ranges: dict[str, list[Any]] | None = default("data.ranges")

    @field_validator("predicts")
    @classmethod
    def _phrase(cls, value: str | None) -> str | None:
        if value is not None and (not value.strip() or not value.isprintable() or len(value) > LONGEST_NAME):
            raise ValueError(f"write a phrase of 1 to {LONGEST_NAME} characters in one line, such as death in hospital")
        return None if value is None else value.strip()

    @field_validator("scores")
    @classmethod
    def _each_once(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        repeated = next((name for name in value or () if (value or ()).count(name) > 1), None)
        if repeated is not None:
            raise ValueError(f"'{repeated}' is named twice; name each score once")
        return value or None

    @model_validator(mode="before")
    @classmethod
    def _source_alone(cls, value: Any) -> Any:
        return {"source": value} if isinstance(value, str) else value


class PlugIn(OpenSection):
    """A section that names a plug-in by ``name``, or by import path, such as ``class: my_module.Mine``."""

    name: str | None
    class_path: str | None

    @model_validator(mode="before")
    @classmethod
    def _one_plug_in(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if not isinstance(value, Mapping):
            return value
        name, path = value.get("name"), value.get("class")
        if name is not None and path is not None:
            raise ValueError(f"class '{path}' and name '{name}' cannot both be set; keep one of them")
        if path is not None or value.get("from") is not None:
            return {"name": None, **value}  # else the name would be the default one
        return {key: entry for key, entry in value.items() if key != "name" or entry is not None}


class ModelSection(PlugIn):
    """The section ``model``: the model, its options, its initial parameters, and its name in tables."""

    name: str | None = default("model.name")
    class_path: str | None = default("model.class", alias="class")
    label: Label | None = default("model.label")
    init: Literal["default", "zeros"] = default("model.init")

    @property
    def learner(self) -> str:
        """Return the name of the model in tables: its label, else its name, else its class."""
        return self.label or self.name or (self.class_path or "").rpartition(".")[2]


class SelectionSection(PlugIn):
    """The section ``selection``: client sampling, which decides the hospitals that take part in a round."""

    name: str | None = default("selection.name")
    class_path: str | None = default("selection.class", alias="class")


class StrategySection(PlugIn):
    """The section ``strategy``: a federated method, its hyper-parameters, and a label for tables.

    ``from`` names another configuration, such as a sweep's recommendation; that configuration's strategy, training,
    selection and model are then used. In Python a strategy or its class may replace the section.
    """

    name: str | None = default("strategy.name")
    class_path: str | None = default("strategy.class", alias="class")
    label: Label | None = default("strategy.label")
    from_path: Path | None = default("strategy.from", alias="from")
    _given: Strategy | None = PrivateAttr(None)

    @property
    def given(self) -> Strategy | None:
        """Return the strategy object that Python code gave in place of a section; None if there is none."""
        return self._given

    @model_validator(mode="wrap")
    @classmethod
    def _from_python(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        whole = isinstance(value, Strategy)
        if not whole and not (isinstance(value, type) and issubclass(value, Strategy)):
            return handler(value)
        given = value if whole else made(value)
        written = section_of(given)
        # A class, unlike an instance, leaves its fields to the other keys of the section.
        section = handler(written if whole else place_of(value))
        section._given = given
        return section

    def having(self, options: Mapping[str, Any], plug_in: Any = None) -> Self:
        section = super().having(options, plug_in)
        section._given = self._given
        return section
