# SPDX-License-Identifier: Apache-2.0
"""KerasEstimator on these ranks, without Spark: keras_estimator.py FOLDER, under halayrun.

Rows are Parquet files of pyarrow's; rank 0 is the driver, and all hear its result.
"""

import os
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet as pq

import halay.keras as hvd
from halay.spark.backend import Backend
from halay.spark.keras import KerasEstimator
from halay.spark.store import Store

if os.environ.get("TF_USE_LEGACY_KERAS") == "1":
    import tf_keras as keras
else:
    import keras

RATE, MOMENTUM, BATCH = 0.05, 0.5, 8
hvd.init()
rank, size = hvd.rank(), hvd.size()
store = Store.create(sys.argv[1])
random = np.random.default_rng(5)
x = random.integers(-4, 5, (40, 2)).astype("f") / 4
y = (x @ [2, -1] + 0.5 + random.integers(0, 3, 40) / 9).astype("f")
w = (1 + np.arange(40) % 2).astype("f")
PARTS = [slice(0, 16), slice(16, 32)]  # a file for each rank
VAL = [slice(32, 36), slice(36, 40)]


def write(path, parts):
    for i, part in enumerate(parts):
        table = {"x": list(x[part]), "y": y[part], "w": w[part]}
        folder = Path(store.get_localized_path(path))
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pyarrow.table(table), folder / f"part-{i}.parquet")


if rank == 0:
    write(store.get_train_data_path(), PARTS[:size])
    write(store.get_val_data_path(), VAL[:size])
hvd.barrier()


class Here(Backend):
    def run(self, fn, args=(), kwargs=None, env=None):
        assert set(env) >= {"KERAS_BACKEND", "TF_USE_LEGACY_KERAS"}, env
        return [hvd.broadcast_object(fn(*hvd.broadcast_object(args), **(kwargs or {})))]

    def num_processes(self):
        return size


def network():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.set_weights([np.float32([[0.5], [0.25]]), np.float32([0.125])])
    return model


def estimator(model=None, **given):
    settings = {
        "backend": Here(),
        "store": store,
        "model": model or network(),
        "optimizer": keras.optimizers.SGD(RATE, momentum=MOMENTUM),
        "loss": "mse",
        "feature_cols": ["x"],
        "label_cols": ["y"],
        "batch_size": BATCH,
        "epochs": 2,
        "random_seed": 7,
        "shuffle": False,
        "verbose": 0,
    }
    return KerasEstimator(**{k: v for k, v in {**settings, **given}.items() if v is not None})


def reference(epochs, weights=None):
    """Kernel and bias, and the mean loss of each epoch's batches, of one process with all rows."""
    kernel, bias = np.float64([0.5, 0.25]), 0.125
    speed, slow, losses = np.zeros(2), 0.0, []
    for _ in range(epochs):
        found = []
        for at in range(0, 16, BATCH):
            rows = np.concatenate([np.arange(40)[part][at : at + BATCH] for part in PARTS[:size]])
            error = x[rows] @ kernel + bias - y[rows]
            scale = np.ones(len(rows)) if weights is None else weights[rows]
            found.append((error**2 * scale).mean())
            slope = 2 * (error * scale) @ x[rows] / len(rows)
            down = 2 * (error * scale).mean()
            speed = MOMENTUM * speed - RATE * size * slope
            slow = MOMENTUM * slow - RATE * size * down
            kernel, bias = kernel + speed, bias + slow
        losses.append(np.mean(found))
    return np.float64([*kernel, bias]), losses


def flat(model):
    return np.concatenate([one.ravel() for one in model.get_weights()])


def rate_of(model):
    rate = model.optimizer.learning_rate
    return float(rate.numpy() if hasattr(rate, "numpy") else rate)


# As one process that has all batches.
trained = estimator(validation=0.5, val_batch_size=4, metrics=["mae"]).fit_on_parquet()
weights, losses = reference(2)
np.testing.assert_allclose(flat(trained.getModel()), weights, rtol=0, atol=1e-5)
history = trained.getHistory()
assert set(history) >= {"loss", "val_loss"} and any("mae" in name for name in history), history
np.testing.assert_allclose(history["loss"], losses, rtol=1e-5)
rows = np.concatenate([np.arange(40)[part] for part in VAL[:size]])
error = x[rows] @ weights[:2] + weights[2] - y[rows]
np.testing.assert_allclose(history["val_loss"][-1], (error**2).mean(), rtol=1e-4)
np.testing.assert_allclose(rate_of(trained.getModel()), RATE, rtol=1e-6)
(said,) = trained._call()([x[:5]])
np.testing.assert_allclose(said[:, 0], x[:5] @ weights[:2] + weights[2], rtol=0, atol=1e-5)

# Weights of rows; a model that is compiled already, whose file is the checkpoint.
compiled = network()
compiled.compile(keras.optimizers.SGD(RATE, momentum=MOMENTUM), "mse")
before = flat(compiled)
own = estimator(compiled, optimizer=None, loss=None, sample_weight_col="w", run_id="weights")
weighted = own.fit_on_parquet()
np.testing.assert_allclose(flat(weighted.getModel()), reference(2, w)[0], rtol=0, atol=1e-5)
assert (flat(compiled) == before).all()
checkpoint = Path(sys.argv[1]) / f"own{rank}.keras"
checkpoint.write_bytes(store.read(store.get_checkpoint_file("weights")))
loaded = keras.models.load_model(checkpoint)
assert (flat(loaded) == flat(weighted.getModel())).all()
np.testing.assert_allclose(rate_of(loaded), RATE, rtol=1e-6)


class Stop(keras.callbacks.Callback):
    """Ends the run once, in its second epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1 and not stopped:
            stopped.append(True)
            raise LookupError("as the test asked for")


# A run that was ended goes on to the same bits, shuffled; a finished one is trained further.
stopped = []
common = {"epochs": 3, "shuffle": True, "random_seed": None}
try:
    estimator(run_id="r", callbacks=[Stop()], **common).fit_on_parquet()
    raise AssertionError("it was not stopped")
except LookupError:
    pass
hvd.barrier()
resumed = estimator(run_id="r", **common).fit_on_parquet()
saved = estimator()._read(store.read(store.get_checkpoint_file("r")))
assert (saved["epoch"], saved["epochs"], len(saved["history"]["loss"])) == (3, 3, 3)
hvd.barrier()
whole = estimator(run_id="s", **{**common, "random_seed": saved["seed"]}).fit_on_parquet()
assert (flat(resumed.getModel()) == flat(whole.getModel())).all()
assert resumed.getHistory() == whole.getHistory()
other = estimator(**{**common, "random_seed": saved["seed"] + 1}).fit_on_parquet()
assert (flat(other.getModel()) != flat(whole.getModel())).any()
hvd.barrier()
further = estimator(run_id="weights", model=compiled, optimizer=None, loss=None, epochs=1)
further = further.setSampleWeightCol("w").fit_on_parquet()
np.testing.assert_allclose(flat(further.getModel()), reference(3, w)[0], rtol=0, atol=1e-5)

# The best of all epochs.
best = hvd.callbacks.BestModelCheckpoint(monitor="loss", mode="max")
chosen = estimator(checkpoint_callback=best).fit_on_parquet()
np.testing.assert_allclose(flat(chosen.getModel()), reference(1)[0], rtol=0, atol=1e-5)
np.testing.assert_allclose(rate_of(chosen.getModel()), RATE, rtol=1e-6)

# Two inputs, two outputs with losses of their own; halves over the wire.
one, two = keras.Input((2,)), keras.Input((1,))
both = keras.layers.concatenate([one, two])
outputs = [keras.layers.Dense(1, name="a")(both), keras.layers.Dense(3, name="b")(both)]
made = keras.Model([one, two], outputs)
given = {"feature_cols": ["x", "w"], "label_cols": ["y", "w"], "label_shapes": None}
given["loss"] = ["mse", "sparse_categorical_crossentropy"]
outs = estimator(made, loss_weights=[0.5, 2.0], gradient_compression=hvd.Compression.fp16, **given)
found = outs.setSampleWeightCol("w").fit_on_parquet()
assert np.isfinite(found.getHistory()["loss"]).all()
assert [part.shape for part in found._call()([x[:3], w[:3]])] == [(3, 1), (3, 3)]

# What is wrong is said before a rank starts.
twice = hvd.DistributedOptimizer(keras.optimizers.SGD(RATE))
for words, given in {
    "is no parameter of KerasEstimator": {"loss_constructors": [1], "loss": None},
    "give the optimizer gradient_accumulation_steps": {"backward_passes_per_step": 2},
    "the model is no": {"model": object()},
    "no variables yet": {"model": keras.Sequential([keras.layers.Dense(1)])},
    "1 inputs for 2 columns": {"feature_cols": ["x", "w"]},
    "fit() makes it a DistributedOptimizer": {"optimizer": twice},
    "parameter loss is missing": {"loss": None},
    "optimizer and loss are missing": {"loss": None, "optimizer": None},
}.items():
    try:
        estimator(**given).fit_on_parquet()
        raise AssertionError(words)
    except ValueError as error:
        assert words in str(error), error
hvd.barrier()
hvd.shutdown()
