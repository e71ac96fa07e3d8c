"""``raysim list``: prints the names that a configuration can use, or the documentation and keys of one name."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from raysim.cli.options import print_json
from raysim.config.listing import Key, Plugin, documentation, example, in_groups, keys_of
from raysim.core import registry
from raysim.core.errors import ConfigError

WIDE = 120


USAGE = {
    "strategies": "raysim list strategies NAME: keys, paper, traffic, an example",
    "models": "raysim list models NAME: keys",
    "sources": "raysim list sources NAME: keys, what it reads",
    "selections": "raysim list selections NAME: keys, paper",
}

EVERY_STRATEGY = (
    "Every strategy has the key personalization, one step after the last round or a list of steps: "
    "{epochs: 1, learning_rate: 0.03} fine-tunes, {name: recalibrate} shifts risks by validation rows."
)


def show_kind(kind: str, console: Console, *, json: bool = False) -> None:
    """Print every name of one kind, such as strategies, with the first paragraph of its documentation."""
    if kind == "metrics":
        _show_metrics(console, json)
        return
    groups = in_groups(kind)
    if json:
        print_json(
            [
                {"name": each.name, "group": title or None, "summary": each.summary}
                for title, plugins in groups.items()
                for each in plugins
            ]
        )
        return
    for i, (title, plugins) in enumerate(groups.items()):
        if i:
            console.print()
        if title:
            console.print(Text(title, "bold"))
        console.print(_names(plugins, max(len(each.name) for all_ in groups.values() for each in all_)))
    if kind in USAGE:
        console.print()
        console.print(USAGE[kind], highlight=False, markup=False)


def show_one(kind: str, name: str, console: Console, *, json: bool = False) -> None:
    """Print the documentation of one plug-in, and each of its keys with type, default, range and meaning."""
    if kind == "metrics":
        raise ConfigError("list: single metrics are described only in docs/metrics.md; leave the name out")
    plugin = registry.load(kind, name, kind)
    keys = keys_of(plugin)
    if json:
        print_json({"name": name, "documentation": documentation(plugin), "keys": [key._asdict() for key in keys]})
        return
    for paragraph in _paragraphs(documentation(plugin)):
        console.print(paragraph, highlight=False, markup=False)
    console.print()
    if not keys:
        console.print("no keys", highlight=False)
    elif console.width >= WIDE:
        console.print(_table(keys))
    else:
        console.print(Text("keys", "bold"))
        for key in keys:
            _show_key(key, console)
    if kind == "strategies":
        console.print()
        console.print(f"example: {example(name, keys)}", highlight=False, markup=False)
        console.print(EVERY_STRATEGY, highlight=False, markup=False)


def _show_metrics(console: Console, json: bool) -> None:
    from raysim.metrics.declared import AT_HOSPITAL, OVER_HOSPITALS
    from raysim.metrics.labels import KINDS

    if json:
        print_json(
            {
                kind.name: {
                    "per_hospital": {name: AT_HOSPITAL[name] for name in kind.figures},
                    "over_hospitals": {name: OVER_HOSPITALS[name] for name in kind.reported()},
                }
                for kind in KINDS.values()
            }
        )
        return
    width = max(map(len, (*AT_HOSPITAL, *OVER_HOSPITALS)))
    for kind in KINDS.values():
        for place, names, meanings in (
            ("at a hospital", kind.figures, AT_HOSPITAL),
            ("over hospitals", kind.reported(), OVER_HOSPITALS),
        ):
            console.print(Text(f"{kind.name}, {place}", "bold"))
            console.print(_names([Plugin(name, meanings[name]) for name in names], width))
            console.print()
    console.print("docs/metrics.md defines them and says when they are undefined", highlight=False, markup=False)


def _names(plugins: list[Plugin], width: int) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(min_width=width, no_wrap=True)
    table.add_column()
    for each in plugins:
        table.add_row(Text(each.name), Text(each.summary))
    return table


def _paragraphs(text: str) -> list[str]:
    """Join the lines of each paragraph, because the terminal wraps paragraphs; lists keep their lines."""
    lines: list[str] = []
    goes_on = False
    for line in text.splitlines():
        if goes_on and line.strip() and not line.startswith(("-", "*", " ")):
            lines[-1] += f" {line}"
        else:
            lines.append(line)
        goes_on = bool(line.strip())
    return lines


def _table(keys: list[Key]) -> Table:
    table = Table(
        title="keys", title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for i, heading in enumerate(Key._fields):
        table.add_column(heading, no_wrap=i == 0, max_width=28 if i in (1, 2, 3) else None)
    for key in keys:
        table.add_row(*map(Text, key))
    return table


def _show_key(key: Key, console: Console) -> None:
    default = "required" if key.default == "required" else f"default {key.default}"
    facts = ", ".join(filter(None, [key.type, default, key.range]))
    console.print(Text(key.key, "bold") + Text(f": {facts}", "not bold"))
    if key.meaning:
        console.print(Padding(Text(key.meaning), (0, 0, 0, 4)))
