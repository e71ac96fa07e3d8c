"""What a run stores of its models is all that served: every row of its tables comes out again from the files."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save

from raysim.config.sections.evaluation import EvaluationSection
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.data import raw_columns
from raysim.engine.job import Job, Outcome
from raysim.serving.predictor import Predictor
from raysim.storage.coefficients import coefficients
from raysim.storage.manifest import Manifest
from raysim.storage.results import write_run
from raysim.storage.run_tables import predictions_table, split_pieces, split_table
from raysim.storage.served import ELSEWHERE, NOBODY, read_served, served
from raysim.strategies.base import OWN, Strategy
from raysim.strategies.hospital_clusters.fedsoft import FedSoft
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.personal.ditto import Ditto
from raysim.strategies.personal.fedper import FedPer
from raysim.strategies.references.local import Local
from raysim.strategies.selections.sampling import Uniform
from raysim.strategies.shared.personalization import RECALIBRATED, LastSteps, Recalibration
from tests.conftest import MLP, fitting, job_of, run, run_strategy, with_patients

STRATEGIES = sorted(registry.entries("strategies"))
UNEVEN = [9, 4, 13, 0, 1, 6, 8]


def wrote(folder, federation, outcome: Outcome, precision: str = "float64") -> None:
    write_run(Manifest.begin(folder, "run"), federation, outcome, {}, EvaluationSection(), precision)


def opened(folder, federation, job: Job) -> Predictor:
    """The files in ``folder`` with the job's model, without the configuration that a run has beside them."""
    model = job.work.model.bind(federation, "cpu", job.work.precision)
    return Predictor(folder, federation.preprocessing, model, read_served(folder, model.layout, lambda: job.strategy))


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_row_of_the_tables_comes_out_again_from_the_files(name, federate, tmp_path):
    """In float32; the test below is in float64."""
    strategy: Strategy = registry.load("strategies", name, "strategy.name")()
    if hasattr(strategy, "clusters"):
        strategy = dataclasses.replace(strategy, clusters=3)
    federation = with_patients(federate(UNEVEN, features=4))
    # Two of seven a round, so that some have never been drawn when it ends.
    settings = {"selection": Uniform(0.2, 2), "rounds": 2, "precision": "float32", "predictions": True}
    job = fitting(job_of(federation, strategy, **settings), federation)
    outcome = run(federation, job, actors=2)
    wrote(tmp_path, federation, outcome, "float32")
    predictor = opened(tmp_path, federation, job)
    homes = np.repeat(np.array(federation.hospitals, object), federation.totals)
    X, observed = np.asarray(federation.X), np.asarray(federation.observed)
    offsets = np.concatenate([[0], np.cumsum(federation.sizes("test"))])
    tested = np.concatenate([np.arange(len(X))[federation.rows(h, "test")] for h in range(len(UNEVEN))])
    tolerance = 1e-5
    assert list(predictor.served.owners) == list(outcome.serve)
    for model in outcome.serve:
        untrained = outcome.untrained[model]
        scored = np.repeat(~untrained, federation.totals)
        outputs = np.full_like(outcome.predictions[model], np.nan)
        outputs[scored] = predictor.outputs(X[scored], observed[scored], homes[scored], model)
        np.testing.assert_allclose(outputs, outcome.predictions[model], atol=tolerance, rtol=tolerance)
        # A model that nobody has trained has no figures, but its hospital still has rows.
        figures = federation.task.measure(outputs[tested], federation.y[tested], offsets)[~untrained]
        np.testing.assert_allclose(figures, outcome.figures[model][~untrained], atol=tolerance, rtol=tolerance)
        undefined = np.isnan(outcome.figures[model][untrained])
        counts = [name in ("n", *federation.task.counts) for name in federation.task.figures]
        assert undefined[:, ~np.array(counts)].all()
        assert not undefined[:, counts].any()
        for hospital in np.array(federation.hospitals, object)[untrained]:
            with pytest.raises(ConfigError, match=f"{model} model of hospital '{hospital}' was never trained"):
                predictor.owner(hospital, model)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_recalibrated_model_comes_out_again_from_the_files(name, federate, tmp_path):
    """In float64 alone: what float32 rounds of a strategy's models is in the test above."""
    strategy: Strategy = registry.load("strategies", name, "strategy.name")()
    if hasattr(strategy, "clusters"):
        strategy = dataclasses.replace(strategy, clusters=3)
    federation = with_patients(federate(UNEVEN, features=4, validation=[6, 9, 0, 8, 7, 5, 8]))
    settings = {"selection": Uniform(0.2, 2), "rounds": 2, "precision": "float64", "predictions": True}
    last = LastSteps(recalibration=Recalibration())
    job = fitting(job_of(federation, strategy, last=last, **settings), federation)
    outcome = run(federation, job, actors=2)
    wrote(tmp_path, federation, outcome, "float64")
    predictor = opened(tmp_path, federation, job)
    homes = np.repeat(np.array(federation.hospitals, object), federation.totals)
    assert list(predictor.served.owners) == list(outcome.serve)
    assert predictor.served.headline == RECALIBRATED
    for model in outcome.serve:
        scored = np.repeat(~outcome.untrained[model], federation.totals)
        assert (outcome.untrained[RECALIBRATED] == outcome.untrained[list(outcome.serve)[-2]]).all()
        outputs = predictor.outputs(federation.X[scored], federation.observed[scored], homes[scored], model)
        np.testing.assert_allclose(outputs, outcome.predictions[model][scored], atol=1e-12, rtol=1e-12)
        assert np.isnan(outcome.predictions[model][~scored]).all()
    table = pd.read_csv(tmp_path / "recalibration.csv")
    assert outcome.recalibrated is not None
    np.testing.assert_allclose(table["intercept"], outcome.recalibrated.shifts.intercept, rtol=1e-12)
    spent = np.where(outcome.untrained[RECALIBRATED], 0, [6, 9, 0, 8, 7, 5, 8])
    assert table["validation_rows"].tolist() == spent.tolist()


@pytest.mark.parametrize(("method", "shifted"), [("eb", True), ("intercept", False)])
def test_an_unknown_hospital_gets_the_mean_shift_of_the_model_that_serves_it(method, shifted, federate, tmp_path):
    federation = federate(UNEVEN, features=4, validation=[6, 9, 0, 8, 7, 5, 8])
    job = job_of(federation, FedAvg(), last=LastSteps(recalibration=Recalibration(method)), predictions=True)
    outcome = run(federation, job, actors=1)
    wrote(tmp_path, federation, outcome)
    predictor = opened(tmp_path, federation, job)
    X, observed = np.asarray(federation.X), np.asarray(federation.observed)
    new = np.full(len(X), "elsewhere", dtype=object)
    mean = outcome.recalibrated.prior.mean if shifted else 0.0
    np.testing.assert_allclose(predictor.outputs(X, observed, new), outcome.predictions["global"] + mean, atol=1e-12)
    np.testing.assert_array_equal(predictor.outputs(X, observed, new, "global"), outcome.predictions["global"])
    assert predictor.owner(None) == (ELSEWHERE if shifted else "global")
    assert predictor.owner("h3") == f"{RECALIBRATED}/h3"
    assert predictor.owner("h3", "global") == predictor.owner(None, "global") == "global"


def test_hospitals_own_models_have_no_mean_shift_for_others(federate):
    federation = federate(UNEVEN, validation=[6, 9, 0, 8, 7, 5, 8])
    outcome = run_strategy(federation, Ditto(), rounds=1, last=LastSteps(recalibration=Recalibration()))
    models = served(federation, outcome, "float64")
    assert models.others == "global", "the shift was fitted to hospitals' own models, and not to this one"


def test_a_mixture_is_stored_with_its_centres(federate, tmp_path):
    federation = federate(UNEVEN)
    outcome = run_strategy(federation, FedSoft(clusters=2, fraction=0.2), rounds=1)
    never = [h for h in range(len(UNEVEN)) if h not in outcome.own_models]
    assert len(never) > 1
    models = served(federation, outcome, "float64")
    assert {"cluster/0", "cluster/1"} < set(models.vectors)
    assert "global" not in models.vectors, "row 0 of its models used nobody"
    assert outcome.mixture is not None
    for hospital in never:
        theta_of = models.vectors[f"personal/h{hospital}"]
        weights = outcome.mixture[hospital]
        np.testing.assert_allclose(
            theta_of, weights[1] * outcome.models[1] + weights[2] * outcome.models[2], rtol=1e-12
        )
    for hospital, theta in outcome.own_models.items():
        np.testing.assert_array_equal(models.vectors[f"personal/h{hospital}"], theta)
    assert models.others is None, "no hospital that it did not know can be served"


def test_hospitals_that_were_never_sampled_have_no_model_of_their_own(federate):
    federation = federate(UNEVEN)
    ditto = run_strategy(federation, Ditto(), rounds=1, selection=Uniform(0.2, 1), model=MLP)
    never = next(h for h in (0, 1, 2) if h not in ditto.own_models)
    models = served(federation, ditto, "float64")
    assert models.owners["personal"][f"h{never}"] == NOBODY
    assert f"personal/h{never}" not in models.vectors
    assert models.owners["personal"]["h3"] == "global", "without training rows it is served the global model"
    assert models.others == "global"

    shared = run_strategy(federation, FedPer(final_head_epochs=0), rounds=1, selection=Uniform(0.2, 1), model=MLP)
    assert shared.private is not None
    never = next(h for h in (0, 1, 2) if h not in shared.own_models)
    drawn = next(iter(shared.own_models))
    models = served(federation, shared, "float64")
    assert models.owners["personal"][f"h{never}"] == NOBODY, "the common start's head is nobody's"
    personal = models.vectors[f"personal/h{drawn}"]
    np.testing.assert_array_equal(personal[~shared.private], shared.models[0][~shared.private])
    np.testing.assert_array_equal(personal[shared.private], shared.own_models[drawn][shared.private])
    assert models.others is None, "the body alone is not a model"


def test_untrained_hospitals_of_local_differ_from_a_global_model(federate, tmp_path):
    federation = federate(UNEVEN)
    job = job_of(federation, Local())
    outcome = run(federation, job, 1)
    assert (outcome.serve["personal"] == OWN).all()
    wrote(tmp_path, federation, outcome)
    assert not any(name.startswith("global") for name in load_file(tmp_path / "models.safetensors"))
    predictor = opened(tmp_path, federation, job)
    assert predictor.owner("h2") == "personal/h2"
    with pytest.raises(ConfigError, match="--hospital: the personal model of hospital 'h3' was never trained") as error:
        predictor.owner("h3")
    assert len(str(error.value).splitlines()) == 1
    with pytest.raises(
        ConfigError, match=r"--hospital: there is no single personal model for all hospitals; name one hospital of h0"
    ):
        predictor.owner(None)


def test_two_own_models_of_one_hospital_are_kept_apart(federate, tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Both(FedPer):
        """Serves the shared body with each hospital's head, and the first of two clusters' besides."""

        def setup(self, view):
            state = super().setup(view)
            shared = ~self.private(view)
            return dataclasses.replace(state, models=np.stack([state.models[0], state.models[0] + shared]))

        def aggregate(self, view, state, update):
            return dataclasses.replace(state, models=state.models + update.sums)

        def serve(self, view, state):
            n = len(view.sizes)
            return {"other": np.ones(n, np.int64), "personal": np.zeros(n, np.int64)}

    federation = federate(UNEVEN)
    job = job_of(federation, Both(), model=MLP, predictions=True)
    outcome = run(federation, job, 1)
    wrote(tmp_path, federation, outcome)
    predictor = opened(tmp_path, federation, job)
    assert predictor.owner("h0", "personal") == "personal/h0"
    assert predictor.owner("h0", "other") == "other/h0"
    homes = np.repeat(np.array(federation.hospitals, object), federation.totals)
    trained = homes != "h3"  # without training rows it has no head of its own
    for model in ("other", "personal"):
        outputs = predictor.outputs(federation.X[trained], federation.observed[trained], homes[trained], model)
        np.testing.assert_allclose(outputs, outcome.predictions[model][trained], atol=1e-12)
        assert np.isnan(outcome.predictions[model][~trained]).all()


def test_predictions_and_split_name_the_rows_of_the_source(federate, monkeypatch):
    federation = federate([2, 3], [1, 2])
    # The source's rows come in another order than the federation's.
    order = np.array([5, 0, 7, 1, 2, 3, 6, 4])
    np.save(federation.folder / "source_rows.npy", order)
    split = split_table(federation)
    monkeypatch.setattr(raw_columns, "CHUNK", 3)
    assert len(list(split_pieces(federation))) == 3
    pd.testing.assert_frame_equal(split_table(federation), split)
    assert split["row"].tolist() == list(range(8))
    assert split["hospital"].tolist() == ["h0", "h1", "h1", "h1", "h1", "h0", "h1", "h0"]
    assert split["part"].tolist() == ["train", "train", "train", "train", "test", "train", "test", "test"]
    outcome = run_strategy(federation, FedAvg(), predictions=True)
    table = predictions_table(federation, outcome)
    assert list(table.columns) == ["row", "hospital", "part", "model", "probability"]
    pd.testing.assert_frame_equal(table[["row", "hospital", "part"]], split)
    theta = outcome.models[0]
    margins = np.empty(8)
    margins[order] = federation.X.astype(np.float64) @ theta[:-1] + theta[-1]
    np.testing.assert_allclose(table["probability"], 1 / (1 + np.exp(-margins)), rtol=1e-12)


def test_what_leaves_hospitals_with_predictions_is_in_the_ledger(federate):
    federation = federate(UNEVEN, classes=3)
    plain, asked = (
        run_strategy(federation, FedAvg(), predictions=predictions, rounds=2) for predictions in (False, True)
    )
    assert plain.predictions == {}
    kinds = {kind: (round, ids, sent) for round, kind, ids, sent, _ in asked.ledger.entries}
    round, ids, sent = kinds["predictions"]
    assert round == 2
    assert ids.tolist() == list(range(7))
    assert sent.tolist() == [4 * 3 * (n + 5) for n in UNEVEN]
    assert "predictions" not in {kind for _, kind, _, _, _ in plain.ledger.entries}
    assert plain.traffic == asked.traffic, "what the experimenter asks for is not what federating costs"
    assert plain.setup == asked.setup


def test_coefficients_have_names_and_units(federate):
    federation = federate([9, 4], features=2)
    tree = json.loads((federation.folder / "preprocessing.json").read_text())
    tree["columns"][0] |= {"mean": 10.0, "scale": 4.0}
    tree["columns"][1] |= {"mean": 3.0, "scale": None}
    (federation.folder / "preprocessing.json").write_text(json.dumps(tree))
    outcome = run_strategy(federation, FedAvg(), rounds=2)
    theta = outcome.models[0]
    table = coefficients(federation, {"global": theta}, outcome.layout)
    assert table is not None
    assert table["model"].tolist() == ["global"] * 3
    assert table["feature"].tolist() == ["x0", "x1", "(intercept)"]
    np.testing.assert_array_equal(table["coefficient"], theta)
    np.testing.assert_allclose(table["per_unit"], [theta[0] / 4, 0, theta[2] - theta[0] * 10 / 4])
    assert coefficients(federation, {}, run_strategy(federation, FedAvg(), model=MLP).layout) is None


def test_coefficients_of_several_classes(federate):
    federation = federate([9, 4], features=2, classes=3)
    outcome = run_strategy(federation, FedAvg(), rounds=2)
    table = coefficients(federation, {"global": outcome.models[0]}, outcome.layout)
    assert table is not None
    assert table["class"].tolist() == ["0"] * 3 + ["1"] * 3 + ["2"] * 3
    tensors = outcome.layout.split(outcome.models[0])
    second = table[table["class"] == "1"]["coefficient"].tolist()
    assert second == [*tensors["weight"][1].tolist(), tensors["bias"][1]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no models to score with"),
        ("{", "cannot be used"),
        ('{"format": 9}', "its format is 9, and this version reads 1"),
        (
            '{"format": 1, "hospitals": ["h0"], "models": {"global": "nobody"}, "other_hospitals": null}',
            "cannot be used",
        ),
        ('{"format": ' * 5000, "it is nested deeper than 100 levels"),
    ],
)
def test_files_that_cannot_be_used_are_refused_in_a_line(content, said, federate, tmp_path):
    federation = federate([3, 4])
    job = job_of(federation, FedAvg())
    wrote(tmp_path, federation, run(federation, job, 1))
    if content is None:
        (tmp_path / "serving.json").unlink()
    else:
        (tmp_path / "serving.json").write_text(content)
    with pytest.raises(ConfigError, match=said):
        opened(tmp_path, federation, job)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tensors: b"no tensors", "cannot be used"),
        (lambda tensors: save({name: tensor.astype(np.int64) for name, tensor in tensors.items()}), "of type int64"),
        (
            lambda tensors: save({name: np.append(tensor, tensor) for name, tensor in tensors.items()}),
            "has 8 numbers of type float64, but the model needs 4 floating-point numbers",
        ),
    ],
)
def test_models_that_are_none_of_the_run_are_refused_in_a_line(change, said, federate, tmp_path):
    federation = federate([3, 4])
    job = job_of(federation, FedAvg())
    wrote(tmp_path, federation, run(federation, job, 1))
    path = tmp_path / "models.safetensors"
    path.write_bytes(change(load_file(path)))
    with pytest.raises(ConfigError, match=said):
        opened(tmp_path, federation, job)


def test_a_division_that_the_strategy_does_not_know_is_not_made(federate, tmp_path):
    federation = federate(UNEVEN, features=4)
    job = job_of(federation, registry.load("strategies", "kfed", "")(clusters=2))
    wrote(tmp_path, federation, run(federation, job, 1))
    tree = json.loads((tmp_path / "serving.json").read_text())
    for named in ("os.path", "KFed", "LocalLabels", "dataclass"):
        tree["division"]["class"] = named
        (tmp_path / "serving.json").write_text(json.dumps(tree))
        with pytest.raises(ConfigError, match=f"the rule for groups of rows has the class {named}, which the"):
            opened(tmp_path, federation, job)
