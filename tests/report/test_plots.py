"""Pictures of a comparison: every label readable, none fails, and their words for those who cannot see them."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from raysim.report import tables
from raysim.report.plots import canvas, frontier, models
from raysim.report.svg.chart import spread
from tests.report.pages import frames


def drawn_texts(figure: Figure) -> list[tuple[str, tuple[float, float, float, float]]]:
    """The point labels of a figure's first axes with their boxes in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [text for text in figure.axes[0].texts if text.get_text()]
    # Text.get_window_extent of an annotation would include its line.
    boxes = [super(type(text), text).get_window_extent(canvas.get_renderer()) for text in texts]
    return [(text.get_text(), box.extents) for text, box in zip(texts, boxes, strict=True)]


def overlapping(boxes: list[tuple[str, tuple[float, float, float, float]]]) -> list[tuple[str, str]]:
    return [
        (a, b)
        for (a, (x0, y0, x1, y1)), (b, (u0, v0, u1, v1)) in itertools.combinations(boxes, 2)
        if min(x1, u1) - max(x0, u0) > 0.5 and min(y1, v1) - max(y0, v0) > 0.5
    ]


@pytest.mark.parametrize("draw", [frontier.worst_decile_vs_size_bias, frontier.frontier_3d, None])
def test_labels_do_not_overlap(draw: object) -> None:
    rng = np.random.default_rng(4)
    names = [f"strategy {k}" for k in range(10)]
    close = pd.DataFrame(
        {
            "strategy": names,
            "model": "global",
            "auroc": rng.normal(0.9, 0.002, 10),
            "worst_decile": rng.normal(0.8, 0.002, 10),
            "worst_decile_std": 0.004,
            "size_bias": rng.normal(0.01, 0.0004, 10),
            "size_bias_std": 0.001,
            "gini": rng.normal(0.05, 0.002, 10),
        }
    )
    if draw is None:
        rounds = [pd.DataFrame({"strategy": n, "seed": 0, "round": [1, 2], "auroc": [0.5, 0.9]}) for n in names]
        boxes = drawn_texts(models.curves(pd.concat(rounds)))
    else:
        boxes = drawn_texts(draw(close))  # type: ignore[operator]
    assert sorted(text for text, _ in boxes) == names
    assert overlapping(boxes) == []


def test_a_far_outlier_is_named_and_does_not_squeeze_the_others() -> None:
    per_seed, _, _ = frames()
    table = tables.comparison(per_seed)
    table.loc[table["strategy"] == "local", ["worst_decile", "size_bias", "size_bias_abs"]] = [0.1, 0.5, 0.5]
    figure = frontier.worst_decile_vs_size_bias(table)
    assert any(text.get_text() == "Beyond the axes: local (0.500, 0.100)" for text in figure.texts)
    assert figure.axes[0].get_xlim()[1] < 0.1


def test_the_frontier_calls_those_dominated_whom_the_answer_does() -> None:
    """Means alone make no one dominated: here every strategy but one has a mean that another beats."""
    table = tables.comparison(frames()[0])
    for draw in (frontier.worst_decile_vs_size_bias, frontier.frontier_3d):
        for dominated in ([], ["chip"]):
            marked = table.assign(dominated=table["strategy"].isin(dominated))
            ax = draw(marked).axes[0]
            squares = [line for line in ax.lines if line.get_marker() == "s"]
            assert len(squares) == len(dominated) * int((table["strategy"] == "chip").sum())


@pytest.mark.parametrize("case", ["whole", "one strategy", "one seed", "one hospital", "undefined", "empty", "markup"])
def test_no_picture_fails(case: str, tmp_path: Path) -> None:
    per_seed, hospitals, rounds = frames(seeds=1 if case == "one seed" else 2, hospitals=12)
    if case == "one strategy":
        per_seed, hospitals, rounds = (f[f["strategy"] == "local"] for f in (per_seed, hospitals, rounds))
    if case == "one hospital":
        hospitals = hospitals[hospitals["hospital"] == "hospital 003"]
        per_seed = per_seed.assign(gini=math.nan, std=math.nan, size_bias=math.nan, size_bias_abs=math.nan)
        rounds = rounds[rounds["round"] == 1]
    if case == "undefined":
        per_seed = per_seed.assign(**dict.fromkeys(tables.FIGURES, math.nan))
        hospitals, rounds = hospitals.assign(auroc=math.nan), rounds.assign(auroc=math.nan)
    if case == "empty":
        per_seed, hospitals, rounds = per_seed[:0], hospitals[:0], rounds[:0]
    if case == "markup":  # matplotlib would read this as mathematics
        per_seed, hospitals, rounds = (f.assign(strategy="a $\\frac{$ b") for f in (per_seed, hospitals, rounds))
    table = tables.comparison(per_seed)
    for k, figure in enumerate(
        (
            models.auroc_by_size(hospitals),
            frontier.worst_decile_vs_size_bias(table),
            frontier.frontier_3d(table),
            models.curves(rounds),
        )
    ):
        target = tmp_path / f"{k}.png"
        canvas.save(figure, target, dpi=40)
        assert target.read_bytes().startswith(b"\x89PNG")


def test_pictures_leave_pyplot_alone() -> None:
    code = "import sys, raysim.report.pages.page; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_comparison_needs_no_more_than_its_documented_columns() -> None:
    columns = ["strategy", "model", "auroc", "worst_decile", "gini", "std", "size_bias"]
    table = tables.comparison(frames()[0])[columns]
    for draw in (frontier.worst_decile_vs_size_bias, frontier.frontier_3d):
        assert isinstance(draw(table), Figure)
        assert isinstance(draw(table.drop(columns="model").drop_duplicates("strategy")), Figure)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=12), st.floats(1, 20))
def test_spread_keeps_order_room_and_gap(positions: list[float], gap: float) -> None:
    moved = spread(positions, gap, 0, 100)
    assert min(moved) >= -1e-6
    assert max(moved) <= 100 + 1e-6
    room = min(gap, 100 / max(len(positions) - 1, 1))
    ordered = sorted(moved)
    assert all(b - a >= room - 1e-6 for a, b in itertools.pairwise(ordered))
    by_position = [moved[i] for i in sorted(range(len(moved)), key=lambda i: positions[i])]
    assert by_position == pytest.approx(ordered)
