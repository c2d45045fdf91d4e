# SPDX-License-Identifier: Apache-2.0
"""A rank: what has to work under every TensorFlow, without torch and pytest."""

import lean  # noqa: F401
import tensorflow as tf

import halay.tensorflow as hvd

tf.config.threading.set_inter_op_parallelism_threads(2)
hvd.init()
rank, size = hvd.rank(), hvd.size()
total = float(sum(range(size)))

for call in (lambda f: f, tf.function):
    x = tf.fill([4], float(rank))
    assert call(lambda x: hvd.allreduce(x, op=hvd.Sum))(x).numpy().tolist() == [total] * 4
    assert call(hvd.allgather)(x[:1]).numpy().tolist() == list(range(size))
    assert call(lambda x: hvd.broadcast(x, 1))(x).numpy().tolist() == [1] * 4
    scattered = call(lambda x: hvd.reducescatter(x, op=hvd.Sum))(x[:size])
    assert scattered.numpy().tolist() == [total]
    assert call(hvd.alltoall)(x[:size]).numpy().tolist() == list(range(size))
    found = call(lambda x: hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum))(x)
    assert float(found[1][0]) == 2 * total

# The function that ends a kernel: many at a time, in opposite orders, one waiting for the other.
order = range(64) if rank % 2 else range(63, -1, -1)


@tf.function
def many(x):
    found, before = [tf.zeros([])] * 64, []
    for i in order:
        with tf.control_dependencies(before[-1:]):
            given = tf.identity(x + float(i))
        before.append(given)
        found[i] = hvd.allreduce(given, op=hvd.Sum, name=f"many{i}")
    return tf.stack(found)


for _ in range(20):
    assert many(tf.constant(1.0)).numpy().tolist() == [size * (1.0 + i) for i in range(64)]
counted = hvd.counters()
assert counted["later"] > 64 * 20, counted

variable = tf.Variable([float(rank)])
hvd.broadcast_variables([variable], 1)
assert variable.numpy().tolist() == [1.0]
with tf.GradientTape() as tape:
    loss = variable * float(rank)
gradient = hvd.DistributedGradientTape(tape).gradient(loss, variable)
assert gradient.numpy().tolist() == [total / size]

try:
    hvd.allreduce(tf.ones([2 + rank]))
except tf.errors.FailedPreconditionError as failure:
    assert "HALAY_EMISMATCH" in failure.message
else:
    raise AssertionError("different shapes were not refused")
try:
    tf.function(lambda x: hvd.allreduce(x), jit_compile=True)(tf.ones(2))
except tf.errors.OpError as failure:
    assert "cannot be compiled by XLA" in failure.message
else:
    raise AssertionError("XLA was not refused")
hvd.shutdown()
if rank == 0:
    print(f"TensorFlow {tf.__version__}: good; {counted}")
