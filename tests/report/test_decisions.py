"""What a comparison's page says beyond its tables: names, the decision, gains at each hospital, costs."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import numpy as np
import pandas as pd

from raysim.experiment.run_page import tracked_at
from raysim.metrics.labels import CLASSIFICATION
from raysim.report import naming, svg, tables
from raysim.report.figures import models as figures
from raysim.report.figures.forest import forest
from raysim.report.hospital import gains
from raysim.report.judgement.answer import answer_from, signed
from raysim.report.judgement.card import Card
from raysim.report.judgement.compose import comparison_card
from raysim.report.judgement.evidence import evidence_from
from raysim.report.judgement.gathered import Asked
from raysim.report.judgement.judged import events_figure, marks, not_trained, rarer, sentence
from raysim.report.naming import short
from raysim.statistics.differences.paired import Limits
from raysim.statistics.over_seeds import OverSeeds
from tests.report import test_answer
from tests.report.pages import HOSTILE, Page, frames


def test_names_are_those_that_people_use() -> None:
    table = pd.DataFrame(
        [("a", "global", False), ("a", "personal", False), ("b", "global", False), ("c", "global", True)],
        columns=["strategy", "model", "yardstick"],
    )
    assert list(naming.names(table, {"a": "Method A", "c": "Training alone"}).values()) == [
        "Method A, global model",
        "Method A, hospitals' own models",
        "b",
        "Training alone (reference)",
    ]
    assert naming.names(table, {"a": "Same", "b": "Same"})["b", "global"] == "Same (b)"


def shown_of(shift: float) -> tuple[Card, list[svg.Figure]]:
    """The card of two strategies at 40 hospitals and 3 seeds, the second better by ``shift``."""
    rows, seeds = [], []
    rng = np.random.default_rng(0)
    level = rng.normal(0.8, 0.02, 40)
    for seed in range(3):
        for strategy, more in (("fedavg", 0.0), ("other", shift)):
            auroc = level + more + rng.normal(0, 0.004, 40)
            seeds.append({"strategy": strategy, "model": "global", "seed": seed, "auroc": auroc.mean(), "seconds": 1.0})
            seeds[-1] |= {"bytes_down": 100 * (1 + more / max(shift, 1e-9)), "bytes_up": 50.0}
            names = [f"h{i}" for i in range(40)]
            key = {"strategy": strategy, "model": "global", "seed": seed}
            rows.append(pd.DataFrame({**key, "hospital": names, "n_test": 50, "auroc": auroc}))
    frame, hospitals = pd.DataFrame(seeds), pd.concat(rows, ignore_index=True)
    shown = evidence_from(frame, hospitals, "fedavg")
    assert shown is not None
    table = tables.comparison(frame)
    called = naming.names(table, {"other": "The other", "fedavg": "FedAvg"})
    asked = Asked("death in hospital", "test", None, counted=True)
    card = comparison_card(shown, (), hospitals, asked, names=called, noise={})
    shown = shown.renamed(called)
    differences = tables.differences(frame, "fedavg", hospitals)
    return card, forest(shown, differences, figures.styles(table))


def test_the_card_names_what_is_taken_and_by_how_much_it_is_better() -> None:
    card, (drawn,) = shown_of(0.02)
    assert (card.taken, card.recommended) == ("The other", "other")
    which = card.line("which")
    assert which is not None
    assert re.fullmatch(r"The other is better than FedAvg: \+0\.02\d \(\+0\.0\d+ to \+0\.0\d+\)\.", which.text)
    assert which.state == "ok"
    assert [(way.name, way.role, way.verdict) for way in card.rows] == [
        ("The other", "taken", ""),
        ("FedAvg", "method", "worse"),
    ]
    assert drawn.charts[0].description.startswith("The other +0.02") if drawn.charts else True


def test_the_forest_has_one_line_a_way_and_folds_equal_models() -> None:
    per_seed, hospitals, _ = frames()
    twin = per_seed["strategy"] == "fedprox", hospitals["strategy"] == "fedprox"
    same = per_seed["strategy"] == "fedavg", hospitals["strategy"] == "fedavg"
    per_seed.loc[twin[0], "auroc"] = per_seed.loc[same[0], "auroc"].to_numpy()
    hospitals.loc[twin[1], "auroc"] = hospitals.loc[same[1], "auroc"].to_numpy()
    shown = evidence_from(per_seed, hospitals, "fedavg")
    assert shown is not None
    table = tables.comparison(per_seed)
    shown = shown.renamed(naming.names(table, {}))
    differences = tables.differences(per_seed, "fedavg", hospitals)
    (drawn,) = forest(shown, differences, figures.styles(table))
    page = Page(str(drawn.markup))
    rows = [text for tag, text in page.texts if tag == "span" and text in {*map(short, shown.entries[0].names)}]
    assert rows == [], "the reference has no line, nor has its twin"
    lines = [text.split("</tr>")[0] for text in str(drawn.markup).split("<tr>")[2:]]
    assert len(lines) == 4 + 1, "four other ways, and the axis"
    assert drawn.caption.startswith("fedprox: the same figures as fedavg.")
    for entry in shown.entries[1:]:
        line = next(line for line in lines if f"<span>{short(entry.name)}</span>" in line)
        mean, worst = re.findall(r'class="figure">([^<]+)<', line)
        value = shown.between(shown.entries.index(entry), 0)[0]
        tenth = differences[(differences["strategy"] == entry.key[0]) & (differences["model"] == entry.key[1])]
        tenth = tenth[tenth["figure"] == "worst_decile"]["mean"].item()
        assert (mean, worst) == (naming.number(value, 3, sign=True), naming.number(tenth, 3, sign=True))
        assert line.count("<svg") == 3, "its sign, and a mark for each figure"


def test_a_page_has_one_interval_for_training_alone() -> None:
    """The line, the row, the sentence and the forest have the interval that holds for all methods together."""
    rows, seeds, rng = [], [], np.random.default_rng(0)
    level = rng.normal(0.8, 0.02, 12)
    for seed in range(3):
        for strategy in ("fedavg", "other", "local"):
            auroc = level + rng.normal(0, 0.03, 12)
            key = {"strategy": strategy, "model": "global", "seed": seed, "yardstick": strategy == "local"}
            seeds.append({**key, "auroc": auroc.mean(), "seconds": 1.0, "bytes_down": 100.0, "bytes_up": 50.0})
            names = [f"h{i}" for i in range(12)]
            rows.append(pd.DataFrame({**key, "hospital": names, "n_test": 50, "auroc": auroc}))
    frame, hospitals = pd.DataFrame(seeds), pd.concat(rows, ignore_index=True)
    shown = evidence_from(frame, hospitals, "fedavg", alone=["local"])
    assert shown is not None
    assert shown.alone == 0
    value, joint = shown.alone_less(shown.best)
    assert shown.best == shown.base
    assert joint.high - joint.low > np.diff(shown.of_references[0].population())[0], "wider than by itself"
    table = tables.comparison(frame)
    card = comparison_card(
        shown, (), hospitals, Asked("death", "test", None, counted=True), names=naming.names(table, {}), noise={}
    )
    printed = signed(value, joint, 3)
    line = card.line("federate")
    assert line is not None
    assert signed(-value, Limits(-joint.high, -joint.low), 3) in line.text
    assert (card.rows[1].low, card.rows[1].high) == tuple(joint)
    assert any(printed in sentence for sentence in answer_from(card, shown).reasons)
    (drawn,) = forest(shown, tables.differences(frame, "fedavg", hospitals), figures.styles(table))
    assert f"{naming.number(joint.low, 3, sign=True)} to {naming.number(joint.high, 3, sign=True)}" in drawn.markup
    assert "Intervals against training alone are adjusted for all methods." in drawn.caption


def test_the_forest_of_errors_is_in_the_unit_of_the_label() -> None:
    seeds, hospitals = test_answer.frames({"fedavg": 3.0, "chip": 2.8}, figure="mae", noise=0.02)
    seeds["mae"] *= 1e-4
    hospitals["mae"] *= 1e-4
    shown = evidence_from(seeds, hospitals, "fedavg")
    assert shown is not None
    (drawn,) = forest(shown, tables.differences(seeds, "fedavg", hospitals), figures.styles(tables.comparison(seeds)))
    figure = r"class=\"figure\">.(0\.0000\d{3})<span class=\"limits\"> \(.(0\.0000\d{3}) to .(0\.0000\d{3})\)"
    found = re.search(figure, drawn.markup)
    assert found is not None
    assert float(found[2]) > float(found[1]) > float(found[3]) > 0


def test_the_forest_counts_intervals_without_numbers() -> None:
    seeds, hospitals = test_answer.frames({f"s{i}": 0.8 for i in range(6)}, hospitals=3, seeds=2, noise=0.15)
    shown = evidence_from(seeds, hospitals, "s0")
    assert shown is not None
    (drawn,) = forest(shown, tables.differences(seeds, "s0", hospitals), figures.styles(tables.comparison(seeds)))
    assert drawn.markup.count(">says nothing<") >= 5
    assert "5 intervals of the mean are wider than 0.5 and say nothing; add seeds or hospitals." in drawn.caption


def test_without_a_difference_the_card_claims_none() -> None:
    card, _ = shown_of(0.0)
    assert card.taken == "FedAvg"
    assert [way.verdict for way in card.rows[1:]] in (["no difference"], ["equal"])
    which = card.line("which")
    assert which is not None
    assert which.text.startswith("The other method is not better than FedAvg, the reference")


def test_gains_are_counted_by_hand() -> None:
    over_local = gains.Gains(
        np.array([0.1, 0.02, 0.0, -0.02, -0.2, np.nan]),
        np.array([0.05, -0.1, 0.0, -0.1, -0.3, np.nan]),
        np.array([0.2, 0.1, 0.0, 0.1, -0.1, np.nan]),
        np.array([3, 3, 3, 3, 2, 0]),
        3,
        "FedAvg",
        "training alone",
        CLASSIFICATION,
    )
    first, second = over_local.sentences()
    assert first == (
        "Of 5 judged hospitals, 2 gain over training alone, 2 lose (1 by more than 0.05), and 1 do not change."
    )
    assert second.startswith(
        "The 95 % interval over patients and 3 training seeds demonstrates a gain at 1 hospital and a loss at 1."
    )
    assert second.endswith("without true differences, at most 0.1 would gain by chance on average, and as many lose.")
    once = dataclasses.replace(over_local, seeds=np.array([1, 3, 3, 3, 2, 0]))
    assert (once.gaining().sum(), once.losing().sum()) == (0, 1), "one of three seeds claims nothing"
    alone = dataclasses.replace(over_local, seeds=np.array([1, 1, 1, 1, 1, 0]), trained=1)
    assert (alone.gaining().sum(), alone.losing().sum()) == (1, 1)
    assert "over patients (one training seed) demonstrates a gain at 1 hospital" in alone.sentences()[1]
    chart = gains.caterpillar(over_local)
    assert chart is not None
    numbers = re.findall(r'class="c-?\d+ filled" data-h="(\d)"|data-h="(\d)"', str(chart.markup()))
    assert len(numbers) == 10, "five dots and five whiskers, none of the hospital without a figure"


def test_where_runs_are_looked_at_in_mlflow() -> None:
    assert tracked_at({"uri": "http://host:5000"}) == [("MLflow", "http://host:5000")]
    assert tracked_at({"uri": "sqlite:///my runs.db"}) == [("MLflow: raysim ui --uri 'sqlite:///my runs.db'", "")]
    for nowhere in ("none", "http://me:secret@host", ""):
        assert tracked_at({"uri": nowhere}) == []


def test_the_evidence_says_how_few_events_there_are() -> None:
    _, hospitals, _ = frames(seeds=2, hospitals=12)
    counts = len(hospitals) // 12
    # The last two have 2 and 45 rows without the event: these are their rarer class.
    with_events = hospitals.assign(
        events_test=[0, 0, 1, 1, 1, 2, 3, 9, 10, 30, 23, 200] * counts, n_test=[*[60] * 10, 25, 245] * counts
    )
    text = sentence(with_events, "test")
    assert text.startswith("10 of 12 hospitals are judged")
    assert (
        "with 280 events. The median hospital has 2 rows of the rarer class, and none has more than 45; 9 of 12 have "
        "fewer than ten"
    ) in text
    marked = marks(with_events)
    assert list(marked.values()).count(" (2 of the rarer class)") == 2
    assert len(marked) == 9
    (figure,) = events_figure(with_events, "test")
    assert figure.charts[0].description == ("0 rows: 2 hospitals; 1–9 rows: 7 hospitals; 10–49 rows: 3 hospitals.")
    assert events_figure(hospitals, "test") == []


def test_the_evidence_is_of_all_seeds() -> None:
    hospitals = pd.DataFrame(
        {
            "strategy": "a",
            "model": "global",
            "seed": [0, 0, 0, 1, 1, 1],
            "hospital": ["x", "y", "z"] * 2,
            "n_test": [50, 30, 20, 50, 30, 40],
            "events_test": [4, 0, 12, 1, 2, 12],
            "auroc": [0.7, math.nan, 0.8, 0.6, 0.5, 0.8],
        }
    )
    both = pd.concat([hospitals, hospitals.assign(strategy="b")])
    assert sentence(both, "test") == (
        "2 to 3 of 3 hospitals are judged, on 100 to 120 test rows with 15 to 16 events (each seed splits rows "
        "differently). The median hospital has 2.5 rows of the rarer class (mean of 2 seeds), and none has more "
        "than 10; 2 of 3 have fewer than ten, so figures of single hospitals are uncertain."
    )
    (figure,) = events_figure(both, "test")
    assert figure.charts[0].description == "0 rows: 0 hospitals; 1–9 rows: 2 hospitals; 10–49 rows: 1 hospital."
    assert figure.caption.endswith("Rows are means over 2 seeds, rounded.")
    alike = both.assign(events_test=[4, 0, 12] * 4, n_test=30)
    assert "with 16 events (each seed splits" in sentence(alike, "test")
    assert "The median hospital has 4 rows of the rarer class, and none has more than 12; 2 of 3 have" in sentence(
        alike, "test"
    )
    assert "rounded" not in events_figure(alike, "test")[0].caption


def test_curves_end_at_each_model_s_own_last_round() -> None:
    rounds = pd.DataFrame(
        {
            "strategy": ["short", "chip", "chip", "chip", "chip"],
            "model": ["global", "global", "personal", "global", "personal"],
            "seed": 0,
            "round": [1, 1, 1, 2, 2],
            "auroc": [0.5, 0.6, 0.7, 0.8, 0.9],
        }
    )
    names = {("short", "global"): "Short", ("chip", "global"): "A", ("chip", "personal"): "B"}
    (drawn,) = figures.curves(rounds, names, svg.styles(list(names)))
    assert drawn.title == "Mean AUROC by round"
    assert drawn.charts[0].description.endswith("Short ends at 0.500; A ends at 0.800; B ends at 0.900.")


def test_sizes_tell_the_slope_of_the_table() -> None:
    per_seed, hospitals, _ = frames()
    table = tables.comparison(per_seed)
    names, looks = naming.names(table, {}), figures.styles(table)
    (drawn,) = figures.by_size(hospitals, table, names, looks, {HOSTILE: 3})
    for chart, slope in zip(drawn.charts, table["size_bias"], strict=True):
        assert chart.description.endswith(f"size bias {naming.number(slope, 4, sign=True)}.")
    assert 'data-h="3"' not in drawn.charts[0].markup(), "the undefined hospital has no dot"


def test_each_hospital_is_set_against_the_reference() -> None:
    values = pd.DataFrame(
        [("a", "global", h, v) for h, v in (("x", 0.5), ("y", 0.6), ("z", 0.9))]
        + [("b", "global", h, v) for h, v in (("x", 0.7), ("y", 0.5), ("z", 0.9))],
        columns=["strategy", "model", "hospital", "accuracy"],
    )
    names = {("a", "global"): "A", ("b", "global"): "B"}
    (drawn,) = figures.from_reference(values, "accuracy", "accuracy", ("a", "global"), names, svg.styles(list(names)))
    (line,) = re.findall(r'd="M([^"]*)" class="c\d+ line"', str(drawn.charts[0].markup()))
    heights = [float(point.split()[1]) for point in line.split("L")]
    assert np.allclose(heights, drawn.charts[0].up([-0.1, 0.0, 0.2]), atol=0.06)
    assert "33% of hospitals above it" in drawn.charts[0].description


def test_a_figure_stands_by_itself_as_svg() -> None:
    from xml.etree import ElementTree

    _, (drawn,) = shown_of(0.02)
    root = ElementTree.fromstring(drawn.standalone())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme" not in drawn.standalone()
    assert json.dumps(drawn.tree())


def test_a_run_shows_each_hospital_with_its_interval_in_order() -> None:
    value = np.array([0.9, np.nan, 0.5, 0.7])
    served = OverSeeds(value, value - 0.1, value + 0.05, np.ones(4, dtype=np.int64))
    (drawn,) = gains.standing(served, CLASSIFICATION, "global")
    text = str(drawn.charts[0].markup())
    assert re.findall(r'<circle [^>]*data-h="(\d)"', text) == ["2", "3", "0"]
    assert text.count("whisker") == 3
    assert drawn.charts[0].description.startswith("3 hospitals from 0.500 to 0.900")
    undefined = np.full(2, np.nan)
    nowhere = OverSeeds(undefined, undefined, undefined, np.zeros(2, dtype=np.int64))
    assert gains.standing(nowhere, CLASSIFICATION, "global") == []


def test_two_rows_without_the_event_are_as_few_as_two_events() -> None:
    """Switzerland's 23 events among 25 rows: band 1 to 9, not 10 to 49."""
    frame = pd.DataFrame(
        {"hospital": ["ch", "va"], "auroc": [0.7, 0.8], "n_test": [25, 40], "events_test": [23, 12], "strategy": "a"}
    )
    assert rarer([23, 12], [25, 40]).tolist() == [2, 12]
    (figure,) = events_figure(frame, "test")
    assert figure.charts[0].description == "0 rows: 0 hospitals; 1–9 rows: 1 hospital; 10–49 rows: 1 hospital."
    assert "1 of 2 has fewer than ten" in sentence(frame, "test")
    assert marks(frame) == {"ch": " (2 of the rarer class)"}


def test_models_that_nobody_trained_are_named_and_counted() -> None:
    frame = pd.DataFrame(
        {
            "strategy": ["fedavg"] * 3 + ["local"] * 3,
            "model": ["global"] * 3 + ["personal"] * 3,
            "hospital": ["a", "b", "c"] * 2,
            "n_test": 10,
            "events_test": 4,
            "auroc": [0.7, 0.7, 0.7, 0.6, math.nan, 0.6],
            "trained": ["yes"] * 3 + ["yes", "no", "one class"],
        }
    )
    assert not_trained(frame, {("local", "personal"): "Training alone"}) == [
        "Not trained, so figures are undefined and comparisons leave the hospital out: Training "
        "alone at 1 of 3 hospitals (b).",
        "Trained on rows of one class only, and included: Training alone at 1 of 3 hospitals (c).",
    ]
    assert sentence(frame, "test").startswith("3 of 3 hospitals are judged")
    assert sentence(frame[::-1], "test").startswith("3 of 3 hospitals are judged"), "whichever model is listed first"
    assert not_trained(frame.drop(columns="trained"), {}) == []
