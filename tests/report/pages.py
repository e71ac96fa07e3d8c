"""Invented frames of a comparison, of realistic shape, and what a sound page is."""

from __future__ import annotations

import base64
import itertools
import math
from html.parser import HTMLParser

import numpy as np
import pandas as pd

from raysim.metrics.equity import equity
from raysim.report.judgement.card import Card
from raysim.report.pages.rendering import Provenance

HOSTILE = "St. <b>Bold</b> & \"Sons\" <script>alert('x')</script>"
SERVED = {
    ("fedavg", "global"): (0.0, 0.03, 0.004),
    ("fedprox", "global"): (0.001, 0.03, 0.004),
    ("chip", "global"): (-0.004, 0.026, 0.001),
    ("chip", "personal"): (0.004, 0.024, 0.001),
    ("clustered", "cluster"): (0.001, 0.05, 0.009),
    ("local", "personal"): (-0.07, 0.07, 0.02),
}


def frames(seeds: int = 3, hospitals: int = 40) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """``per_seed``, ``hospitals`` and ``rounds`` of a comparison; the two smallest hospitals are undefined."""
    stays = np.maximum(12, np.random.default_rng(99).lognormal(4.6, 1.1, hospitals)).astype(int)
    rows = np.maximum(2, stays // 5)
    names = [f"hospital {i:03d}" for i in range(hospitals)]
    names[int(np.argmin(stays))] = HOSTILE
    per_seed, by_hospital, by_round = [], [], []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        base, noise = rng.normal(0.9, 0.01, hospitals), rng.normal(0, 1, hospitals) / np.sqrt(rows) * 4
        for (strategy, model), (shift, width, slope) in SERVED.items():
            auroc = np.clip(base + shift + slope * (np.log(stays) - 4.6) + noise * width + rng.normal(0, 0.003), 0, 1)
            auroc[np.argsort(stays)[:2]] = math.nan
            key = {"strategy": strategy, "model": model, "seed": seed}
            columns = {"hospital": names, "n_train": stays - rows, "n_test": rows, "auroc": auroc}
            by_hospital.append(pd.DataFrame({**key, **columns}))
            per_seed.append({**key, **equity(auroc, rows, stays)})
        for strategy in dict.fromkeys(s for s, _ in SERVED):
            t = np.arange(1, 21)
            columns = {"round": t, "auroc": 0.9 - 0.25 * np.exp(-t / 4) + rng.normal(0, 0.003, len(t))}
            by_round.append(pd.DataFrame({"strategy": strategy, "seed": seed, **columns}))
    return pd.DataFrame(per_seed), pd.concat(by_hospital, ignore_index=True), pd.concat(by_round, ignore_index=True)


PROVENANCE = Provenance(
    data="synthetic <mortality>",
    fingerprint="8c1f6a0b2d93",
    hospitals=40,
    rows={"train": 6000, "test": 1500},
    seeds=[0, 1, 2],
    versions={"raysim": "0.1.0", "numpy": "2.4"},
    config="name: <demo>\nseed: 0",
    command="raysim compare demo.yaml --out runs/demo",
    notes=["treatment.csv.gz is missing"],
)

CARD = Card(
    "death in hospital, 40 hospitals",
    "These data do not say what to do.",
    lines=(),
    rows=(),
    use="none",
    federate="not tested",
    recommended=None,
    taken="",
    predicts="death in hospital",
)
"""The decision card of a run of which no more is known than its tables."""


class Page(HTMLParser):
    """What a test asks of a page: tags opened and closed, attributes, and text by tag."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self.unbalanced: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {k: v or "" for k, v in attrs}))
        if tag not in {"meta", "img", "br", "link", "input"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", data.strip()))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def text(self) -> str:
        return " ".join(
            " ".join(data.split()) for tag, data in self.texts if tag not in ("style", "script", "desc", "title")
        )


def assert_sound(html: str) -> Page:
    """Well formed, self-contained, and with what screen readers need."""
    sound = Page(html)
    assert (sound.unbalanced, sound.open) == ([], [])
    assert html.startswith("<!DOCTYPE html>")
    assert sound.all("html") == [{"lang": "en"}]
    assert len(sound.all("h1")) == len(sound.all("main")) == 1
    levels = [int(tag[1]) for tag, _ in sound.tags if tag in ("h1", "h2", "h3", "h4")]
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    ids = [attrs["id"] for _, attrs in sound.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {attrs["aria-labelledby"] for attrs in sound.all("section")} <= set(ids)
    assert all(attrs.get("scope") in ("col", "row") for attrs in sound.all("th"))
    assert len(sound.all("caption")) == len(sound.all("table"))
    assert not {"link", "iframe", "b"} & {tag for tag, _ in sound.tags}
    assert [attrs.get("id", "") for attrs in sound.all("script")] in (
        [],
        [""],
        ["data", "", ""],
    ), "a block of data, and scripts of ours"
    assert not any(name in attrs for _, attrs in sound.tags for name in ("src", "srcset", "onload") if _ != "img")
    targets = [attrs["href"] for attrs in sound.all("a")]
    assert {target[1:] for target in targets if target.startswith("#")} <= set(ids)
    for chart in sound.all("svg"):
        assert "viewbox" in chart, "it shrinks with the page"
        assert chart.get("aria-hidden") == "true" or set(chart["aria-labelledby"].split()) <= set(ids)
    for image in sound.all("img"):
        assert len(image["alt"]) > 20
        kind, data = image["src"].split(",", 1)
        assert kind == "data:image/png;base64"
        assert base64.b64decode(data).startswith(b"\x89PNG")
    rest = html.replace("data:image/png;base64", "")
    assert "http:" not in rest
    assert "https:" not in rest
    assert "url(" not in rest
    assert "@import" not in rest
    return sound
