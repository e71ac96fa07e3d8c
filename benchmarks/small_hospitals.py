"""What a hospital gains from federating as it has fewer training rows, within hospitals, as in docs/unseen.md.

``python -m benchmarks.small_hospitals`` plays ``experiments/small_hospitals.yaml`` with an eighth to all of each
hospital's training rows, on the synthetic federation. With the path of IMPACT as an argument (``impact.rda`` of the
package metamisc, written as a table) it is played on the fifteen studies of head injury. Test rows stay, so that a
hospital's noise of few test rows is the same at each share.
Each hospital has a slope of its gain on the logarithm of the share; their mean has an interval over hospitals. A
Markdown table is printed.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from scipy.special import stdtr, stdtrit

import raysim

CONFIG = Path(__file__).parents[1] / "experiments" / "small_hospitals.yaml"
IMPACT = {"source": "table", "silo": "name", "label": "mort", "drop": ["type"], "predicts": "death within six months"}
SHARES = (0.125, 0.25, 0.5, 1.0)
FIGURES = {"auroc": 1, "log_loss": -1}
"""Figures of which gains are taken, and whether more is better."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "impact", type=Path, nargs="?", help="the table of IMPACT; without it, the synthetic federation"
    )
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    args = parser.parse_args()
    gains = pd.concat([gains_at(share, args.impact) for share in args.shares])
    print(
        "| share of training rows | median rows trained on | " + " | ".join(f"gain, {each}" for each in FIGURES) + " |"
    )
    print("|---|---|" + "---|" * len(FIGURES))
    for share, of in gains.groupby("share"):
        cells = [shown(*over_hospitals(of[each].to_numpy())[:3]) for each in FIGURES]
        print(f"| {share:g} | {of['n_train'].median():.0f} | " + " | ".join(cells) + " |")
    for each in FIGURES:
        wide = gains.pivot_table(index="hospital", columns="share", values=each).dropna()
        slopes = np.polyfit(np.log2(wide.columns.to_numpy(float)), wide.to_numpy().T, 1)[0]
        mean, low, high, p = over_hospitals(-slopes)
        print(
            f"\n{each}: half the training rows change the gain by {shown(mean, low, high)}, p {p:.2g}, "
            f"{len(wide)} hospitals"
        )


def gains_at(share: float, impact: Path | None) -> pd.DataFrame:
    """The gain of each hospital over training alone, the mean over seeds."""
    with tempfile.TemporaryDirectory() as folder:
        config = yaml.safe_load(CONFIG.read_text())
        if impact is not None:
            config["data"] = IMPACT | {"path": str(impact.absolute()), "split": config["data"]["split"]}
        config["data"]["split"]["used"] = share
        raysim.compare(config, out=Path(folder) / "out", in_process=True)
        rows = pd.read_csv(Path(folder) / "out" / "hospitals.csv")
    by = ["hospital", "seed"]
    ours, alone = (rows[rows["strategy"] == name].set_index(by) for name in ("newton", "local"))
    found = pd.DataFrame({each: sign * (ours[each] - alone[each]) for each, sign in FIGURES.items()})
    found["n_train"] = ours["n_train"]
    return found.groupby("hospital").mean().reset_index().assign(share=share)


def over_hospitals(values: np.ndarray) -> tuple[float, float, float, float]:
    """The mean with its 95 % interval by t over hospitals, and p of none."""
    values = values[np.isfinite(values)]
    mean, se, df = values.mean(), values.std(ddof=1) / np.sqrt(len(values)), len(values) - 1
    reach = -stdtrit(df, 0.025) * se
    return float(mean), float(mean - reach), float(mean + reach), float(2 * stdtr(df, -abs(mean / se)))


def shown(mean: float, low: float, high: float) -> str:
    return f"{mean:+.4f} ({low:+.4f} to {high:+.4f})"


if __name__ == "__main__":
    main()
