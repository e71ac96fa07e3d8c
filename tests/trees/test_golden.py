"""Trees of small tables, to the digits that were computed for them elsewhere."""

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from raysim.trees.boosting import boosted
from raysim.trees.json_export import as_json
from raysim.trees.losses import GRID, probability
from raysim.trees.settings import TreeSettings, TreeTask
from tests.trees.tables import table_c, table_r, task_r

TREES_R = [
    (
        {0: (0, 11.5, 2.377838849), 1: (1, np.inf, 4.271590860), 2: (2, 3.5, 1.476490980)},
        [-0.349748744, 0.232258065, 0.298224852, -0.077419355],
        [9, 4, 7, 4],
    ),
    (
        {0: (1, 4.5, 1.771558197), 1: (0, 9.5, 4.391399285), 2: (0, 6.5, 0.254126890)},
        [-0.390444321, 0.144417738, 0.247272413, 0.013614748],
        [6, 10, 5, 3],
    ),
    (
        {0: (1, 4.5, 1.309568234), 1: (0, 9.5, 2.918103957), 2: (0, 6.5, 0.197104303)},
        [-0.321408207, 0.118599107, 0.219135353, 0.011990302],
        [6, 10, 5, 3],
    ),
]


def test_labels_of_table_r():
    assert "".join(map(str, table_r()[1])) == "001110111101101001110110"


def test_trees_of_table_r():
    X, y = table_r()
    forest = boosted(task_r(), X, y)
    assert forest.base[0] / 2**40 == pytest.approx(0.5108256238, abs=1e-10)
    for t, (splits, values, rows) in enumerate(TREES_R):
        for node, (column, threshold, gain) in splits.items():
            assert forest.column[t, node] == column
            assert forest.threshold[t, node] == threshold
            assert forest.gain[t, node] == pytest.approx(gain, abs=5e-9)
        assert forest.value[t, 3:] / 2**40 == pytest.approx(values, abs=1e-9)
        assert forest.rows[t, 3:].tolist() == rows
    assert not forest.missing_left[0, 1]
    assert not forest.missing_left[1:, 0].any()
    margins = forest.margins(X)[:, 0]
    assert margins[:4] == pytest.approx([-0.5507756484, -0.5507756484, 0.6964231140, 1.0720673209], abs=1e-9)
    assert log_loss(y, probability(margins)) == pytest.approx(0.4458729617, abs=1e-10)


def test_split_by_classes_in_turn():
    X, y = table_r()
    r = np.arange(24)
    y = ((r**2 + r) % 3 + (X[:, 0] > 11)).astype(np.int64) % 3
    assert np.bincount(y).tolist() == [13, 7, 4]
    settings = TreeSettings(trees=1, depth=1, rate=1.0, min_rows=1, bins=64, edges="exact")
    forest = boosted(TreeTask(settings, (0, 0), 3), X[:, [0, 2]], y)
    assert len(forest) == 3
    assert (forest.column[0, 0], forest.threshold[0, 0]) == (0, 5.5)
    assert forest.gain[0, 0] == pytest.approx(2.7153838254, abs=1e-9)
    assert forest.value[0, 1:] / 2**40 == pytest.approx([0.8065948003, -0.4230129697], abs=2e-9)


def test_split_by_categories():
    r = np.arange(24)
    category = (r**2 + r // 3) % 6
    y = (category % 2 == 0) ^ (r % 7 == 0)
    settings = TreeSettings(trees=1, depth=1, rate=1.0, min_rows=1)
    task = TreeTask(settings, (6,), 2)
    X = category[:, None].astype(np.float32)
    from raysim.trees.forest import Forest

    forest = boosted(task, X, y.astype(np.int64), forest=Forest.start(task, np.zeros(1, np.int64)))
    node = as_json(forest)["trees"][0]["nodes"][0]
    assert node["levels"] == [0, 2, 3, 4]
    assert node["gain"] == pytest.approx(7.5740259740, abs=1e-9)
    assert forest.value[0, 1:] / 2**40 == pytest.approx([0.9090909091, -1.2], abs=1e-9)


@pytest.mark.parametrize(
    ("bins", "min_rows", "auroc"), [(16, 1, 0.9913978495), (16, 10, 0.9922581), (16, 20, 0.9929032), (64, 1, 0.9909677)]
)
def test_scores_of_table_c(bins, min_rows, auroc):
    X, y, X_test, y_test = table_c()
    settings = TreeSettings(trees=60, depth=3, rate=0.1, min_rows=min_rows, bins=bins, edges="exact")
    forest = boosted(TreeTask(settings, (0,) * 30, 2), X, y)
    margins = forest.margins(X_test)[:, 0]
    assert roc_auc_score(y_test, margins) == pytest.approx(auroc, abs=1e-7)
    if (bins, min_rows) == (16, 1):
        assert log_loss(y_test, probability(margins)) == pytest.approx(0.1213995341, abs=1e-8)


def test_edges_by_16_bits_of_table_c():
    X, y, X_test, y_test = table_c()
    settings = TreeSettings(trees=60, depth=3, rate=0.1, min_rows=1, bins=16)
    forest = boosted(TreeTask(settings, (0,) * 30, 2), X, y)
    assert roc_auc_score(y_test, forest.margins(X_test)[:, 0]) == pytest.approx(0.994624, abs=0.002)


def test_root_sums_of_table_r():
    X, y = table_r()
    forest = boosted(task_r(trees=1), X, y)
    assert forest.hessian[0, 0] == 5.625
    assert GRID == 2**30
