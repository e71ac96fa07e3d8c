"""The page of a sweep: sentences, figures, importances, and one trial marked in all figures in a real browser."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from raysim.engine.job import Round
from raysim.report import svg
from raysim.tune.choice import Choice, choose, headline
from raysim.tune.journal import Finished
from raysim.tune.page.contents import Setting, counted, gives_up, objective_rows, sweep_page, trial_data
from raysim.tune.page.importance import ENOUGH, importances, varied
from raysim.tune.page.trial_charts import figures, hypervolume, interval, scale
from raysim.tune.settings import Sweep
from raysim.tune.spaces import parse

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

SPACE = {
    "strategy.name": {"choice": ["chip", "fedprox"]},
    "training.learning_rate": {"loguniform": [0.001, 1]},
    "strategy.mu": {"uniform": [0, 1], "when": {"strategy.name": "fedprox"}},
}
OBJECTIVES = {"auroc": "max", "worst_decile": "max", "size_bias_abs": "min"}
COUNTS = {"completed": 3, "stopped": 0, "failed": 0, "total": 3}


def trial(number: int, figures_: dict[str, float], params: dict[str, object], spread: float = 0.01) -> Finished:
    finals = {s: {"global": {k: v + shift for k, v in figures_.items()}} for s, shift in ((1, spread), (2, -spread))}
    rounds = {s: [Round(1, 0.1, 5, 100, 10, finals[s])] for s in finals}
    return Finished(number, params, "completed", rounds=rounds, finals=finals, seconds=1.0)


def searched(count: int, *, seed: int = 0, objectives: dict[str, str] | None = None) -> Choice:
    """Trials whose mean AUROC is decided by the learning rate alone."""
    sweep = Sweep(space=SPACE, trials=count, objectives=objectives or OBJECTIVES)
    rng, trials = np.random.default_rng(seed), {}
    for n in range(1, count + 1):
        params = parse(SPACE).draw(1, n)
        auroc = 0.85 - 0.03 * (math.log10(params["training.learning_rate"]) + 1.5) ** 2
        figures_ = {"auroc": auroc, "worst_decile": 0.5 + 0.2 * rng.random(), "size_bias_abs": 0.05 * rng.random()}
        trials[n] = trial(n, figures_, params)
    return choose(trials, sweep)


def three() -> Choice:
    sweep = Sweep(space=SPACE, trials=3, objectives={"auroc": "max", "worst_decile": "max"})
    rate = "training.learning_rate"
    trials = {
        1: trial(1, {"auroc": 0.90, "worst_decile": 0.50}, {"strategy.name": "chip", rate: 0.1}),
        2: trial(2, {"auroc": 0.88, "worst_decile": 0.68}, {"strategy.name": "fedprox", rate: 0.2, "strategy.mu": 0.5}),
        3: trial(3, {"auroc": 0.70, "worst_decile": 0.70}, {"strategy.name": "<b>", rate: 0.3}),
    }
    return choose(trials, sweep)


def setting() -> Setting:
    return Setting("abc", 12, 900, (1, 2), "sweep: {}", "http://h:1/#/experiments/3/runs", {1: "r/report.html"}, "")


def page(choice: Choice, tested: dict[str, tuple[float, float]] | None = None) -> str:
    return sweep_page("a sweep", choice, parse(SPACE), setting(), tested, COUNTS).html()


def test_the_recommendation_and_what_it_gives_up_in_plain_sentences():
    choice = three()
    assert headline(choice) == "Trial 2: the best compromise of the 3 trials that no other beats on all goals."
    first, second = gives_up(choice)
    assert first == (
        "Mean AUROC: 0.88. It is 0.02 worse than trial 1, 10 % of the range of the Pareto set. "
        "That is more than its standard deviation over seeds (0.0141)."
    )
    assert second.startswith("Worst decile AUROC: 0.68. It is 0.02 worse than trial 3, 10 % of the range")
    nothing = choose({}, choice.sweep)
    assert "nothing to recommend" in headline(nothing)
    assert gives_up(nothing) == []
    one = choose({1: choice.trials[0]}, choice.sweep)
    assert headline(one) == "Trial 1: no other trial is better on any goal."
    assert gives_up(one)[0].endswith("No trial of the Pareto set is better.")


def test_trials_are_counted_by_how_they_ended():
    choice = three()
    counts = {"completed": 5, "stopped": 2, "failed": 1, "total": 10}
    assert counted(choice, counts) == (
        "5 trials completed, 2 stopped by the scheduler, 1 failed; 2 of 10 are still to run."
    )
    assert counted(choice, COUNTS) == "3 trials completed."
    assert counted(choice, COUNTS | {"completed": 1, "total": 1}) == "1 trial completed."


def test_intervals_are_student_s_over_seeds():
    choice = three()
    low, high = interval(choice.recommended, "auroc")
    # Two seeds .89 and .87: t of one degree of freedom is 12.706, the standard error .01.
    assert (low, high) == pytest.approx((0.88 - 0.12706, 0.88 + 0.12706), abs=1e-5)
    single = choice.trials[0]
    single = Finished(1, {}, "completed", finals={1: single.finals[1]}, rounds={1: single.rounds[1]})
    assert np.isnan(interval(single, "auroc")).all()
    row = objective_rows(choice, {"auroc": (0.86, 0.0), "worst_decile": (math.nan, math.nan)})[0]
    assert [cell.mean for cell in row.cells] == ["0.88", "0.86", "0.9"]
    assert row.cells[0].interval == "0.7529 to 1.007"
    assert row.cells[2].interval == "trial 1"
    assert objective_rows(choice, None)[1].cells[1].mean == "–"


def test_keys_have_the_axis_of_their_values():
    choice, space = searched(30), parse(SPACE)
    few = searched(2)
    rates = [trial.params["training.learning_rate"] for trial in few.trials]
    assert svg.spaced("", rates).kind == "linear", "so few says nothing of their spacing"
    for each in (choice, few):
        assert scale(each, "training.learning_rate", space)[0].kind == "log"
    names, places = scale(choice, "strategy.name", space)
    assert names.kind == "names"
    assert [names.texts[int(p)] for p in places] == [t.params["strategy.name"] for t in choice.trials]
    _, mu = scale(choice, "strategy.mu", space)
    assert np.isnan(mu).tolist() == ["strategy.mu" not in t.params for t in choice.trials]


def test_every_mark_of_a_trial_has_its_number():
    choice, space = searched(25), parse(SPACE)
    drawn = {figure.name: str(figure.markup) for figure in figures(choice, space)}
    assert list(drawn) == [
        *("pareto", "slices-auroc", "slices-worst_decile", "slices-size_bias_abs", "parallel"),
        *("importances", "hypervolume"),
    ]
    for name in ("pareto", "slices-auroc", "parallel"):
        assert {int(n) for n in re.findall(r'data-h="(\d+)"', drawn[name])} == set(range(25)), name
    assert len(re.findall(r'class="chart"', drawn["pareto"])) == 3, "a panel a pair"
    assert [figure.name for figure in figures(choose({}, choice.sweep), space)] == []
    alone = searched(3, objectives={"auroc": "max"})
    assert "pareto" not in [figure.name for figure in figures(alone, space)]


def test_the_hypervolume_grows_to_that_of_all_trials():
    choice = searched(25)
    said = hypervolume(choice)
    assert f"{choice.hypervolume:.4g}" in str(said.markup)


def test_importances_find_the_key_that_decides():
    choice = searched(40)
    importance = importances(choice, parse(SPACE))
    assert importance is not None
    keys, shares = importance
    assert set(keys) == {"strategy.name", "training.learning_rate"}, "a conditional key is not in every trial"
    of = shares[keys.index("training.learning_rate")]
    assert of[0] > 0.9
    assert shares.sum(axis=0) == pytest.approx(np.ones(3))
    assert importances(searched(ENOUGH - 1), parse(SPACE)) is None
    assert importances(choose({}, choice.sweep), parse(SPACE)) is None
    assert varied(choice, parse(SPACE)) == list(SPACE)


def test_the_page_stands_alone_and_escapes_what_is_configured():
    choice = three()
    html = page(choice, {"auroc": (0.86, 0.01), "worst_decile": (0.6, 0.02)})
    assert "<b>" not in html
    assert not re.search(r'(src|href)="https?://(?!h:1/)', html)
    for text in (
        "Trial 2: the best compromise",
        "0.86",
        'href="r/report.html"',
        'href="http://h:1/#/experiments/3/runs"',
        "trials.csv",
    ):
        assert text in html, text
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert trial_data(choice, ["strategy.mu"])[1]["params"] == {"strategy.mu": "0.5"}
    assert "nothing to recommend" in page(choose({}, choice.sweep))


def test_a_trial_that_is_chosen_is_marked_in_every_figure_in_a_browser(tmp_path: Path):
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    choice = searched(25)
    probe = """<script>addEventListener("load", () => {
  const select = document.getElementById("trial");
  select.value = "7"; select.dispatchEvent(new Event("change"));
  const named = [...document.querySelectorAll(".now")].map((mark) => mark.closest("svg").querySelector("title").id);
  const all = document.querySelectorAll('.chart [data-h="7"]').length;
  const told = document.getElementById("trial-text").textContent;
  document.querySelector('.chart [data-h="3"]').dispatchEvent(new PointerEvent("pointerenter"));
  document.body.dataset.seen = JSON.stringify({named, all, told, then: select.value,
    wide: document.documentElement.scrollWidth <= innerWidth});
});</script></body>"""
    written = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page(choice))  # which refuses the probe
    (tmp_path / "page.html").write_text(written.replace("</body>", probe))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=500,900", "--virtual-time-budget=4000"]
    done = subprocess.run(
        [CHROMIUM, *flags, "--dump-dom", f"--user-data-dir={tmp_path / 'profile'}", (tmp_path / "page.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=600,
    ).stdout
    seen = re.search(r'data-seen="([^"]+)"', done)
    assert seen is not None, done[-2000:]
    text = seen.group(1).replace("&quot;", '"')
    number = choice.trials[7].params
    assert '"then":"3"' in text
    assert '"wide":true' in text
    assert f"training.learning_rate {number['training.learning_rate']:.4g}" in text
    # Three pairs, up to nine slices and the parallel coordinates: all marks of the trial, and no others.
    marked = re.search(r'"named":\[([^\]]*)\],"all":(\d+)', text)
    assert marked is not None
    charts = marked.group(1).split(",")
    assert len(charts) == int(marked.group(2))
    for chart in ("pareto-0-1", "pareto-1-2", "slice-0-0", "slice-2-1", "parallel"):
        assert any(chart in each for each in charts), chart
