"""Digests of the data that trained an exported model.

``raysim validate`` compares them with the digests of the data that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from raysim.config import plugins
from raysim.config.schema import Config
from raysim.core.errors import RaysimError
from raysim.data.cache import digest, file_digest

UNKNOWN = (
    "The folder does not name the rows that trained the model: if rows of these hospitals did, its figures are too "
    "good; export it again."
)
UNSAID = "It is not known which rows trained the model: if rows of these hospitals did, its figures are too good."
SHARED = (
    "Rows of this table trained the model: its figures are too good; judge other rows, or its test rows with the "
    "run's own config.yaml."
)
TEST_ROWS = "Other rows of this table trained the model: only the test rows of its run are judged."


def trained_on(config: Config) -> dict[str, Any]:
    """Return digests of the files of ``config``, and of its settings that select training rows.

    The result is empty if the files cannot be read.
    """
    try:
        source = plugins.build_source(config.data)
        files = sorted(file_digest(path) for path in source.files())
    except (OSError, RaysimError):
        return {}
    fields = TypeAdapter(type(source)).dump_python(source, mode="json")
    own = set(type(config.data).model_fields) - {"scores", "preprocessing"}  # other fields belong to the source
    rows = [fields, config.data.model_dump(mode="json", include=own), config.seed]
    return {"files": files or [digest(config.data.source, fields)], "rows": digest(*rows)}


def shared(stored: Mapping[str, Any] | None, config: Config) -> tuple[str | None, bool]:
    """Return a remark if a model may have been trained on the data of ``config``, else None.

    Also returns whether ``config`` has the same data and split as the model's run, so that the test rows can be used.
    ``stored`` is the result of :func:`trained_on` for the model's run; None if unknown.
    """
    if stored is None:
        return UNSAID, False
    if not stored:
        return UNKNOWN, False
    here = trained_on(config)
    if not set(stored["files"]) & set(here.get("files", ())):
        return None, False
    same = stored == here
    return (TEST_ROWS if same else SHARED), same
