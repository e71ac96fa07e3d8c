"""A page of very many hospitals: about all of them, and about none by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import raysim
from raysim.core.errors import ConfigError
from raysim.report.pages import page, section
from raysim.report.pages.again import rewritten

SETTINGS = {
    "data": {"hospitals": 6, "rows": 900, "features": 6},
    "training": {"rounds": 1},
    "tracking": {"uri": "none"},
}


@pytest.mark.parametrize("most", [5, 6])
def test_a_page_of_more_hospitals_than_it_can_show_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(section, "MOST_HOSPITALS", most)
    folders = [raysim.run(SETTINGS, out=tmp_path / "alone", in_process=True).folder]
    if most == 5:
        ways, out = ["fedavg", "local"], tmp_path / "together"
        folders.append(raysim.compare(SETTINGS, strategies=ways, seed=1, out=out, in_process=True).folder)
    for folder in folders:
        html = (folder / "report.html").read_text()
        cards = json.loads((folder / "report.json").read_text())["values"]["cards"]["hospitals"]
        assert len(cards) == (0 if most == 5 else 6)
        assert (page.MANY_NOTE in html) == (most == 5)
        assert ('id="your-hospital"' in html) == (most == 6)
        if most == 5:
            with pytest.raises(ConfigError, match="shows no single hospitals"):
                rewritten(folder, "hospital_1", None)
