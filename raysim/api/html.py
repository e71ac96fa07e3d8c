"""HTML of results for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import pandas as pd

from raysim.config.paths import display_path
from raysim.metrics.labels import reporting
from raysim.report.terminal.tables import ranking
from raysim.statistics.differences.paired import FEW_HOSPITALS


def page(title: str, content: str, sentences: Sequence[str], folder: Path) -> str:
    """Return HTML with a title, the table ``content``, sentences, and the path of the folder with all files."""
    paragraphs = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences if sentence)
    files = f"<p><small>files: {escape(display_path(folder))}</small></p>"
    return f"<div><p><b>{escape(title)}</b></p>{content}{paragraphs}{files}</div>"


def table(models: pd.DataFrame) -> str:
    """Return an HTML table with one row per model: the metrics that commands print."""
    kind = reporting(models)
    few = "hospitals" in models and bool(models["hospitals"].max() < FEW_HOSPITALS)
    headings = ranking(kind, models[kind.headline], few=few)
    ranked = models[list(headings)].rename(columns=headings)
    return ranked.to_html(float_format=lambda value: f"{value:.4g}", na_rep="undefined", border=0)
