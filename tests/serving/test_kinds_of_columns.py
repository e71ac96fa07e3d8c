"""Whatever a column holds, ``raysim predict``, an exported ``prepare.py`` and Python score its rows alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from raysim.data.new_rows import read_new_rows
from raysim.serving import prepare
from raysim.serving.export import export
from raysim.serving.predictor import Predictor
from tests.serving.runs import folder_of

ROWS = 300
CELLS: dict[str, list[str]] = {
    "whole": ["1", "2", "30"],
    "real": ["0.1", "-2.75", "1e-3", "16777217.5"],
    "gaps": ["1.5", "", "NA", "null", "n/a"],
    "blanks": ["1", " ", "2"],
    "kept numbers": ['="1.5"', "2", '="-3"', '=""'],
    "spaces": [" 1", "2 ", " 3.5 "],
    "signs": ["+1", "-1", ".5", "5."],
    "truth": ["True", "false", "TRUE", ""],
    "zero and one": ["0", "1", ""],
    "below": ["<0.3", "< 1", "0.7", "2"],
    "above": [">9", "≥ 10", "4.5"],
    "units": ["5 mg", "6.5mg", "<7 mg", "8"],
    "thousands": ["1,234.5", "2,345", "1'000", "3\u00a0456.5", "−7", "<1,200.5"],
    "marked": ["?", "3", "4.5"],
    "sentinel": ["-999", "-999.0", "7", "8.25"],
    "zeros marked": ["00", "0", "1"],
    "constant": ["5", "5.0"],
    "never": [""],
    "text": ["a", "b", "c", ""],
    "None": ["None", "One", "Both"],
    "spelled": ["MICU", "micu", "MICU "],
    "levels": ["5/6", "4", "3", "1/2"],
    "listed": ["1", "2", "10", ""],
    "listed reals": ["1.0", "2.5", "2.50"],
    "listed zeros": ["0.0", "-0.0", "1.5", ""],
    "listed large": ["1e16", "10000000000000000", "1.152921504606847e+18", "2", ""],
    "neighbours": ["9007199254740992", "9007199254740993", ""],
    "codes": ["007", "7", "010"],
    "logical": ["True", "false", "1"],
    "kept as text": ['="007"', '="7"', '="0 ""1"""', ""],
    "disease": ["I21.0", "E11.9", "V45", "<NA>"],
}
KEYS: dict[str, Any] = {
    "categorical": [
        "listed",
        "listed reals",
        "listed zeros",
        "listed large",
        "neighbours",
        "codes",
        "kept as text",
        "logical",
        "...",
    ],
    "na_values": {"marked": ["?"], "sentinel": [-999], "zeros marked": ["00"]},
    "censored": {"<": "half", ">": "limit"},
    "units": {"units": ["mg"]},
}


def rows(seed: int) -> pd.DataFrame:
    """A table of texts, with all of the 31 kinds of columns."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "hospital": rng.choice(["7", "10", "11"], ROWS),
            "died": rng.choice(["no", "yes"], ROWS),
            "part": np.where(np.arange(ROWS) % 4 == 3, "test", "train"),
            **{name: rng.choice(cells, ROWS) for name, cells in CELLS.items()},
        }
    )


def test_all_kinds_are_scored_alike(place: Path, tmp_path: Path) -> None:
    assert len(CELLS) == 31
    rows(0).to_csv(tmp_path / "rows.csv", index=False)
    data = {"source": "table", "path": str(tmp_path / "rows.csv"), "silo": "hospital", "label": "died"}
    run = folder_of(place, {"name": "fedavg", "label": "kinds"}, data=data | KEYS | {"split": {"column": "part"}})
    predictor = Predictor.open(run)
    kinds = {column.name: type(column).__name__ for column in predictor.preprocessing.columns}
    numeric = list(CELLS)[: list(CELLS).index("text")]
    expected = {name: "Numeric" if name in numeric else "Categorical" for name in CELLS}
    del expected["never"]  # no training row has a value: it is left out
    assert kinds == expected

    new = rows(1)
    new["text"] = new["text"].replace("c", "d")  # a category without training rows
    new.to_csv(tmp_path / "new.csv", index=False)
    new.to_parquet(tmp_path / "new.parquet")
    scores = predictor.predict(tmp_path / "new.csv")["probability"].to_numpy()
    assert np.ptp(scores) > 0.1
    for table in (new, new.astype("string"), tmp_path / "new.parquet", new.assign(whole=new["whole"].astype(float))):
        np.testing.assert_array_equal(predictor.predict(table)["probability"].to_numpy(), scores)

    export(predictor, tmp_path / "model", "torch", None, None)
    namespace: dict[str, Any] = {"__file__": str(tmp_path / "model" / "prepare.py"), "__name__": "prepare"}
    exec(Path(prepare.__file__).read_text(), namespace)
    model = torch.export.load(tmp_path / "model" / "model.pt2").module()
    features, _ = predictor.preprocessing.transform(
        read_new_rows(tmp_path / "new.csv", predictor.preprocessing).columns
    )
    for given in (namespace["read"](str(tmp_path / "new.csv")), new):
        X = namespace["features"](given)
        np.testing.assert_array_equal(X, features)
        np.testing.assert_allclose(model(torch.from_numpy(X)).detach().numpy(), scores, rtol=1e-6)

    emptied = predictor.predict(new.assign(whole="", text=None))
    assert len(emptied) == ROWS
    notes = read_new_rows(new.assign(whole="", text=None), predictor.preprocessing).notes
    assert "table: no value in any row of 'whole', 'text'; all are scored as if nothing was recorded" in notes
    assert not any("no value" in note for note in read_new_rows(new, predictor.preprocessing).notes)
