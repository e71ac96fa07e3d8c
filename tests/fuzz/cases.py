"""Cases, drawn by hypothesis: configurations, YAML and tables."""

from __future__ import annotations

import contextlib
import copy
import io
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from hypothesis import strategies as st

from raysim.core import registry
from raysim.core.defaults import table
from tests.fuzz.command import SECONDS, answer


@dataclass(frozen=True)
class Case:
    """Files to write into an empty folder, or to change in a copy of ``template``; then a command.

    ``same``: files that must be those of the run that nobody disturbed, where the command ends with 0. ``ends``: exit
    codes that may come with no word on stderr. ``seconds``: how long it may take; 0 where whoever waits for it says so.
    """

    arguments: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    template: Path | None = None
    must_refuse: bool = False
    same: tuple[str, ...] = ()
    ends: tuple[int, ...] = (0,)
    seconds: float = SECONDS

    def lay_out(self, folder: Path) -> None:
        """Put its files into ``folder``."""
        if self.template is not None:
            shutil.copytree(self.template, folder, dirs_exist_ok=True)
        for name in self.removed:
            (folder / name).unlink()
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


TREE: dict[str, Any] = {
    "name": "fuzz",
    "data": {"source": "synthetic", "hospitals": 4, "rows": 120, "features": 3},
    "training": {"rounds": 1, "batch_size": 32},
    "tracking": {"uri": "none"},
    "checkpoint": {"every": 0},
}

LASTING = re.compile(r"rounds|epochs|steps|iterations|retries|patience|every|restarts|starts|passes|proposals|trials")
"""Keys whose large values ask for long computations, and get them."""

HUGE = (10**12, 10**30, 1e300)

odd = st.one_of(
    st.sampled_from(
        [
            None,
            True,
            False,
            "",
            " ",
            "x",
            "none",
            "auto",
            "../x",
            "a" * 300,
            "\x1b[2J",
            "é☃",
            "a\ud800",
            "1e3",
            "=1+1",
            "-1",
            [],
            {},
        ]
    ),
    st.sampled_from([-1, 0, 1, 2, 3, 0.5, -0.5, 1.5, float("nan"), float("inf"), float("-inf"), *HUGE]),
    st.lists(st.sampled_from([None, -1, 0, 1, 2, 0.5, "x", float("nan"), [], {}]), max_size=4),
    st.dictionaries(
        st.sampled_from(["x", "name", "uniform", "choice", "0", ""]),
        st.sampled_from([None, 1, "x", [1, 2]]),
        max_size=2,
    ),
    st.text(max_size=6),
)
"""Values that some key may not expect."""


def plug_in_keys(kind: str, name: str, section: str) -> list[str]:
    """Dotted keys of a plug-in's own settings."""
    cls = registry.load(kind, name, section)
    names = getattr(cls, "__dataclass_fields__", None) or getattr(cls, "model_fields", {})
    return [f"{section}.{each}" for each in names]


def put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key, through whatever is in the way."""
    *parents, last = key.replace("*", "hospital_1").split(".")
    for parent in parents:
        below = tree.get(parent)
        tree[parent] = {"name": below} if isinstance(below, str) else below if isinstance(below, dict) else {}
        tree = tree[parent]
    tree[last] = value


@st.composite
def configurations(draw: st.DrawFn) -> Case:
    """A small configuration that runs, with a few keys that hold something else."""
    tree = copy.deepcopy(TREE)
    strategy = draw(st.sampled_from(sorted(registry.entries("strategies"))))
    selection = draw(st.sampled_from(sorted(registry.entries("selections"))))
    tree |= {"strategy": {"name": strategy}, "selection": {"name": selection}}
    tree["model"] = {"name": draw(st.sampled_from(["logistic_regression", "linear_regression", "mlp"]))}
    keys = [key for key in table() if not key.startswith("tracking")]
    keys += plug_in_keys("strategies", strategy, "strategy") + plug_in_keys("selections", selection, "selection")
    keys += [*plug_in_keys("sources", "synthetic", "data"), "model.hidden", "tracking.uri", "tracking.experiment"]
    unknown = draw(st.integers(0, 9)) == 0
    if unknown:
        section = draw(st.sampled_from(["", "training.", "evaluation.", "resources.", "checkpoint.", "tracking."]))
        put(tree, f"{section}{draw(st.sampled_from(['no_such_key', 'k' * 5000, '=1', 'a b']))}", draw(odd))
    else:
        for key in draw(st.lists(st.sampled_from(keys), min_size=1, max_size=3, unique=True)):
            value = draw(odd)
            put(tree, key, 1 if LASTING.search(key) and value in HUGE else value)
    text = yaml.safe_dump(tree, allow_unicode=draw(st.booleans()))
    arguments = ("run", "c.yaml", "--in-process", "--out", "out")
    return Case(arguments, {"c.yaml": text.encode(errors="surrogatepass")}, must_refuse=unknown)


TOKENS = [
    "a",
    "data",
    "training",
    "name",
    ":",
    ": ",
    "-",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ",",
    "&a ",
    "*a",
    "!!int ",
    "!!set ",
    "!!binary ",
    "|",
    ">",
    "'",
    '"',
    "\n",
    "\n  ",
    "\t",
    "#",
    "1",
    "0x",
    ".inf",
    ".nan",
    "2001-13-01",
    "1:30",
    "<<",
    "<<: *a",
    "---",
    "...",
    "%YAML 9",
    "?",
    "? ",
    "~",
    "\ufeff",
    "\x85",
    "\x00",
    "é",
]


@st.composite
def texts(draw: st.DrawFn) -> Case:
    """What may be YAML."""
    whole = st.lists(st.sampled_from(TOKENS), max_size=30).map("".join) | st.text(max_size=40)
    content = draw(whole.map(lambda text: text.encode(errors="replace")) | st.binary(max_size=40))
    small = ["training.rounds=0", "data.hospitals=3", "data.rows=60", "tracking.uri=none"]
    settings = [word for each in small for word in ("--set", each)]
    return Case(("run", "c.yaml", "--in-process", "--out", "out", *settings), {"c.yaml": content})


CELLS = [
    "",
    "0",
    "1",
    "-1",
    "x",
    "nan",
    "NA",
    "inf",
    "-inf",
    "1e400",
    "9" * 40,
    "é",
    '"',
    '""',
    "=1+1",
    '="007"',
    '="',
    "a,b",
    " 1",
    "1 ",
    "\x00",
    "true",
    "2001-01-01",
    "a" * 5000,
]

LINES = [["site", "died", "age", "sex", "x", "unit"]] + [
    [f"h{i % 3}", str(i % 2), str(20 + i), "FM"[i // 2 % 2], str(i / 7), "abc"[i % 3]] for i in range(30)
]


def spoilt(draw: st.DrawFn, content: bytes) -> bytes:
    """The bytes with a few flipped, cut out, repeated or put in."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(changed) - 1, 0)))
        how = draw(st.sampled_from(["flip", "cut", "end", "repeat", "insert"]))
        if how == "flip" and changed:
            changed[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "cut":
            del changed[at : at + draw(st.integers(1, 40))]
        elif how == "end":
            del changed[at:]
        elif how == "repeat":
            changed[at:at] = changed[at : at + 50] * draw(st.integers(1, 4))
        else:
            changed[at:at] = draw(st.binary(max_size=8))
    return bytes(changed)


@st.composite
def tables(draw: st.DrawFn) -> Case:
    """CSV and Parquet files, whose cells, lines, columns, types or bytes are not what they should be."""
    lines = copy.deepcopy(LINES)
    for _ in range(draw(st.integers(0, 4))):
        row, column = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines[0]) - 1))
        lines[row][column] = draw(st.sampled_from(CELLS))
    lines = lines[: draw(st.sampled_from([0, 1, 2, 3, 31, 31, 31, 31]))]
    name = draw(st.sampled_from(["t.csv", "t.csv", "t.csv.gz", "t.parquet", "t.parquet"]))
    if name.endswith("parquet"):
        content = parquet(draw, lines)
    else:
        content = "\n".join(",".join(line) for line in lines).encode()
        if name.endswith("gz"):
            import gzip

            content = gzip.compress(content)
    if draw(st.booleans()):
        content = spoilt(draw, content)
    data: dict[str, Any] = {"source": "table", "path": name, "silo": "site", "label": "died"}
    extra = st.sampled_from(
        [
            {},
            {"patient": "age"},
            {"numeric": ["x"]},
            {"categorical": ["unit"]},
            {"drop": ["x"]},
            {"label": "x"},
            {"silo": "x"},
        ]
    )
    tree = TREE | {"data": data | draw(extra)}
    return Case(("describe", "c.yaml"), {name: content, "c.yaml": yaml.safe_dump(tree).encode()})


def parquet(draw: st.DrawFn, lines: list[list[str]]) -> bytes:
    """A Parquet file of such lines, with a column of some type that has no place in a table of patients."""
    head, *rows = lines or [[]]
    frame = pd.DataFrame({f"{i}": [row[i] for row in rows] for i in range(len(head))})
    columns = {name: pa.array(frame[f"{i}"].tolist(), pa.string()) for i, name in enumerate(head)}
    n = len(rows)
    strange: list[Callable[[], Any]] = [
        lambda: pa.array([[1, 2]] * n, pa.list_(pa.int64())),
        lambda: pa.array([{"a": 1}] * n, pa.struct([("a", pa.int64())])),
        lambda: pa.array([b"\xff\xfe"] * n, pa.binary()),
        lambda: pa.array([2**64 - 1] * n, pa.uint64()),
        lambda: pa.array([None] * n, pa.null()),
        lambda: pa.array([1] * n, pa.timestamp("ns")),
        lambda: pa.array([1] * n, pa.date32()),
        lambda: pa.array([1] * n, pa.duration("s")),
        lambda: pa.array([None, *[True] * (n - 1)][:n], pa.bool_()),
        lambda: pa.array(["x"] * n).dictionary_encode(),
        lambda: pa.array([float("inf")] * n, pa.float64()),
        lambda: pa.array([1.5] * n, pa.float16()) if n else pa.array([], pa.float16()),
        lambda: pa.array([1] * n, pa.int8()),
    ]
    columns[draw(st.sampled_from(head or ["x"]))] = draw(st.sampled_from(strange))()
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def revalued(draw: st.DrawFn, tree: Any) -> Any:
    """A tree with one of its values replaced, removed or nested."""
    tree = copy.deepcopy(tree)
    at, parents = tree, []
    while isinstance(at, dict | list) and at and (not parents or draw(st.integers(0, 4))):
        key = draw(st.sampled_from(sorted(at))) if isinstance(at, dict) else draw(st.integers(0, len(at) - 1))
        parents.append((at, key))
        at = at[key]
    if not parents:
        return draw(odd)
    holder, key = parents[-1]
    how = draw(st.sampled_from(["odd", "odd", "removed", "nested", "number"]))
    if how == "removed":
        del holder[key]
    elif how == "nested":
        holder[key] = [holder[key]]
    elif how == "number":
        holder[key] = draw(st.sampled_from([-1, 0, 1, 3, 7, *HUGE]))
    else:
        value = draw(odd)
        holder[key] = value if not isinstance(value, str) else value.encode(errors="replace").decode()
    return tree


def fault(case: Case, folder: Path) -> str | None:
    """What is wrong with raysim's answer to a case, laid out in ``folder``, or None."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
    folder.mkdir()
    case.lay_out(folder)
    said = answer(case.arguments, folder, case.seconds)
    wrong = said.fault(case.must_refuse, case.ends)
    if wrong is None and said.code == 0:
        for name in case.same:
            out = folder / "out" / name
            if not out.exists() or out.read_bytes() != (folder / "whole" / name).read_bytes():
                # A ticket that says "finished" is believed: nothing is claimed then.
                wrong = None if finished(folder / "out") else f"ended with 0 and another {name}"
    return wrong


def finished(folder: Path) -> bool:
    """Whether a changed ticket or manifest says that nothing is left to do."""
    return (
        any(path.name == "resume.json" for path in folder.glob("resume.json"))
        and b'"finished": true' in (folder / "resume.json").read_bytes()
    )
