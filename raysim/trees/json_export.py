"""Trees as plain JSON for exports, with values in the units of the outputs instead of scaled integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from raysim.trees.forest import WORD, Forest

FORMAT = 1


def as_json(forest: Forest, names: Sequence[str] = ()) -> dict[str, Any]:
    """Return the forest as JSON values; ``names [F]`` are the names of the columns.

    Each tree adds the ``value`` of the leaf that a row reaches to the output with the index ``class`` (from 0). Any
    node that is not a leaf has a ``column``, an index into ``columns`` (from 0). Numbers go to the node ``left`` if
    they are at most ``at_most`` (null: any number), and categories if they are among ``levels``. All others go to
    ``right``. ``missing`` names the side of missing values and of unknown categories. In trees with random splits,
    ``rows`` (a node's number of rows), ``hessian`` (the sum of second derivatives) and ``gain`` are null.
    """
    unit = 2.0 ** (forest.scale - 40)
    return {
        "format": FORMAT,
        "loss": forest.task.loss,
        "columns": list(names) or [f"x{f + 1}" for f in range(len(forest.task.levels))],
        "levels": list(forest.task.levels),
        "base": [int(value) * unit for value in forest.base],
        "trees": [
            {"class": t % forest.task.outputs, "nodes": [_node(forest, t, node, unit) for node in _nodes(forest, t)]}
            for t in range(len(forest))
        ],
    }


def _nodes(forest: Forest, tree: int) -> list[int]:
    found, inner = [0], forest.column.shape[1]
    for node in found:
        if node < inner and forest.column[tree, node] >= 0:
            found += [2 * node + 1, 2 * node + 2]
    return sorted(found)


def _node(forest: Forest, t: int, node: int, unit: float) -> dict[str, Any]:
    summed = forest.rows[t, 0] > 0
    known = {
        "node": node,
        "rows": int(forest.rows[t, node]) if summed else None,
        "hessian": float(forest.hessian[t, node]) if summed else None,
    }
    if node >= forest.column.shape[1] or forest.column[t, node] < 0:
        return known | {"value": int(forest.value[t, node]) * unit}
    column = int(forest.column[t, node])
    if forest.task.levels[column]:
        levels = [c for c in range(forest.task.levels[column]) if forest.levels[t, node, c // WORD] >> (c % WORD) & 1]
        by: dict[str, Any] = {"levels": levels}
    else:
        at = float(forest.threshold[t, node])
        by = {"at_most": at if math.isfinite(at) else None}
    gain = float(forest.gain[t, node]) or None
    sides = {"missing": "left" if forest.missing_left[t, node] else "right", "gain": gain}
    return known | {"column": column} | by | sides | {"left": 2 * node + 1, "right": 2 * node + 2}
