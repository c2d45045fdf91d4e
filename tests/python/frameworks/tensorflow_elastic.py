# SPDX-License-Identifier: Apache-2.0
"""A loop of TensorFlow's that goes on: tensorflow_elastic.py FOLDER EVENTS BATCHES."""

import json
import sys
from pathlib import Path

import elastic_any as net
import lean  # noqa: F401
import tensorflow as tf
from elastic_events import Events

import halay.tensorflow as hvd

folder, batches = Path(sys.argv[1]), int(sys.argv[3])
variables = [tf.Variable(w) for w in net.first_weights()]
optimizer = tf.keras.optimizers.SGD(net.RATE, momentum=net.MOMENTUM)
optimizer.build(variables)


@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        hidden = tf.tanh(x @ variables[0] + variables[1])
        output = hidden @ variables[2] + variables[3]
        loss = tf.reduce_sum((output - y) ** 2) / net.ROWS
    tape = hvd.DistributedGradientTape(tape, op=hvd.Sum)
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))


hvd.init()
events = Events(folder, json.loads(sys.argv[2]))
listed = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
state = hvd.elastic.TensorFlowState([*variables, *listed], batch=0, meeting=0)


def count():
    state.meeting += 1
    state.save()  # a meeting that ends without a commit counts too


@hvd.elastic.run
def train(state):
    while state.batch < batches:
        events.before(state.batch)
        step(*(rows[hvd.rank() :: hvd.size()] for rows in net.batch_of(state.batch)))
        state.batch += 1
        if state.batch % 2 == 0:
            weights = [v.numpy() for v in variables]
            bits = b"".join(w.tobytes() for w in weights)
            events.commit(state.meeting, state.batch, net.loss_of(weights), bits)
            state.commit()


state.register_reset_callbacks([count])
train(state)
hvd.barrier()
hvd.shutdown()
