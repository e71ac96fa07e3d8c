"""The page of a study, in words, tables and plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from raysim.core.package import versions
from raysim.report.naming import number, signed
from raysim.report.pages.common import plain, set_by
from raysim.report.pages.contents import Cell, Row
from raysim.report.pages.rendering import Page
from raysim.report.pages.section import Section, included
from raysim.study.answer import headline, ranking, readable_name
from raysim.study.charts import MODELS, figures
from raysim.study.predictors import ALL
from raysim.study.settings import Study

TABLES = Section("figures", "How well metrics predict the skew", included("study"))


@dataclass(frozen=True)
class Figures:
    """A table of the study's page, with its caption."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Row]


def study_page(title: str, table: pd.DataFrame, shares: pd.DataFrame, study: Study, note: str, config: str) -> Page:
    """Return the page of a study, from the tables ``study.csv`` (``table``) and ``importances.csv`` (``shares``)."""
    infeasible = int((~table["feasible"]).sum())
    partitions = f"{len(table):,}" + (f", of which {infeasible:,} are not feasible" if infeasible else "")
    return Page(
        plain("study", "Which measure predicts the skew", [TABLES]),
        {
            "title": title,
            "lead": lead(table, shares, study),
            "tables": [_figures(shares, clients) for clients in dict.fromkeys(shares["clients"])],
            "pictures": list(figures(table, shares, study.candidates)),
            **set_by(
                "raysim study config.yaml",
                config,
                Data=note,
                Partitions=partitions,
                Seeds=", ".join(map(str, study.seeds)),
                Versions=", ".join(f"{name} {of}" for name, of in versions("numpy", "scikit-learn").items()),
            ),
        },
    )


def lead(table: pd.DataFrame, shares: pd.DataFrame, study: Study) -> list[str]:
    """Return sentences on the best metric, the most important metric of each model, and the numbers of clusters."""
    together = shares[shares["clients"] == ALL]
    alone = ranking(shares)
    sentences = [headline(shares, study.target)]
    if len(alone) > 1:
        for column, words in (("importance", "models' own importance"), ("permutation", "permutation")):
            best = together.loc[together.groupby("model", sort=False)[column].idxmax()]
            each = "; ".join(
                f"{MODELS.get(model, model)}: {readable_name(metric)} ({value:.2f})"
                for model, metric, value in best[["model", "metric", column]].itertuples(index=False)
            )
            sentences.append(f"Most important metric of each model by {words}: {each}.")
    if "clusters" in table:
        chosen = table.loc[table["feasible"], "clusters"]
        sentences.append(
            f"Over {len(chosen):,} partitions, {chosen.min():.0f} to {chosen.max():.0f} clusters were chosen, "
            f"{chosen.median():.3g} in the median."
        )
    return sentences


def _figures(shares: pd.DataFrame, clients: object) -> Figures:
    of_clients = shares[shares["clients"] == clients]
    models = list(dict.fromkeys(of_clients["model"]))
    columns = [f"R² alone, {MODELS.get(model, model)}" for model in models]
    wide = of_clients.pivot(index="metric", columns="model", values="r2_alone")
    values = np.round(wide[models].to_numpy(), 3)
    best = values == values.max(axis=0)
    ranks = of_clients.groupby("metric", sort=False)["spearman"].first()
    position = {metric: k for k, metric in enumerate(wide.index)}
    rows = [
        Row(
            readable_name(metric),
            [
                *(
                    Cell(number(float(v), 3), "", bool(b))
                    for v, b in zip(values[position[metric]], best[position[metric]], strict=True)
                ),
                Cell(signed(float(rank), 2), ""),
            ],
        )
        for metric, rank in ranks.items()
    ]
    whose = "All partitions" if clients == ALL else f"{clients} clients"
    return Figures(f"{whose}. Best of each column in bold.", [*columns, "Rank correlation"], rows)
