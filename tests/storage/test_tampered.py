"""Files that a run goes on from and somebody has changed: one line that names the file, and bounds before memory."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save

from raysim.core.errors import ConfigError
from raysim.engine.run_state import RunState
from raysim.storage.checkpoints import Checkpoints
from raysim.storage.encoding import Damaged, decode, encode, read_tensors
from raysim.storage.finished import load_finished
from raysim.storage.manifest import Manifest
from raysim.storage.resume import FILE, Ticket, read_ticket
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.selections.sampling import All
from tests.conftest import MakeFederation
from tests.storage.test_checkpoint import job, run_once
from tests.storage.test_resume import go_on, here, start, stopped  # noqa: F401

TICKET: dict[str, Any] = {
    "kind": "run",
    "settings": {"seed": 1},
    "checkpoints": "c",
    "working": "/",
    "id": "0" * 32,
    "finished": False,
    "format": 1,
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"settings": [1]}, r"resume.json.settings: \[1\] is not"),
        ({"checkpoints": 5}, "resume.json.checkpoints: 5 is not text"),
        ({"working": None}, "resume.json.working: null is not text"),
        ({"finished": [True]}, "resume.json.finished: "),
        ({"id": "x' or 1=1"}, 'id "x\' or 1=1" was not made by raysim'),
        ({"more": 1}, "unexpected keyword argument 'more'"),
        ({"settings": json.loads('{"a":' * 200 + "1" + "}" * 200)}, "it is nested deeper than 100 levels"),
    ],
)
def test_a_changed_ticket(change, words, tmp_path):
    (tmp_path / FILE).write_text(json.dumps(TICKET))
    assert read_ticket(tmp_path) == Ticket(**TICKET)
    (tmp_path / FILE).write_text(json.dumps(TICKET | change))
    with pytest.raises(ConfigError, match=words) as said:
        read_ticket(tmp_path)
    assert str(tmp_path / FILE) in str(said.value)


@pytest.fixture
def content(federate: MakeFederation) -> bytes:
    planned = job(federation := federate([8, 6, 7]), FedAvg(), All())
    standing = next(event for event in run_once(federation, planned) if isinstance(event, RunState))
    return encode(standing, "abc", FedAvg())


def changed(content: bytes, change: Any, **tensors: Any) -> bytes:
    """The checkpoint with ``change(header)`` as its header and other arrays."""
    arrays, header = read_tensors(content)
    change(header)
    return save(arrays | tensors, {"raysim": json.dumps(header)})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h: h.update(round=-1), "its round is -1"),
        (lambda h: h.update(round="one"), "its round is 'one'"),
        (lambda h: h.update(round=0), "its header says round 0, but it has the results of 1 rounds"),
        (lambda h: h.update(seconds=[]), "float"),
        (lambda h: h.update(setup_down=1e300), "its setup_down is 1e"),
        (
            lambda h: h["ledger"][0].__setitem__(2, 10**15),
            "its number of hospitals in a ledger entry is 1000000000000000",
        ),
        (lambda h: h["ledger"][0].__setitem__(1, 7), "kind 7"),
        (lambda h: h["ledger"][0].__setitem__(5, None), "program None"),
        (lambda h: h["rounds"][0].update(metrics=7), "rounds.0.metrics"),
        (lambda h: h.update(models_held=[[1], [2]]), "not a list"),
        (lambda h: h.update(losses=[]), "argument after"),
        (lambda h: h.pop("clock"), "clock"),
        (
            lambda h: h.update(ledger=[row for row in h["ledger"] if row[1] != "update"]),
            "its ledger has 0 bytes of round 1",
        ),
        (
            lambda h: h["ledger"].append([3, "update", 3, True, 4, ""]),
            "its ledger goes 2 rounds beyond the checkpoint's",
        ),
        (
            lambda h: h.update(ledger=[row for row in h["ledger"] if row[0]]),
            "lacks what hospitals sent before the first",
        ),
    ],
)
def test_a_checkpoint_that_was_changed_and_signed_again_is_damaged_in_a_line(change, words, content):
    assert decode(content, FedAvg())[1] == "abc"
    with pytest.raises(Damaged, match=words):
        decode(changed(content, change), FedAvg())


def test_the_state_that_a_trial_hands_on_is_no_checkpoint(content, tmp_path):
    def without_history(header: dict[str, Any]) -> None:
        del header["rounds"]

    other = changed(content, without_history)
    digest = hashlib.blake2b(other, digest_size=16).hexdigest()
    (tmp_path / f"round-000001.{digest}.safetensors").write_bytes(other)
    standing, said = Checkpoints(str(tmp_path), 2, "abc", FedAvg()).latest()
    assert standing is None
    assert said == ["checkpoint round-000001 is damaged (it does not contain the results of earlier rounds)"]


def test_a_state_that_fits_no_model_is_named_with_its_checkpoint(here: Path, monkeypatch):  # noqa: F811
    tree: dict[str, Any] = {"data": {"hospitals": 5, "rows": 200, "features": 3}, "checkpoint": {"every": 1}}
    tree |= {"training": {"rounds": 5, "batch_size": 32}, "strategy": "fedavg", "tracking": {"uri": "none"}}
    stopped(monkeypatch, tree, "stopped", 4)
    *_, last = sorted(Path("stopped/checkpoints").iterdir())
    arrays, header = read_tensors(last.read_bytes())
    fields = header["state"]["value"]["fields"]
    other = save(
        arrays,
        {"raysim": json.dumps(header | {"state": header["state"] | {"value": {"fields": dict.fromkeys(fields)}}})},
    )
    last.unlink()
    digest = hashlib.blake2b(other, digest_size=16).hexdigest()
    last.with_name(f"round-{header['round']:06d}.{digest}.safetensors").write_bytes(other)
    with pytest.raises(ConfigError, match=r"the checkpoint of round \d cannot be resumed .* remove this checkpoint"):
        go_on("stopped")


def test_rounds_that_are_taken_out_of_the_ledger_do_not_lower_epsilon(here: Path, monkeypatch):  # noqa: F811
    tree: dict[str, Any] = {"data": {"hospitals": 6, "rows": 240, "features": 3}, "checkpoint": {"every": 2}}
    tree |= {"training": {"rounds": 6, "batch_size": 32}, "strategy": "fedavg", "tracking": {"uri": "none"}}
    tree |= {"privacy": {"unit": "hospital", "noise_multiplier": 2.0, "declared_public": ["size", "preprocessing"]}}
    tree |= {"selection": "all"}
    start(tree, "whole")
    stopped(monkeypatch, tree, "stopped", 5)
    for last in sorted(Path("stopped/checkpoints").iterdir()):
        arrays, header = read_tensors(last.read_bytes())
        header["ledger"] = [row for row in header["ledger"] if row[1] != "update" or row[0] > 2]
        other = save(arrays, {"raysim": json.dumps(header)})
        digest = hashlib.blake2b(other, digest_size=16).hexdigest()
        last.unlink()
        last.with_name(f"round-{header['round']:06d}.{digest}.safetensors").write_bytes(other)
    said = go_on("stopped")
    assert "is damaged (its ledger has 0 bytes of round 1, in which " in said
    whole, again = (json.loads(Path(out, "summary.json").read_text())["privacy"] for out in ("whole", "stopped"))
    assert again == whole
    assert whole["epsilon_of_covered"] > 0


def test_a_finished_run_that_was_changed_is_not_whole(tmp_path):
    header = {"rounds": [], "figures": {"dict": []}, "pairs": {"dict": []}, "metrics": {"global": {"auroc": "high"}}}
    (tmp_path / "finished.safetensors").write_bytes(save({}, {"raysim": json.dumps(header)}))
    assert load_finished(tmp_path) is None


@pytest.mark.parametrize("text", ["[]", "null", '{"format": 1}', '{"format": 1, "files": {"a": {"bytes": Infinity}}}'])
def test_a_changed_manifest(text, tmp_path):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ConfigError, match=r"manifest.json: cannot be read"):
        Manifest.read(tmp_path)
