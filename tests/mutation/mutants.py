"""What can be wrong with a module by one small edit: every mutant of its source, found in its syntax tree.

A mutant replaces a few characters and keeps all lines, so that line numbers and the rest of the text stay as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "/"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}

COMPARISONS: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
}

SWAPPED = {
    "min": "max",
    "minimum": "maximum",
    "argmin": "argmax",
    "floor": "ceil",
    "any": "all",
    "zeros": "ones",
    "zeros_like": "ones_like",
    "sum": "mean",
}
SWAPPED |= {other: name for name, other in SWAPPED.items()}
"""Functions and methods that stand for each other."""

DROPPED = frozenset({"abs", "sqrt", "log", "exp", "sort", "cumsum", "square", "log1p", "rint", "round"})
"""Functions of which only the argument is left."""

IRRELEVANT = frozenset({"strict", "dtype", "copy", "casting", "stacklevel", "kind"})
"""Keyword arguments that guard or speed up, and change no result that is right."""

SMALL = 1e-3
"""Numbers that are nearer to 0 than this are tolerances: they become 1."""


@dataclass(frozen=True)
class Mutant:
    """An edit of a module: ``before`` and ``after`` are line number ``line``, stripped; ``source`` the whole text."""

    file: str
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}\n    {self.before}\n  → {self.after}"


def mutants(file: str, source: str) -> list[Mutant]:
    """All mutants of a module, in the order of its lines; no two are alike."""
    text = source.encode()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    made = {}
    for begin, end, replacement in sorted(set(_Edits(text, starts).of(ast.parse(source)))):
        mutated = (text[:begin] + replacement.encode() + text[end:]).decode()
        number = text.count(b"\n", 0, begin)
        before, after = (lines.splitlines()[number].strip() for lines in (source, mutated))
        if mutated != source:
            made[mutated] = Mutant(file, number + 1, before, after, mutated)
    return list(made.values())


Edit = tuple[int, int, str]


class _Edits:
    """Edits ``(begin, end, replacement)`` of ``text``, in bytes; ``starts`` says where its lines begin."""

    def __init__(self, text: bytes, starts: list[int]) -> None:
        self._text, self._starts = text, starts

    def of(self, node: ast.AST) -> Iterator[Edit]:
        """The edits of a node and of all that is in it."""
        yield from self._edits(node)
        for child in self._judged(node):
            yield from self.of(child)

    @staticmethod
    def _judged(node: ast.AST) -> Iterator[ast.AST]:
        """The parts of a node that decide what is computed: not annotations, messages, decorators or imports."""
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "bases", "exc", "msg", "format_spec"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, (ast.Import, ast.ImportFrom, ast.JoinedStr)):
                    continue
                if isinstance(child, ast.keyword) and child.arg in IRRELEVANT:
                    continue
                if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                    continue
                if isinstance(child, ast.FunctionDef) and "overload" in map(ast.unparse, child.decorator_list):
                    continue
                if isinstance(child, ast.AST) and not (isinstance(node, ast.keyword) and node.arg == "axis"):
                    yield child

    def _edits(self, node: ast.AST) -> Iterator[Edit]:
        match node:
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                sign, other = ARITHMETIC[type(op)]
                yield from self._between(left, right, sign, [other])
            case ast.AugAssign(target=target, op=op, value=value) if type(op) in ARITHMETIC:
                sign, other = ARITHMETIC[type(op)]
                yield from self._between(target, value, f"{sign}=", [f"{other}="])
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                for a, comparison, b in zip([left, *comparators], ops, comparators, strict=False):
                    sign, others = COMPARISONS[type(comparison)]
                    yield from self._between(a, b, sign, others)
            case ast.BoolOp(op=op, values=values):
                sign, other = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                for a, b in pairwise(values):
                    yield from self._between(a, b, sign, [other])
            case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert(), operand=operand):
                yield (*self._span(node), self._of(operand))
            case ast.keyword(arg="axis", value=(ast.Constant(value=int()) | ast.UnaryOp()) as value):
                yield (*self._span(value), "1" if self._of(value) == "0" else "0")
            case ast.Constant(value=bool() | int() | float()):
                yield from self._constants(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                if not isinstance(test, ast.Compare):
                    yield (*self._span(test), f"not {self._of(test)}")
                yield (*self._span(node), self._of(body))
                yield (*self._span(node), self._of(orelse))
            case ast.If(test=test) if not isinstance(test, (ast.Compare, ast.UnaryOp)):
                yield (*self._span(test), f"not {self._of(test)}")
            case ast.Call(func=func, args=args):
                yield from self._calls(node, func, args)
            case ast.Slice(lower=lower, upper=upper):
                for bound, step in ((lower, "+"), (upper, "-")):
                    if bound is not None and not isinstance(bound, (ast.Constant, ast.UnaryOp)):
                        yield (*self._span(bound), f"{self._of(bound)} {step} 1")
            case ast.Subscript(slice=ast.Name() as index):
                yield (*self._span(index), f"{index.id} - 1")
            case ast.Break():
                yield (*self._span(node), "continue")
            case ast.Continue():
                yield (*self._span(node), "break")

    def _constants(self, node: ast.Constant) -> Iterator[Edit]:
        value, (begin, end) = node.value, self._span(node)
        if isinstance(value, bool):
            yield begin, end, str(not value)
        elif isinstance(value, int):
            yield begin, end, str(value + 1)
            if value:
                yield begin, end, str(value - 1)
        elif isinstance(value, float):
            yield begin, end, "1.0" if value < SMALL else repr(2 * value)

    def _calls(self, node: ast.Call, func: ast.expr, args: list[ast.expr]) -> Iterator[Edit]:
        name = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
        _, end = self._span(func)
        if name in SWAPPED:
            yield end - len(name.encode()), end, SWAPPED[name]
        if name in DROPPED and args:
            yield (*self._span(node), self._of(args[0]))
        if name == "range" and isinstance(func, ast.Name):
            stop = args[min(1, len(args) - 1)]
            if not isinstance(stop, ast.Starred):
                yield (*self._span(stop), f"{self._of(stop)} - 1")

    def _between(self, left: ast.AST, right: ast.AST, sign: str, others: list[str] | tuple[str, ...]) -> Iterator[Edit]:
        """Edits of the operator ``sign`` that stands between two nodes."""
        at = self._text.index(sign.encode(), self._span(left)[1], self._span(right)[0])
        for other in others:
            yield at, at + len(sign), other

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, (ast.expr, ast.stmt))
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _of(self, node: ast.AST) -> str:
        """The text of a node, in brackets unless it is one token."""
        begin, end = self._span(node)
        text = self._text[begin:end].decode()
        return text if isinstance(node, (ast.Name, ast.Constant, ast.Call, ast.Attribute)) else f"({text})"
