# SPDX-License-Identifier: Apache-2.0
"""fit() of Keras that goes on: keras_elastic.py FOLDER EVENTS EPOCHS."""

import json
import os
import sys
from pathlib import Path

import elastic_any as net
from elastic_events import Events

import halay.keras as hvd

if os.environ.get("TF_USE_LEGACY_KERAS"):
    import tf_keras as keras
else:
    import keras

STEPS = 5  # of an epoch
folder, epochs = Path(sys.argv[1]), int(sys.argv[3])
model = keras.Sequential(
    [
        keras.Input((net.INPUTS,)),
        keras.layers.Dense(net.HIDDEN, activation="tanh"),
        keras.layers.Dense(1),
    ]
)
model.set_weights(net.first_weights())
plain = keras.optimizers.SGD(net.RATE, momentum=net.MOMENTUM)

hvd.init()
model.compile(hvd.DistributedOptimizer(plain), "mse")
events = Events(folder, json.loads(sys.argv[2]))
state = hvd.elastic.KerasState(model, epoch=0, batch=0, meeting=0)


def done():
    return state.epoch * STEPS + state.batch


class Before(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        events.before(done())


class Commit(hvd.elastic.CommitStateCallback):
    def commit(self):
        weights = self.model.get_weights()
        bits = b"".join(w.tobytes() for w in weights)
        events.commit(state.meeting, done(), net.loss_of(weights), bits)
        super().commit()


def rows(first):
    for number in range(first, (state.epoch + 1) * STEPS):
        x, y = net.batch_of(number)
        mine = slice(hvd.rank(), None, hvd.size())
        yield x[mine].astype("f"), y[mine].astype("f")


def count():
    state.meeting += 1
    state.save()  # a meeting that ends without a commit counts too


@hvd.elastic.run
def train(state):
    while state.epoch < epochs:
        callbacks = [
            Before(),
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.UpdateBatchStateCallback(state),
            Commit(state, batches_per_commit=2),
        ]
        left = STEPS - state.batch
        model.fit(rows(done()), steps_per_epoch=left, callbacks=callbacks, verbose=0)


state.register_reset_callbacks([count])
train(state)
hvd.barrier()
hvd.shutdown()
