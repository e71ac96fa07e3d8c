"""Run configurations of the documentation's pages, and write docs/gallery.md and the pictures of docs/audit.md.

``python docs/gallery.py`` writes all figures again, and the picture of a report for the home page if Chromium is
installed. The configurations run without Ray, which changes no number.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from raysim.report.pages.audit import leaks_by_size, row_and_reading

DOCS = Path(__file__).parent
PICTURES = DOCS / "pictures"
BLOCK = re.compile(r"^```yaml title=(\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


class Entry(NamedTuple):
    """A figure: the page and the title of its YAML, the command that writes it, and its caption."""

    page: str
    title: str
    command: str
    picture: str
    shows: str


ENTRIES = (
    Entry("tutorial", "tutorial.yaml", "compare", "forest", "Differences between methods, with intervals."),
    Entry("tutorial", "tutorial.yaml", "compare", "caterpillar", "The gain of each hospital over training alone."),
    Entry("tutorial", "tutorial.yaml", "compare", "by_size", "Accuracy against the size of a hospital."),
    Entry("personal", "personal.yaml", "compare", "trade_offs", "Accuracy against equity."),
    Entry("heterogeneity", "unlike.yaml", "compare", "costs", "The traffic of each strategy."),
    Entry("unreliable", "slow.yaml", "compare", "virtual_time", "Accuracy against time, with slow hospitals."),
    Entry(
        "coalitions", "curve.yaml", "curve", "curve", "Mean and variance of the loss with three and four coalitions."
    ),
)

AUDIT = ["audit", str(DOCS.parent / "experiments" / "audit.yaml"), "--shadows", "32", "--canaries", "0"]
SIZES = ["data.hospitals=60", "data.rows=5000", "data.features=30", "selection=all"]

BEFORE = """# Gallery

To reproduce a figure, save the YAML under it as a file and run the command. The linked page explains the figure.

<div class="gallery" markdown>
"""


def main() -> None:
    """Run every configuration once, and write the page."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        folders = {
            (entry.page, entry.title): run_folder(entry, Path(folder) / f"{entry.page}-{entry.title}")
            for entry in ENTRIES
        }
        for entry in ENTRIES:
            out = folders[entry.page, entry.title]
            shutil.copyfile(picture_in(out, entry), PICTURES / name(entry))
        if CHROMIUM is not None:
            photograph(folders["tutorial", "tutorial.yaml"] / "report.html", PICTURES / "report.png")
        draw_audits(Path(folder) / "audits")
    (DOCS / "gallery.md").write_text(page(), encoding="utf-8")


def page() -> str:
    """``gallery.md``."""
    return BEFORE + "".join(map(figure, ENTRIES)) + "\n</div>\n"


def figure(entry: Entry) -> str:
    """A picture with its caption, its YAML folded away, and its page."""
    block = "\n".join(f"    {line}" for line in text_of(entry).splitlines())
    return f"""
<figure markdown>
![{entry.shows}](pictures/{name(entry)})
<figcaption markdown>
**{entry.shows}** `raysim {entry.command} {entry.title}` · [Read more]({entry.page}.md)

??? example "{entry.title}"

    ``` yaml
{block}
    ```
</figcaption>
</figure>
"""


def name(entry: Entry) -> str:
    """The name of an entry's picture."""
    return f"{entry.title.removesuffix('.yaml')}_{entry.picture}.svg"


def text_of(entry: Entry) -> str:
    """The YAML of an entry, as its page has it."""
    return dict(BLOCK.findall((DOCS / f"{entry.page}.md").read_text(encoding="utf-8")))[entry.title]


def picture_in(out: Path, entry: Entry) -> Path:
    """Return the file of an entry's picture in the folder of its run."""
    return out / "plots" / f"{entry.picture}.svg"


def run_folder(entry: Entry, out: Path) -> Path:
    """Run an entry's command, once for each configuration; return the folder of the run."""
    if not out.exists():
        config = out.with_name(entry.title)
        config.write_text(text_of(entry), encoding="utf-8")
        settings = ["--in-process", "--out", str(out), "--set", "tracking.uri=none"]
        command = [sys.executable, "-m", "raysim", entry.command, str(config), *settings]
        subprocess.run(command, cwd=out.parent, check=True)
    return out


def draw_audits(folder: Path) -> None:
    """Audit two strategies as docs/audit.md describes, and write figures of the audits' pages."""
    for strategy in ("fedavg", "local"):
        settings = [part for each in (*SIZES, f"strategy={strategy}") for part in ("--set", each)]
        command = [sys.executable, "-m", "raysim", *AUDIT, "--in-process", "--out", str(folder / strategy), *settings]
        subprocess.run(command, check=True)
        draw_audit(folder / strategy)


def draw_audit(out: Path) -> None:
    """Write figures of the audit in the folder ``out``, which is named like the strategy."""
    summary = json.loads((out / "audit.json").read_text(encoding="utf-8"))
    sizes, row = pd.read_csv(out / "membership.csv"), pd.read_csv(out / "inversion.csv")
    by_size = leaks_by_size(sizes, summary).standalone()
    (PICTURES / f"audit_{out.name}.svg").write_text(by_size, encoding="utf-8")
    (PICTURES / "audit_inversion.svg").write_text(row_and_reading(row).standalone(), encoding="utf-8")


def photograph(report: Path, picture: Path) -> None:
    """The head of a report as a browser shows it."""
    assert CHROMIUM is not None
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1100,1250"]
    with tempfile.TemporaryDirectory() as profile:
        target = [f"--user-data-dir={profile}", f"--screenshot={picture}", report.as_uri()]
        subprocess.run([CHROMIUM, *flags, *target], check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    main()
