"""Which code OpenBLAS computes with, in processes of raysim's own and in actors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raysim.core import blas

FLAGS = "fpu sse2 avx2 avx512f avx512cd avx512bw avx512dq avx512vl"
AMD = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC\nflags\t\t: {}\n\nprocessor\t: 1\n"

on_amd = pytest.mark.skipif(
    not blas._amd_with_avx512(Path("/proc/cpuinfo")), reason="needs an AMD processor with AVX-512"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (AMD.format(FLAGS), True),
        (AMD.format(FLAGS).replace("AuthenticAMD", "GenuineIntel"), False),
        (AMD.format(FLAGS.replace(" avx512dq", "")), False),
        ("", False),
    ],
)
def test_the_processor_is_read_from_its_description(tmp_path: Path, text: str, expected: bool) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert blas._amd_with_avx512(tmp_path / "cpuinfo") is expected


def test_a_system_without_a_description_is_no_such_processor(tmp_path: Path) -> None:
    assert not blas._amd_with_avx512(tmp_path / "none")


def test_a_process_in_which_numpy_is_loaded_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(blas.VARIABLE, raising=False)
    blas.prefer()
    assert blas.VARIABLE not in os.environ


def _said(program: str, **environment: str) -> list[str]:
    settings = {name: value for name, value in os.environ.items() if name != blas.VARIABLE} | environment
    done = subprocess.run(
        [sys.executable, "-c", program], env=settings, capture_output=True, text=True, check=True, timeout=600
    )
    return done.stdout.split()


PREFERRING = """
from raysim.core import blas
blas.prefer()
import numpy, scipy.linalg.blas
from threadpoolctl import threadpool_info
print(*{each["architecture"] for each in threadpool_info() if each["internal_api"] == "openblas"})
"""


@on_amd
def test_a_process_of_its_own_takes_avx512_unless_the_environment_says_otherwise() -> None:
    assert _said(PREFERRING) == ["SkylakeX"]
    assert _said(PREFERRING, OPENBLAS_CORETYPE="Haswell") == ["Haswell"]
