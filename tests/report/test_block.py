"""The block that commands print: it fits a small terminal, and nothing vanishes without a word."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.core import registry
from raysim.report.judgement.card import Card, Line, MethodRow
from raysim.report.terminal import answers
from raysim.report.terminal.block import MOST, WIDEST, Block, Warning, lines

ROWS = [[f"Method {i}", "0.886", "+0.005 (-0.006 to +0.015)", "no difference"] for i in range(6)]
FULL = Block(
    what="main: death in hospital, 208 hospitals, 38,700 rows with 3,416 events, 8 methods x 5 seeds, 41 s",
    headline="Take FedAvg, recalibrated at each hospital. Before that, use it for ranking, not for risks (too high).",
    warnings=[Warning("Risks are off: recalibrate it", True), Warning("Not trained to the end: FedAvg", False)],
    rows=ROWS,
    notes=["No gap within hospitals demonstrated: age."],
    report="runs/main/report.html",
    next="raysim compare main.yaml --set training.rounds=60",
    more=4,
    noun="model",
)


def test_a_block_has_all_its_parts_in_order() -> None:
    shown = lines(FULL)
    assert len(shown) <= MOST
    assert max(map(len, shown)) <= 80
    text = "\n".join(shown)
    parts = [
        "main: death",
        "Take FedAvg",
        " !! Risks are off",
        " !  Not trained",
        "    Method 0",
        "and 4 more models: --details",
        "No gap",
        "Report runs/main/report.html",
        "Next   raysim compare",
    ]
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)
    assert not any(line != line.rstrip() for line in shown), "no line ends in blanks"


def test_what_does_not_fit_is_counted() -> None:
    long = dataclasses.replace(FULL, warnings=[Warning("word " * 60, True), *FULL.warnings])
    shown = lines(long)
    assert len(shown) == MOST
    left = sum("Method" in line for line in shown)
    assert any(f"and {4 + 6 - left} more models: --details" in line for line in shown)
    assert any(line.startswith("Next") for line in shown)


def test_long_names_stand_whole() -> None:
    name = "Hierarchical clusters, boosted trees, recalibrated (reference)"
    shown = lines(dataclasses.replace(FULL, rows=[["FedAvg", *ROWS[0][1:]], [name, *ROWS[0][1:]]]))
    assert max(map(len, shown)) <= 80
    at = next(i for i, line in enumerate(shown) if line.startswith("    Hierarchical"))
    assert shown[at].endswith("no difference")
    below = [line for line in shown[at:] if line.startswith("    Hier") or line.startswith("      ")]
    assert " ".join(" ".join(line[4:31].strip() for line in below).split()) == name


def test_every_title_of_a_strategy_stands_whole_and_a_reference_on_one_line() -> None:
    for cls in (registry.load("strategies", name, "strategy") for name in registry.entries("strategies")):
        name = f"{cls.title}{' (reference)' if cls.is_reference else ''}"
        rows = [[name, "0.886", "+0.005 (-0.006 to +0.015)", "no difference"]]
        first, *further = lines(Block("what", "answer", rows=rows))[2:]
        assert first.startswith(f"    {name}  ") or (further and not cls.is_reference), first
        assert " ".join([first[4:].split("  ")[0], *map(str.strip, further)]) == name


def test_references_go_last_where_lines_run_out() -> None:
    rows = [
        ["FedAvg", "taken"],
        ["Ditto", "worse"],
        ["MOON", "worse"],
        ["Training alone", "worse"],
        ["Pooled", "worse"],
    ]
    block = Block("what", "answer", rows=rows, references=2)
    left = [[line.split()[0] for line in lines(block, most=most)[2:]] for most in (7, 6, 5)]
    assert left[0] == ["FedAvg", "Ditto", "MOON", "Training", "Pooled"]
    assert left[1:] == [["FedAvg", "Training", "Pooled", "and"], ["FedAvg", "Training", "and"]]


@given(
    st.integers(20, 200),
    st.lists(st.text("ab ", max_size=200), max_size=6),
    st.lists(st.booleans(), min_size=6, max_size=6),
    st.integers(0, 12),
)
def test_a_block_is_never_wider_than_it_may_be(width: int, texts: list[str], flags: list[bool], rows: int) -> None:
    warnings = [Warning(text, flag) for text, flag in zip(texts, flags, strict=False)]
    block = Block("what was run", "the answer", warnings, [["a", "1"]] * rows, texts)
    shown = lines(block, width)
    longest = max([len(word) for text in texts for word in text.split()] + [0])
    assert max(map(len, shown)) <= max(min(width, WIDEST), longest + 4)
    if rows:
        assert any(line.startswith("    a") for line in shown)
    counted = sum(line == "    a         1" for line in shown)
    if counted < rows:
        assert any(f"and {rows - counted} more" in line for line in shown)


LINES = (
    Line("quality", "warn", "AUROC 0.886.", None, "act between 41 and 74 % only", True, "at 20 % it does more harm"),
    Line(
        "calibration",
        "warn",
        "Risks are off.",
        None,
        "recalibrate it",
        True,
        "risks 3.1 times too high",
        "recalibrate=both",
    ),
    Line("fairness", "ok", "No gap."),
    Line(
        "training",
        "warn",
        "Not trained to the end: FedAvg.",
        None,
        "try training.rounds=40",
        short="not trained",
        setting="training.rounds=40",
    ),
)
WAYS = (
    MethodRow("FedAvg", ("fedavg", "global"), "taken", 0.886, also=("FedProx",)),
    MethodRow("Training alone", ("local", "personal"), "reference", 0.837, -0.049, -0.076, -0.022, "worse"),
    *(MethodRow(f"M{i}", (f"m{i}", "global"), "method", 0.88, -0.006, -0.01, 0.01, "no difference") for i in range(7)),
)
CARD = Card("death", "Take FedAvg.", LINES, WAYS, "ranking", "yes", "fedavg", "FedAvg", "death")


def test_the_block_of_a_card() -> None:
    block = answers.block(CARD, "main", 41.2, "report.html", "raysim ui")
    assert block.what == "main: death, 41 s"
    assert block.warnings == [
        Warning("At 20 % it does more harm: act between 41 and 74 % only", True),
        Warning("Risks 3.1 times too high: recalibrate it", True),
        Warning("Not trained: try training.rounds=40", False),
    ]
    assert block.rows[0] == ["FedAvg = FedProx", "0.886", "taken (mean AUROC)", ""]
    assert block.rows[1][0] == "M0"
    assert block.rows[-1] == ["Training alone (reference)", "0.837", "-0.049 (-0.076 to -0.022)", "worse"]
    assert (len(block.rows), block.more, block.notes) == (6, 3, ["No gap."])
    alone = dataclasses.replace(CARD, rows=WAYS[:1])
    assert answers.block(alone, "main", 300.0, "", "").rows == []
    assert answers.block(alone, "main", 300.0, "", "").what == "main: death, 5 min"


def test_risks_that_are_not_demonstrated_to_be_right_have_the_first_note() -> None:
    risks = Line("calibration", "open", "It is not demonstrated that risks are right: 1.36. Off at none.")
    card = dataclasses.replace(CARD, lines=(risks, Line("fairness", "ok", "No gap.")))
    notes = answers.block(card, "main", 1.0, "", "").notes
    assert notes == ["It is not demonstrated that risks are right: 1.36.", "No gap."]
    values = dataclasses.replace(card, use="values")
    assert answers.block(values, "main", 1.0, "", "").notes == ["No gap."]


def test_where_all_is_recalibrated_rows_say_the_method() -> None:
    ways = [
        dataclasses.replace(way, name=f"{way.name}, recalibrated", key=(way.key[0], "recalibrated")) for way in WAYS
    ]
    rows = answers.block(dataclasses.replace(CARD, rows=tuple(ways)), "main", 1.0, "", "").rows
    assert [row[0] for row in rows[1:3]] == ["M0", "M1"]
    mixed = dataclasses.replace(CARD, rows=(ways[0], *WAYS[1:]))
    assert answers.block(mixed, "main", 1.0, "", "").rows[0][0] == "FedAvg, recalibrated = FedProx"


def test_references_with_several_models_hide_no_federated_way() -> None:
    references = [
        MethodRow(f"{name}, {model}", (f"{name}, {model}", "global"), "reference", mean)
        for mean, model in ((0.8, "linear"), (0.85, "trees"), (0.82, "mlp"))
        for name in ("local", "centralized")
    ]
    rows = answers.block(dataclasses.replace(CARD, rows=(WAYS[0], *references, *WAYS[2:])), "main", 1.0, "", "").rows
    assert [row[0] for row in rows[:4]] == ["FedAvg = FedProx", "M0", "M1", "M2"]
    assert [row[1] for row in rows[4:]] == ["0.850", "0.850"]


@pytest.mark.parametrize(
    ("fact", "command", "next_one"),
    [
        ("training", "compare", "raysim compare 'a b.yaml' --set training.rounds=40"),
        ("calibration", "compare", "raysim compare 'a b.yaml' --set recalibrate=both"),
        ("calibration", "run", "raysim compare 'a b.yaml'"),
        ("", "compare", "raysim compare 'a b.yaml' --details"),
    ],
)
def test_the_next_command_mends_what_is_worst(fact: str, command: str, next_one: str) -> None:
    from pathlib import Path

    kept = tuple(line for line in LINES if line.fact == fact or (fact == "training" and line.fact == "calibration"))
    assert answers.next_command(dataclasses.replace(CARD, lines=kept), command, Path("a b.yaml")) == next_one


def test_the_next_command_keeps_what_was_set() -> None:
    from pathlib import Path

    given = ["training.rounds=30", "data.split.seed=1", "name=a b"]
    still = Line("training", "warn", "Still learning.", None, short="still learning", setting="training.rounds=40")
    one = answers.next_command(dataclasses.replace(CARD, lines=(still,)), "compare", Path("a.yaml"), given)
    assert one == "raysim compare a.yaml --set data.split.seed=1 --set 'name=a b' --set training.rounds=40"
    assert answers.next_command(dataclasses.replace(CARD, lines=()), "run", None, ["a=1"]) == (
        "raysim compare --set a=1"
    )


def test_what_is_recalibrated_already_is_not_asked_for_again() -> None:
    from pathlib import Path

    done = dataclasses.replace(LINES[1], remedy="more labelled rows", setting="")
    card = dataclasses.replace(CARD, lines=(done,))
    assert answers.next_command(card, "compare", Path("a.yaml")) == "raysim compare a.yaml --details"


def test_a_training_that_diverged_has_no_command_without_a_value() -> None:
    from pathlib import Path

    line = Line("training", "warn", "Training diverged.", None, "lower training.learning_rate", short="diverged")
    card = dataclasses.replace(CARD, lines=(line, LINES[1]))
    assert answers.next_command(card, "compare", Path("a.yaml")) == "raysim compare a.yaml --details"


def test_the_room_of_a_remark_that_is_left_out_is_used() -> None:
    rows = [[f"M{k}", "worse"] for k in range(4)]
    block = Block("what", "answer", [Warning("a " * 100, False)], rows)
    assert [line.split()[0] for line in lines(block, most=7)] == ["what", "answer", "M0", "M1", "M2", "M3", "and"]


def test_one_remark_that_is_left_out_is_one() -> None:
    mild = [Warning("a " * 100, False), Warning("b " * 60, False)]
    assert any("1 remark: --details" in line for line in lines(Block("what", "answer", mild), most=6))
