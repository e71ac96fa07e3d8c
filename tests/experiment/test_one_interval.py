"""One interval for one difference: what a comparison prints has the variance of patients that the rows themselves give.

The rows are read from the predictions that the runs leave; a hospital sends sums of them only.
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from raysim.cli.commands import compare_all
from raysim.config import reading
from raysim.experiment import comparison
from raysim.report.panel import Panel, Sent, sent
from raysim.report.tables import read_csv
from raysim.statistics.differences.paired import Paired, paired
from raysim.statistics.discrimination.auroc import Placements, placements
from tests.statistics.patients import patient_covariance, patient_sums

SEEDS = (1, 2, 3)
HOSPITALS = [f"h{h}" for h in range(12)]
"""In natural order, which is not that of their names."""


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sent]:
    """A comparison of 12 hospitals of 60 rows with three seeds, and what its hospitals sent."""
    home = tmp_path_factory.mktemp("compared")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setenv("RAYSIM_CACHE", str(home / "cache"))
        kept: list[Sent] = []
        original = sent
        patch.setattr(comparison, "sent", lambda results: kept.append(original(results)) or kept[-1])
        rng = np.random.default_rng(0)
        frame = pd.DataFrame({"site": np.resize(HOSPITALS, 720), "age": rng.normal(60, 12, 720)})
        frame["lactate"] = rng.gamma(2, 1, 720)
        frame["died"] = rng.random(720) < 1 / (1 + np.exp(4 - 0.05 * frame["age"] - 0.2 * frame["lactate"]))
        frame.to_csv("stays.csv", index=False)
        tree = {
            "data": {
                "source": "table",
                "path": "stays.csv",
                "silo": "site",
                "label": "died",
                "split": {"train": 0.5, "test": 0.5},
            },
            "strategies": ["fedavg", "local"],
            "reference": "fedavg",
            "training": {"rounds": 3},
            "evaluation": {"predictions": True},
            "seeds": list(SEEDS),
            "tracking": {"uri": "none"},
        }
        compare_all(
            reading.resolve(tree, reads=()), Console(file=io.StringIO()), home / "out", in_process=True, verbose=False
        )
    return home / "out", kept[0]


def from_rows(out: Path) -> Paired:
    """``local - fedavg`` from the predictions of single rows."""
    placed: list[Placements] = []
    rows, ids = [], []
    for seed in SEEDS:
        tables = [
            read_csv(next(out.glob(f"**/{strategy}/**/seed-{seed}/predictions.csv"))).query("part == 'test'")
            for strategy in ("local", "fedavg")
        ]
        one, other = (
            table[table["model"] == table["model"].iloc[-1]]
            .assign(home=lambda t: t["hospital"].map(HOSPITALS.index))
            .sort_values(["home", "row"], kind="stable")
            for table in tables
        )
        labels = read_csv(out.parent / "stays.csv")["died"].astype(str).eq("True").to_numpy()
        scores = np.stack([one["probability"], other["probability"]])
        offsets = np.searchsorted(one["home"], np.arange(len(HOSPITALS) + 1))
        placed.append(placements(scores, labels[one["row"]].astype(int), offsets))
        ids.append(one["row"].to_numpy(np.int64))
        rows.append(np.diff(offsets))
    auroc = np.stack([each.auroc for each in placed], axis=1)
    return paired(auroc[0], auroc[1], rows, patients=patient_sums(patient_covariance(placed, ids), 0, 1))


def test_patients_tested_in_several_seeds_are_counted_as_the_rows_say(compared) -> None:
    out, sent = compared
    exact = from_rows(out)
    panel = Panel.of(read_csv(out / "hospitals.csv"), sent)
    pair = panel.difference(("local", "personal"), ("fedavg", "global"))
    assert pair.difference == pytest.approx(exact.difference, abs=1e-6)
    assert pair.hospital_variance == pytest.approx(exact.hospital_variance, rel=1e-4)
    # Twelve hospitals with draws of their own: the sum is off by about 14 % over the root of ten.
    assert pair.patient_variance == pytest.approx(exact.patient_variance, rel=0.15)


def test_table_answer_and_page_print_one_interval(compared) -> None:
    out, sent = compared
    pair = Panel.of(read_csv(out / "hospitals.csv"), sent).difference(("local", "personal"), ("fedavg", "global"))
    row = read_csv(out / "comparison.csv").set_index("strategy").loc["local"]
    printed = row["auroc_low"], row["auroc_high"]
    assert printed == pytest.approx(tuple(pair.population()), abs=1e-9)
    values = json.loads((out / "report.json").read_text())["values"]
    shown, table = (
        set(re.findall(r"[+-]0\.\d{3}", json.dumps(values[name], ensure_ascii=False).replace("\N{MINUS SIGN}", "-")))
        for name in ("forest", "differences")
    )
    limits = {f"{limit:+.3f}" for limit in pair.population()}
    assert limits <= shown
    assert not limits <= table  # the page has one interval of the mean
