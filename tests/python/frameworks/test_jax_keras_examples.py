# SPDX-License-Identifier: Apache-2.0
"""examples/jax_data_parallel.py, jax_pjit.py and keras_digits.py: learn, alike on all ranks."""

import re
import sys

import pytest
from conftest import BUILD, SOURCE, halayrun

pytestmark = pytest.mark.sampled

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
EVERYWHERE = [pytest.param("torch", marks=pytest.mark.long), "jax",
              pytest.param("tensorflow", marks=pytest.mark.long)]  # fmt: skip


def learns(command: list[str], at_least: float, **env: str) -> None:
    status, text = halayrun(2, [sys.executable, *command], 600, {**QUIET, **env})
    assert status == 0, text
    assert re.search(r"ranks: +2$", text, re.M) and "bit-identical on all ranks" in text, text
    accuracy = re.search(r"accuracy: +([\d.]+)% of the held-out", text)
    assert accuracy and float(accuracy[1]) > at_least, text


def test_jax_data_parallel():
    learns([str(SOURCE / "examples" / "jax_data_parallel.py"), "--epochs", "6"], 93)


@pytest.mark.parametrize("nranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_jax_pjit(nranks):
    env = {"JAX_CPU_COLLECTIVES_IMPLEMENTATION": "mpi"}
    env["MPITRAMPOLINE_LIB"] = str(BUILD / "lib" / "libhalay_mpi.so")
    command = [sys.executable, str(SOURCE / "examples" / "jax_pjit.py"), "--steps", "200"]
    status, text = halayrun(nranks, command, env={**QUIET, **env})
    assert status == 0, text
    assert f"mesh:        {{'batch': {nranks // 2}, 'model': 2}}" in text, text
    right = re.search(r"right: +([\d.]+)% of the images", text)
    assert right and float(right[1]) > 85, text


@pytest.mark.parametrize("backend", EVERYWHERE)
def test_keras_digits(tmp_path, backend):
    path = tmp_path / "digits.keras"
    command = [str(SOURCE / "examples" / "keras_digits.py"), "--checkpoint", str(path)]
    learns([*command, "--epochs", "4"], 85, KERAS_BACKEND=backend)
    assert path.exists()
