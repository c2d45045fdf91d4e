# SPDX-License-Identifier: Apache-2.0
"""A rank of test_keras.py: keras_rank.py FOLDER writes FOLDER/RANK.json."""

import hashlib
import json
import os
import sys
from pathlib import Path

import lean  # noqa: F401
import numpy as np

import halay.keras as hvd

if os.environ.get("TF_USE_LEGACY_KERAS"):
    import tf_keras as keras
else:
    import keras

hvd.init()
rank, size = hvd.rank(), hvd.size()
folder = Path(sys.argv[1])
LEGACY = keras.__name__ == "tf_keras"
JAX = not LEGACY and keras.backend.backend() == "jax"
random = np.random.default_rng(3)
x = random.normal(size=(64, 8)).astype("f")
y = (x[:, 0] + 2 * x[:, 1] > 0).astype("i4") + (x[:, 2] > 0.5)
BATCH = 16  # of all ranks together
checks = []


def own(array):
    """This rank's part of each batch."""
    return np.concatenate([part[rank::size] for part in array.reshape(-1, BATCH, *array.shape[1:])])


def network(seed):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(3)]
    )


def compiled(model, optimizer, **more):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], jit_compile=JAX, **more)
    return model


def raw(model):
    return hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest()


def value(of):
    return float(of.numpy() if LEGACY else keras.ops.convert_to_numpy(of))


def fit(model, xs, ys, batch, epochs=3, callbacks=()):
    done = model.fit(
        xs, ys, batch_size=batch, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks)
    )
    return done.history


def trained(optimizer, seed, callbacks=(), epochs=3):
    model = compiled(network(seed), hvd.DistributedOptimizer(optimizer))
    begin = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
    ]
    return model, fit(model, own(x), own(y), BATCH // size, epochs, [*begin, *callbacks])


def alone(optimizer, seed):
    model = compiled(network(seed), optimizer)
    return model, fit(model, x, y, BATCH)


# The older Keras broadcasts after its first batch: its ranks have to begin alike.
seed = 0 if LEGACY else rank
model, history = trained(keras.optimizers.Adam(0.02), seed)
single, expected = alone(keras.optimizers.Adam(0.02), 0)
found = {
    "losses": history["loss"],
    "losses alone": expected["loss"],
    "weights": raw(model),
    "sum of weights": float(sum(np.abs(w).sum() for w in model.get_weights())),
    "sum alone": float(sum(np.abs(w).sum() for w in single.get_weights())),
    "jit": bool(getattr(model, "jit_compile", False)),
}

# Two batches for each step: their mean, and their sum.
whole = compiled(network(0), keras.optimizers.SGD(0.1))
fit(whole, x, y, BATCH, 1)
for rate, average in ((0.1, True), (0.05, False)):
    two = hvd.DistributedOptimizer(
        keras.optimizers.SGD(rate), backward_passes_per_step=2, average_aggregated_gradients=average
    )
    half = compiled(network(0), two)
    fit(half, own(x), own(y), BATCH // size // 2, 1)
    for a, b in zip(half.get_weights(), whole.get_weights()):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6)
checks.append("accumulated")

logs = {"loss": float(rank), "name": "text", "n": np.float32(rank + 1)}
hvd.callbacks.MetricAverageCallback().on_epoch_end(0, logs)
assert logs == {"loss": 0.5, "name": "text", "n": 1.5}
checks.append("metrics")

warmup = hvd.callbacks.LearningRateWarmupCallback(0.2, warmup_epochs=2)
_, history = trained(keras.optimizers.SGD(0.2), 0, [warmup], 3)
rates = [0.1, 0.15, 0.15] if JAX else [0.15, 0.2, 0.2]
np.testing.assert_allclose(history["lr"], rates, rtol=1e-6)
checks.append("warmup")

schedule = [
    hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: epoch + 1, 0, 2),
    hvd.callbacks.LearningRateScheduleCallback(0.1, 0.5, 2),
]
_, history = trained(keras.optimizers.SGD(0.1), 0, schedule, 4)
np.testing.assert_allclose(history["lr"], [0.1, 0.2, 0.1, 0.05], rtol=1e-6)
checks.append("schedule")

path = folder / "best.keras"
best = hvd.callbacks.BestModelCheckpoint(str(path), monitor="loss")
trained(keras.optimizers.Adam(0.02), 0, [best], 2)
hvd.barrier()
assert path.exists() and [p.name for p in folder.glob("best*")] == ["best.keras"]
checks.append("checkpoint")

state = hvd.elastic.KerasState(network(rank), keras.optimizers.Adam(0.1), batch=rank, epoch=rank)
state.sync()
assert hvd.allgather_object(raw(state.model)) == [raw(state.model)] * size
assert (state.batch, state.epoch) == (0, 0)
before = raw(state.model)
state.model.set_weights([w + 1 for w in state.model.get_weights()])
state.batch = 7
state.restore()
assert raw(state.model) == before and state.batch == 0
committed = compiled(network(0), hvd.DistributedOptimizer(keras.optimizers.Adam(0.02)))
kept = hvd.elastic.KerasState(committed, batch=0, epoch=0)
keep = [
    hvd.elastic.UpdateEpochStateCallback(kept),
    hvd.elastic.UpdateBatchStateCallback(kept),
    hvd.elastic.CommitStateCallback(kept, batches_per_commit=2),
]
fit(committed, own(x), own(y), BATCH // size, 2, keep)
assert (kept.epoch, kept.batch) == (2, 0)
after = raw(committed)
committed.set_weights([w * 0 for w in committed.get_weights()])
kept.restore()
assert raw(committed) == after
checks.append("state")

others = [network(0), keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])]
try:
    hvd.broadcast_variables(others[rank].weights, 0)
except hvd.HorovodInternalError as error:
    assert "HALAY_EMISMATCH" in repr(error) or "differ between ranks" in str(error), error
    checks.append("different models")

partial = network(0)
kind = hvd.PartialDistributedOptimizer(
    keras.optimizers.SGD(0.1), local_layers=[partial.layers[0]], scale_local_gradients=False
)
fit(compiled(partial, kind), own(x), own(y), BATCH // size, 1)
first, last = partial.layers[0].get_weights()[0], partial.layers[-1].get_weights()[1]
firsts, lasts = hvd.allgather_object(first.tobytes()), hvd.allgather_object(last.tobytes())
assert len(set(firsts)) == size
checks.append("local")

assert np.asarray(hvd.allreduce(np.float32([rank]), op=hvd.Sum)).tolist() == [1]
assert np.asarray(hvd.allreduce(np.float32([rank]))).tolist() == [0.5]
assert np.asarray(hvd.allgather(np.float32([rank]))).tolist() == [0, 1]
assert np.asarray(hvd.broadcast(np.float32([rank]), 1)).tolist() == [1]
assert np.asarray(hvd.reducescatter(np.float32([rank, 2]), op=hvd.Sum)).tolist() == [[1], [4]][rank]
checks.append("functions")

if rank == 0:
    model.save(folder / "model.keras")
hvd.barrier()
loaded = hvd.load_model(folder / "model.keras")
assert raw(loaded) == found["weights"] and value(loaded.optimizer.iterations) == 12
fit(loaded, own(x), own(y), BATCH // size, 1)
assert value(loaded.optimizer.iterations) == 16
assert hvd.allgather_object(raw(loaded)) == [raw(loaded)] * size
hvd.barrier()
checks.append("load_model")

# Infinities on one rank: all skip the step, and stay alike.
Scaled = keras.mixed_precision.LossScaleOptimizer
Plain = keras.optimizers.SGD
kinds = [(Plain(0.1), 1), (Plain(0.1), 2), (Scaled(Plain(0.1)), 1)]
if LEGACY:
    Plain = keras.optimizers.legacy.SGD
    kinds += [(Plain(0.1), 1), (Plain(0.1), 2), (Scaled(Plain(0.1)), 1)]
keras.mixed_precision.set_global_policy("mixed_float16")
given = np.ones((8, 8), "f")
given[0] = 1e9 if rank == 1 else 1
for optimizer, steps in kinds:
    mixed = network(0)
    mixed.compile(hvd.DistributedOptimizer(optimizer, backward_passes_per_step=steps), "mse")
    before = raw(mixed)
    fit(mixed, given, np.ones((8, 3), "f"), 8 // steps, 1)
    assert raw(mixed) == before
    fit(mixed, np.ones((8, 8), "f") * rank, np.ones((8, 3), "f"), 8, 4)
    assert raw(mixed) != before
    assert hvd.allgather_object(raw(mixed)) == [raw(mixed)] * size
    used = mixed.optimizer
    scales = hvd.allgather_object(value(used.loss_scale if LEGACY else used.dynamic_scale))
    assert len(set(scales)) == 1 and scales[0] < 2**15, scales
keras.mixed_precision.set_global_policy("float32")


def refused(words, wrap, **options):
    try:
        wrap(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), **options))
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError("not refused")


refused("op=77 is no reduction", raw, op=77)
if not LEGACY:  # whose compile() may do so
    refused("LossScaleOptimizer around a DistributedOptimizer", Scaled)
checks.append("infinities")

found["checks"] = checks
(folder / f"{rank}.json").write_text(json.dumps(found))
hvd.shutdown()
