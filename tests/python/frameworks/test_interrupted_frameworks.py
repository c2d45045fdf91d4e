# SPDX-License-Identifier: Apache-2.0
"""Handlers of signals run while an eager call of TensorFlow's or JAX's waits; also such as compute
with the framework."""

import pytest
from test_interrupted import check

pytestmark = pytest.mark.sampled

TENSORFLOW = ["tf.allreduce", "tf.grouped_allgather", "tf.broadcast_variables", "tf.gradient"]
TENSORFLOW += ["tf.join"]
JAX = ["jax.allreduce", "jax.grouped_allreduce", "jax.broadcast_parameters"]


@pytest.mark.parametrize("calls", [TENSORFLOW, JAX], ids=["TensorFlow", "JAX"])
def test_a_signal_while_a_call_waits(tmp_path, calls):
    check(tmp_path, *calls)
