# SPDX-License-Identifier: Apache-2.0
"""A rank of test_mxnet.py."""

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import halay.mxnet as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()
random = np.random.default_rng(3)
x, y = random.normal(size=(24, 5)).astype("f"), random.normal(size=(24, 1)).astype("f")


def network(seed):
    """Its second layer gets its shape with the first batch."""
    mx.random.seed(seed)
    net = gluon.nn.Sequential()
    net.add(gluon.nn.Dense(7, activation="tanh", in_units=5), gluon.nn.Dense(1))
    net.initialize(mx.init.Normal(0.5))
    return net


def train(net, trainer, rows):
    losses = []
    for _ in range(4):
        with autograd.record():
            loss = ((net(mx.nd.array(x[rows])) - mx.nd.array(y[rows])) ** 2).mean()
        loss.backward()
        trainer.step(1)
        losses.append(loss.asscalar())
    return losses


def weights(net):
    return [p.data().asnumpy() for p in net.collect_params().values()]


# Ranks that begin apart train as one process with all rows.
mine = slice(rank, None, size)
for compression, tolerance in ((hvd.Compression.none, 1e-6), (hvd.Compression.fp16, 2e-3)):
    net = network(rank)
    hvd.broadcast_parameters(net.collect_params())
    how = {"learning_rate": 0.2, "momentum": 0.5}
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", how, compression=compression)
    losses = train(net, trainer, mine)
    raw = b"".join(w.tobytes() for w in weights(net))
    assert hvd.allgather_object(raw) == [raw] * size
    alone = network(0)
    alone(mx.nd.array(x))
    other = gluon.Trainer(alone.collect_params(), "sgd", how, kvstore=None)
    expected = train(alone, other, slice(None))
    mean = np.mean(hvd.allgather_object(losses), axis=0)
    np.testing.assert_allclose(mean, expected, rtol=0, atol=tolerance)
    for one, wanted in zip(weights(net), weights(alone)):
        np.testing.assert_allclose(one, wanted, rtol=0, atol=tolerance)


# Each call, with values known beforehand.
def filled(value, shape=(2, 3), kind="float32"):
    return mx.nd.full(shape, value, dtype=kind)


total = size * (size + 1) / 2
for kind in ("float16", "float32", "float64", "int32", "int64", "int8", "uint8"):
    one = filled(rank + 1, kind=kind)
    assert (hvd.allreduce(one, op=hvd.Sum).asnumpy() == total).all()
    assert (one.asnumpy() == rank + 1).all()
    assert hvd.allreduce_(one, op=hvd.Max) is one and (one.asnumpy() == size).all()
    assert hvd.allreduce(filled(rank + 1, kind=kind), average=False).dtype == np.dtype(kind).type
    rows = hvd.allgather(filled(rank, (rank + 1, 2), kind))
    assert rows.asnumpy()[:, 0].tolist() == [r for r in range(size) for _ in range(r + 1)]
    assert (hvd.broadcast(filled(rank, kind=kind), size - 1).asnumpy() == size - 1).all()
assert hvd.allreduce(filled(rank, kind="int32")).asnumpy()[0, 0] == sum(range(size)) // size
scaled = hvd.allreduce(filled(3, kind="int32"), op=hvd.Sum, prescale_factor=0.5)
assert scaled.asnumpy()[0, 0] == size  # 1.5 truncated, on each rank
out, received = hvd.alltoall(mx.nd.arange(size * 2), [2] * size)
assert out.asnumpy().tolist() == [2 * rank, 2 * rank + 1] * size
assert received.asnumpy().tolist() == [2] * size
parts = hvd.grouped_reducescatter([filled(rank, (size + 1, 2)), filled(1, (size,))], op=hvd.Sum)
assert [p.shape for p in parts] == [(2 if rank == 0 else 1, 2), (1,)]
assert [float(p.asnumpy().ravel()[0]) for p in parts] == [sum(range(size)), size]

# What is wrong is an error on all ranks, and the next call is good.
for call, kind, words in (
    (lambda: hvd.allreduce(filled(1, (2 + rank,))), hvd.HorovodInternalError, "differ"),
    (lambda: hvd.allreduce(filled(1).tostype("csr")), ValueError, "sparse"),
    (lambda: hvd.allreduce(filled(1), op=hvd.Adasum), ValueError, "Adasum"),
    (lambda: hvd.allreduce(np.ones(3)), TypeError, "needs an NDArray"),
    (lambda: hvd.broadcast_(filled(1), size), ValueError, "is not one of"),
    (lambda: hvd.alltoall(filled(1, (size + 1,))), hvd.HorovodInternalError, "dealt out"),
):
    try:
        call()
        raise AssertionError(words)
    except kind as error:
        assert words in str(error), error
assert (hvd.allreduce(filled(1), op=hvd.Sum).asnumpy() == size).all()
hvd.shutdown()
