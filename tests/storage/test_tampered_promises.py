"""Checkpoints of private, compressed, secret and attacked runs that somebody has changed and signed again.

A change is refused in a line, or the checkpoint is passed over and the run ends as if it had not been there: no epsilon
is stated that is lower than what the run has cost, and nothing is left out of what hospitals owe.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from raysim.core.errors import ConfigError
from raysim.storage.checkpoints import read_tensors
from tests.storage.test_resume import go_on, start, stopped

SMALL: dict[str, Any] = {
    "data": {"source": "synthetic", "hospitals": 6, "rows": 240, "features": 3},
    "training": {"rounds": 6, "batch_size": 32},
    "strategy": "fedavg",
    "selection": "all",
    "tracking": {"uri": "none"},
    "checkpoint": {"every": 2},
}

PUBLIC = ["size", "preprocessing", "metrics"]


def private(unit: str = "hospital", **keys: Any) -> dict[str, Any]:
    return {"privacy": {"unit": unit, "noise_multiplier": 2.0, "declared_public": PUBLIC, **keys}}


RUNS: dict[str, dict[str, Any]] = {
    "residuals": {"compression": {"name": "top_k", "ratio": 0.4}},
    "held": {"compression": {"name": "sign", "feedback": "ef21"}},
    "some": {"compression": {"name": "top_k", "ratio": 0.4}, "selection": {"name": "poisson", "fraction": 0.4}},
    "secure": {"secure": {}},
    "mimic": {"adversary": {"attack": "mimic", "share": 0.3}, "aggregation": {"name": "centred_clipping"}},
    "central": private(),
    "drawn": private() | {"selection": {"name": "poisson", "fraction": 0.5}},
    "adaptive": private(adaptive={"bits": 2.0}, clip=0.5),
    "signatures": private() | {"strategy": {"name": "chip", "clusters": 2}},
    "own": private(mode="local"),
    "patients": private("patient"),
    "steps": private("patient", mode="local") | {"selection": {"name": "uniform", "fraction": 0.5, "minimum": 2}},
}
"""What the runs have beside ``SMALL``."""

FILES = ("models.safetensors", "hospitals.csv", "egress.csv", "rounds.csv")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder with ``stopped``, as it was when the run was stopped, and ``whole``, which nobody has stopped."""
    home, ready = tmp_path_factory.mktemp("runs"), set[str]()

    def folder(name: str) -> Path:
        at = home / name
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RAYSIM_CACHE", str(home / "cache"))
            if name not in ready:
                at.mkdir()
                patch.chdir(at)
                start(SMALL | RUNS[name], "whole")
                stopped(patch, SMALL | RUNS[name], "stopped", 5)
                shutil.copytree("stopped", "template")
                ready.add(name)
        shutil.rmtree(at / "stopped")
        shutil.copytree(at / "template", at / "stopped")
        return at

    return folder


@pytest.fixture
def run(made, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def enter(name: str) -> None:
        at = made(name)
        monkeypatch.setenv("RAYSIM_CACHE", str(at.parent / "cache"))
        monkeypatch.chdir(at)

    return enter


Header = dict[str, Any]
Tensors = dict[str, Any]
Change = Callable[[Header, Tensors], None]


def sign_again(change: Change) -> None:
    """Change all checkpoints of ``stopped``, with digests that fit."""
    paths = sorted(Path("stopped/checkpoints").iterdir())
    assert paths
    for path in paths:
        arrays, header = read_tensors(path.read_bytes())
        change(header, arrays)
        content = save(arrays, {"raysim": json.dumps(header)})
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        path.unlink()
        path.with_name(f"round-{header['round']:06d}.{digest}.safetensors").write_bytes(content)


def timeless(name: str, folder: str) -> bytes:
    content = Path(folder, name).read_bytes()
    if name != "rounds.csv":
        return content
    head, *rows = [line.split(b",") for line in content.splitlines()]
    at = head.index(b"seconds")
    return b"\n".join(b",".join(row[:at] + row[at + 1 :]) for row in rows)


def promised(folder: str) -> Any:
    return json.loads(Path(folder, "summary.json").read_text()).get("privacy")


@pytest.mark.parametrize("name", RUNS)
def test_what_nobody_has_changed_goes_on(name: str, run):
    run(name)
    sign_again(lambda header, arrays: None)
    said = go_on("stopped")
    assert "goes on from round 4 of 6" in said
    assert "damaged" not in said
    for file in FILES:
        assert timeless(file, "whole") == timeless(file, "stopped"), file
    assert promised("stopped") == promised("whole")


def refused(words: str) -> None:
    """Going on ends in a line with ``words``, or says them and ends as the run that nobody has touched."""
    try:
        said = go_on("stopped")
    except ConfigError as error:
        said = str(error)
        assert "\n" not in said
        assert "remove it, then the one before it is used" in said
    else:
        for file in FILES:
            assert timeless(file, "whole") == timeless(file, "stopped"), file
        assert promised("stopped") == promised("whole")
    assert words in said


def kept(change: Callable[[Header, Tensors, str], None]) -> Change:
    """``change`` of the first thing that hospitals remember."""

    def changed(header: Header, arrays: Tensors) -> None:
        change(header, arrays, f"kept/{header['kept'][0]}")

    return changed


def drop_one(header: Header, arrays: Tensors, name: str) -> None:
    arrays[name], arrays[f"{name}/ids"] = arrays[name][1:], arrays[f"{name}/ids"][1:]


def forget(header: Header, arrays: Tensors) -> None:
    header["kept"] = None


def other_ids(ids: Any) -> Change:
    def change(header: Header, arrays: Tensors, name: str) -> None:
        arrays[f"{name}/ids"] = np.array([ids, *arrays[f"{name}/ids"][1:].tolist()])

    return kept(change)


def values(make: Callable[[Any], Any]) -> Change:
    def change(header: Header, arrays: Tensors, name: str) -> None:
        arrays[name] = make(arrays[name])

    return kept(change)


def rename(header: Header, arrays: Tensors) -> None:
    (old,) = header["kept"]
    header["kept"] = ["residue"]
    arrays["kept/residue"], arrays["kept/residue/ids"] = arrays[f"kept/{old}"], arrays[f"kept/{old}/ids"]


def bomb(header: Header, arrays: Tensors) -> None:
    arrays[f"kept/{header['kept'][0]}/ids"] = np.empty((10**9, 0), dtype=np.int64)


@pytest.mark.parametrize("name", ["residuals", "held"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (forget, "owes nothing of what compression left out"),
        (lambda header, arrays: header.update(kept=[]), "owes nothing of what compression left out"),
        (kept(drop_one), "owes nothing of what compression left out"),
        (other_ids(99), "hospital 99 remembers, and there are 6"),
        (other_ids(-1), "owes"),
        (values(lambda array: array * np.nan), "finite numbers are due"),
        (values(lambda array: array[:, :1]), "finite numbers are due"),
        (values(lambda array: np.repeat(array, 2, axis=1)), "finite numbers are due"),
        (rename, "remembers 'residue', which is nothing of raysim's"),
        (bomb, "is empty and has shape [1000000000, 0]"),
        (lambda header, arrays: header.update(kept=[["residual of 0"]]), "damaged"),
        (lambda header, arrays: header.update(kept=["residual of 7"]), "damaged"),
        (lambda header, arrays: header.update(models_held=[0] * 5), "damaged (its ledger is 6)"),
    ],
)
def test_what_hospitals_owe_under_compression(name: str, change: Change, words: str, run):
    run(name)
    sign_again(change)
    refused(words)


def test_what_a_hospital_owes_that_was_never_asked(run):
    """In a run in which only some take part."""
    run("some")

    def invented(header: Header, arrays: Tensors, name: str) -> None:
        missing = min({*range(6)} - {*arrays[f"{name}/ids"].tolist()}, default=None)
        if missing is not None:
            arrays[f"{name}/ids"] = np.append(arrays[f"{name}/ids"], missing)
            arrays[name] = np.concatenate([arrays[name], arrays[name][:1]])

    sign_again(kept(invented))
    refused("sent no update and owes")


def of(part: str, *path: Any) -> Callable[[Any], Change]:
    """Changes what ``attacks`` or ``reception`` holds at a path of keys of dicts and places of lists."""

    def to(value: Any) -> Change:
        def change(header: Header, arrays: Tensors) -> None:
            node: Any = header[part]
            for at, key in enumerate(path):
                ((_, content),) = node.items()
                items = content if isinstance(key, int) else [pair[1] for pair in content]
                place = key if isinstance(key, int) else [pair[0] for pair in content].index(key)
                if at == len(path) - 1:
                    if isinstance(key, int):
                        content[place] = value
                    else:
                        content[place][1] = value
                node = items[place]

        return change

    return to


SUMS = of("attacks", "secure", 0)
LOST = of("attacks", "secure", 1)


def removed(part: str) -> Change:
    return lambda header, arrays: header.pop(part, None) and None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (removed("attacks"), "it holds nothing of attacks, rules and secure sums"),
        (of("attacks", "secure")(None), "it does not count its secure sums"),
        (of("attacks", "secure")({"tuple": [1, 2, 3]}), "it does not count its secure sums"),
        (SUMS(-1), "its number of secure sums is -1"),
        (SUMS(10**300), "its number of secure sums is 1000"),
        (SUMS(math.nan), "its number of secure sums is nan"),
        (SUMS("many"), "its number of secure sums is 'many'"),
        (SUMS(None), "cannot be gone on from"),
        (SUMS({"list": [1]}), "cannot be gone on from"),
        (LOST(1000), "its number of secure sums given up is 1000"),
    ],
)
def test_the_count_of_secure_sums(change: Change, words: str, run):
    run("secure")
    sign_again(change)
    refused(words)


TALLY = ("attacks", "byzantine", "tally")


def centre(make: Callable[[Any], Any]) -> Change:
    def change(header: Header, arrays: Tensors) -> None:
        (name,) = [name for name in arrays if "centres" in name]
        arrays[name] = make(arrays[name])

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (removed("attacks"), "it holds nothing of attacks, rules and secure sums"),
        (of("attacks", "byzantine")(None), "it holds nothing of attacks and rules"),
        (of(*TALLY, "sums")(-3.0), "its sums is -3.0"),
        (of(*TALLY, "bad")(math.inf), "its bad is inf"),
        (of(*TALLY, "rejected")(1e300), "its rejected is 1e+300"),
        (of(*TALLY, "largest")(7.0), "its shares of bad updates are 7"),
        (of(*TALLY, "admitted")(math.nan), "its shares of bad updates are"),
        (of(*TALLY)({"dict": []}), "cannot be gone on from"),
        (of("attacks", "byzantine", "directions")(10**40), "its number of directions is 1000"),
        (centre(lambda array: array * np.nan), "its centre of updates is no vector of"),
        (centre(lambda array: array[:1]), "its centre of updates is no vector of"),
        (centre(lambda array: np.zeros((10**7, 0))), "is empty and has shape"),
    ],
)
def test_what_the_server_remembers_of_attacks(change: Change, words: str, run):
    run("mimic")
    sign_again(change)
    refused(words)


CLIP = of("reception", "guard", "clip")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (removed("reception"), "cannot be gone on from"),
        (CLIP(math.nan), "its clip is nan"),
        (CLIP(-1.0), "its clip is -1"),
        (CLIP(0), "its clip is 0"),
        (CLIP(1e300), "its clip is 1e+300"),
        (CLIP("wide"), "cannot be gone on from"),
        (lambda header, arrays: header.update(reception={"list": []}), "cannot be gone on from"),
    ],
)
def test_a_clip_that_adapts(change: Change, words: str, run):
    run("adaptive")
    sign_again(change)
    refused(words)


def without(kind: str, rounds: range, instead: str | None = None) -> Change:
    """The ledger without what of ``kind`` was told in ``rounds``, and rounds that say they sent so much less.

    ``instead``: as what it stands there then.
    """

    def change(header: Header, arrays: Tensors) -> None:
        rows, lists, head = [], arrays["ledger"], arrays["rounds/head"].copy()
        rest = [np.empty(0, dtype=np.int64)]
        for row in header["ledger"]:
            t, told, count, everyone, same = row
            needed = count * ((not everyone) + (same is None))
            own, lists = lists[:needed], lists[needed:]
            sent = own[-count:].sum() if same is None else count * same
            if told == kind and t in rounds:
                if instead is None:
                    head[head[:, 0] == t, 3] -= sent
                    continue
                row = [t, instead, *row[2:]]
            rows.append(row)
            rest.append(own)
        header["ledger"], arrays["ledger"], arrays["rounds/head"] = rows, np.concatenate(rest), head

    return change


def without_hospital(hospital: int) -> Change:
    """The ledger without a hospital's updates, and rounds that say so."""

    def change(header: Header, arrays: Tensors) -> None:
        rows, lists, head = [], arrays["ledger"], arrays["rounds/head"].copy()
        rest = [np.empty(0, dtype=np.int64)]
        for t, told, count, everyone, same in header["ledger"]:
            ids, sent = np.arange(count), np.full(count, same or 0)
            if not everyone:
                ids, lists = lists[:count], lists[count:]
            if same is None:
                sent, lists = lists[:count], lists[count:]
            if told == "update" and hospital in ids:
                head[head[:, 0] == t, 1] -= 1
                head[head[:, 0] == t, 3] -= sent[ids == hospital].sum()
                ids, sent = ids[ids != hospital], sent[ids != hospital]
            rows.append([t, told, len(ids), False, None])
            rest += [ids, sent]
        header["ledger"], arrays["ledger"], arrays["rounds/head"] = rows, np.concatenate(rest), head

    return change


def last_round(header: Header, arrays: Tensors) -> None:
    """A checkpoint that says it is of the run's last round."""
    head, rounds = arrays["rounds/head"], header["round"]
    extra = np.repeat(head[-1:], 6 - rounds, axis=0)
    extra[:, 0] = np.arange(rounds + 1, 7)
    arrays["rounds/head"] = np.concatenate([head, extra])
    for name in ("seconds", "values", "present"):
        array = arrays[f"rounds/{name}"]
        arrays[f"rounds/{name}"] = np.concatenate([array, np.repeat(array[-1:], 6 - rounds, axis=0)])
    header["round"] = 6
    header["ledger"] += [[t, *row[1:]] for row in header["ledger"] if row[0] == rounds for t in range(rounds + 1, 7)]


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("central", without("update", range(1, 3)), "its ledger has no updates of round 1"),
        ("central", without("update", range(1, 99)), "its ledger has no updates of round 1"),
        ("central", without("update", range(2, 3), "size"), "its ledger has no updates of round 2"),
        ("central", without("preprocessing", range(1)), "its ledger lacks 'preprocessing'"),
        ("central", last_round, "no round is left to be played after it"),
        ("drawn", without("update", range(1, 2)), "its ledger has no updates of round 1"),
        ("adaptive", without("update", range(1, 2)), "its ledger has no updates of round 1"),
        ("signatures", without("signature", range(1)), "its ledger lacks 'signature'"),
        ("signatures", without("signature", range(1), "size"), "its ledger lacks 'signature'"),
        ("own", without_hospital(3), "its ledger has updates of round 1 from others than took part"),
        ("patients", without("update", range(1, 3)), "its ledger has no updates of round 1"),
        ("steps", without("update", range(1, 3)), "its ledger has updates of round 1 from others than took part"),
    ],
)
def test_no_epsilon_is_lowered_by_what_is_taken_out_of_a_ledger(name: str, change: Change, words: str, run):
    """Rounds say the same as the ledger, so that each is right by itself."""
    run(name)
    assert promised("whole")["epsilon_of_covered"] > 0
    sign_again(change)
    refused(words)


def late(header: Header, arrays: Tensors) -> None:
    """One round is called another, so that it will be played again."""
    header["round"] = 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (late, "it is of round 1 and holds"),
        (lambda header, arrays: arrays.update({"rounds/head": np.empty((10**9, 0), dtype=np.int64)}), "is empty"),
        (lambda header, arrays: arrays.update(ledger=arrays["ledger"] - 10), "from others than took part"),
        (lambda header, arrays: header["ledger"].clear(), "damaged"),
    ],
)
def test_rounds_and_ledgers_of_a_private_run(change: Change, words: str, run):
    run("drawn")
    sign_again(change)
    refused(words)
