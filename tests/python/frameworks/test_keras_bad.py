# SPDX-License-Identifier: Apache-2.0
"""halay.keras in programs that go wrong: what a rank does not do, the others are told by fit()."""

import sys

import pytest
from conftest import halayrun
from test_keras import settings

pytestmark = pytest.mark.sampled

PROGRAM = """
import os, signal, sys
import numpy as np, keras
import halay.keras as hvd

hvd.init()
rank, callbacks = hvd.rank(), hvd.callbacks

def network(wide=8):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(wide), keras.layers.Dense(1)])
    jit = keras.backend.backend() == "jax"
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(1e-3)), "mse", jit_compile=jit)
    return model

def fit(model, steps, extra=(), **more):
    first = callbacks.BroadcastGlobalVariablesCallback(0)
    x = np.full((8 * steps, 4), rank + 1.0)
    return model.fit(x, x[:, 0], 8, verbose=0, callbacks=[first, *extra], **more).history

def fails(call, words):
    try:
        call()
    except Exception as failure:
        assert any(word in str(failure) for word in words.split("|")), failure
    else:
        raise SystemExit(f"rank {rank}: fit() has not told: {words}")

class Ends(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if rank == 1 and batch == 1:
            how()

def raises():
    raise KeyError("a callback's own")

# Metrics are averaged also where the weights are broadcast later; ranks may save alone.
order = [callbacks.MetricAverageCallback(), callbacks.BroadcastGlobalVariablesCallback(0)]
saver = keras.callbacks.ModelCheckpoint(sys.argv[2] + "/one.keras")
history = fit(network(), 2, [*order, *([saver] if rank == 0 else [])], epochs=2)
assert hvd.allgather_object(history)[0] == history
hvd.barrier()
assert os.listdir(sys.argv[2]) == ["one.keras"]

fails(lambda: fit(network(8 + rank), 2), "HALAY_EMISMATCH|differ between ranks|differs")
hvd.barrier()
print(f"rank {rank}: ready", flush=True)

case = sys.argv[1]
how = {"raises": raises, "dies": lambda: os.kill(os.getpid(), signal.SIGKILL)}.get(case)
if rank == 1:
    fit(network(), 4, [Ends()] if how else [])
else:
    fails(lambda: fit(network(), 5), "is lost")
    print("rank 0: told", flush=True)
"""


def told(tmp_path, backend, case, status):
    env = settings(backend, HALAY_DEADLINE="20")
    found, text = halayrun(2, [sys.executable, "-c", PROGRAM, case, str(tmp_path)], env=env)
    assert found == status and text.count(": ready") == 2, text
    assert "rank 0: told" in text and "has not told" not in text, text


def test_another_number_of_steps(tmp_path):
    """On JAX, where fit() does not look at what its steps have given."""
    told(tmp_path, "jax", "fewer", 0)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_another_number_of_steps_elsewhere(tmp_path, backend):
    told(tmp_path, backend, "fewer", 0)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
@pytest.mark.parametrize("case, status", [("raises", 1), ("dies", 137)])
def test_what_ends_a_rank(tmp_path, backend, case, status):
    told(tmp_path, backend, case, status)


OTHERS = """
import sys
import numpy as np, keras
import halay.keras as hvd

hvd.init()
rank = hvd.rank()
# Of the layers of the smaller model each has its like in the larger one, in the same place.
case = sys.argv[1] if rank == 1 else "alike"
layers = [keras.layers.Dense(4) for _ in range(2 + (case == "layer"))]
model = keras.Sequential([keras.Input((4,)), *layers])
jit = keras.backend.backend() == "jax"
optimizer = (keras.optimizers.Adam if case == "optimizer" else keras.optimizers.SGD)(1e-3)
passes = 2 if case == "passes" else 1
optimizer = hvd.DistributedOptimizer(optimizer, backward_passes_per_step=passes)
model.compile(optimizer, "mse", jit_compile=jit)
x = np.full((8, 4), rank + 1.0)
try:
    model.fit(x, x, 8, verbose=0)
    model.get_weights()  # JAX: what the step has failed with is raised here
except Exception as failure:
    assert "rank" in str(failure), failure
    print(f"rank {rank}: told", flush=True)
else:
    print(f"rank {rank}: not told", flush=True)
"""


@pytest.mark.parametrize(
    "backend",
    [
        "tensorflow",
        pytest.param("jax", marks=pytest.mark.long),
        pytest.param("torch", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("nranks", [2, pytest.param(3, marks=pytest.mark.long)])
def test_models_that_differ_in_a_layer(backend, nranks):
    """Without the callback that compares them, no gradient meets one of another model."""
    env = settings(backend, HALAY_DEADLINE="4", HALAY_START_DEADLINE="120")
    _, text = halayrun(nranks, [sys.executable, "-c", OTHERS, "layer"], env=env)
    assert text.count(": told") == nranks and "not told" not in text, text


@pytest.mark.long
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
@pytest.mark.parametrize("case", ["optimizer", "passes"])
def test_optimizers_that_differ(backend, case):
    env = settings(backend, HALAY_DEADLINE="4", HALAY_START_DEADLINE="120")
    _, text = halayrun(3, [sys.executable, "-c", OTHERS, case], env=env)
    assert text.count(": told") == 3 and "not told" not in text, text


AGAIN = """
import numpy as np, keras
import halay.keras as hvd

hvd.init()
rank = hvd.rank()

def fit(wide, callbacks=()):
    layers = [keras.layers.Dense(4), keras.layers.Dense(wide), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    jit = keras.backend.backend() == "jax"
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(1e-3)), "mse", jit_compile=jit)
    x = np.full((8, 4), rank + 1.0)
    model.fit(x, x[:, 0], 8, verbose=0, callbacks=list(callbacks))
    return model.get_weights()

for _ in range(3):
    try:
        fit(8 + rank)
    except Exception as failure:
        assert "HALAY_EMISMATCH" in str(failure) or "differs between ranks" in str(failure), failure
    else:
        raise SystemExit(f"rank {rank}: not told")
found = hvd.allgather_object(fit(8, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]))
assert all((a == b).all() for one in found for a, b in zip(one, found[0]))
print(f"rank {rank}: trained", flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("backend", ["torch", "tensorflow", "jax"])
def test_a_step_that_failed_leaves_nothing_behind(backend):
    env = settings(backend, HALAY_DEADLINE="30")
    status, text = halayrun(3, [sys.executable, "-c", AGAIN], env=env)
    assert status == 0 and text.count(": trained") == 3, text
