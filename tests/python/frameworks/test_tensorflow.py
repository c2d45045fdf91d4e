# SPDX-License-Identifier: Apache-2.0
"""halay.tensorflow: values of the collectives, in graphs and eagerly, and their gradients."""

import numpy as np
import pytest
from conftest import RANKS

pytestmark = pytest.mark.sampled

NUMBERS = "uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64"
TYPES = ["bool", *NUMBERS.split(), "complex64", "complex128"]


def _import():
    import lean  # noqa: F401
    import tensorflow as tf

    import halay.tensorflow as hvd

    return tf, hvd


def _both(tf, function):
    """A function eagerly and in a graph."""
    return function, tf.function(function)


def _same(found, wanted):
    found = found.numpy() if hasattr(found, "numpy") else found
    np.testing.assert_array_equal(found, wanted)


def _values(tf, rank, name, shape=(3, 2)):
    """Small numbers that every type has exactly."""
    start = np.arange(np.prod(shape)).reshape(shape) % 5 + rank
    return tf.cast(tf.constant(start), name) if name != "bool" else tf.constant(start % 2 == 0)


def types():
    tf, hvd = _import()
    rank, size = hvd.rank(), hvd.size()
    for name in TYPES:
        tensor = _values(tf, rank, name)
        all_of = [_values(tf, r, name).numpy() for r in range(size)]
        for call in _both(tf, lambda t: hvd.allgather(t)):
            _same(call(tensor), np.concatenate(all_of))
        for call in _both(tf, lambda t: hvd.broadcast(t, size - 1)):
            _same(call(tensor), all_of[-1])
        for call in _both(tf, lambda t: hvd.alltoall(t, [1] * size)):
            received, rows = call(tensor)
            _same(received, np.stack([one[rank] for one in all_of]))
            _same(rows, [1] * size)
        if name == "bool":
            _same(hvd.allreduce(tensor, op=hvd.Min), np.logical_and.reduce(all_of))
            _same(hvd.allreduce(tensor, op=hvd.Max), np.logical_or.reduce(all_of))
            continue
        total = np.sum(np.stack(all_of), axis=0, dtype=all_of[0].dtype)
        for call in _both(tf, lambda t: hvd.allreduce(t, op=hvd.Sum)):
            _same(call(tensor), total)
        _same(
            hvd.reducescatter(tensor, op=hvd.Sum),
            np.array_split(total, size)[rank] if size < 3 else total[rank : rank + 1],
        )
        if "complex" not in name:
            _same(hvd.allreduce(tensor, op=hvd.Min), all_of[0])
            _same(hvd.allreduce(tensor, op=hvd.Max), all_of[-1])
        _same(hvd.allreduce(tensor, op=hvd.Product), np.prod(np.stack(all_of), axis=0))
    return True


@pytest.mark.parametrize("nranks", RANKS)
def test_types(job, nranks):
    assert job(nranks, types) == [True] * nranks


def averages():
    tf, hvd = _import()
    rank, size = hvd.rank(), hvd.size()
    mean = sum(range(size)) / size
    _same(hvd.allreduce(tf.fill([3], float(rank))), np.full(3, np.float32(mean)))
    for name in ("int32", "int64", "uint8"):  # truncated
        _same(hvd.allreduce(tf.fill([3], tf.cast(rank, name))), [int(mean)] * 3)
    scaled = hvd.allreduce(
        tf.constant([10, 20]), op=hvd.Sum, prescale_factor=0.25, postscale_factor=2.0
    )
    _same(scaled, [2 * size * 2, 5 * size * 2])
    # Scale factors have double precision.
    third = hvd.allreduce(tf.constant([1.0], tf.float64), op=hvd.Sum, prescale_factor=1 / 3)
    _same(third, sum([np.float64(1 / 3)] * size))
    for compression, dtype in (
        (hvd.Compression.fp16, "float32"),
        (hvd.Compression.bf16, "float64"),
    ):
        sent = hvd.allreduce(tf.fill([2], tf.cast(rank, dtype)), compression=compression)
        assert sent.dtype.name == dtype
        _same(sent, np.full(2, mean, dtype))
    return True


def test_averages(job):
    assert job(2, averages) == [True] * 2


def shapes():
    tf, hvd = _import()
    rank, size = hvd.rank(), hvd.size()
    deep = tf.ones([1, 2, 1, 2, 1, 2, 1, 2, 1])  # more dimensions than the library tells apart
    _same(hvd.allreduce(deep, op=hvd.Sum), np.full(deep.shape, size))
    _same(hvd.allreduce(tf.constant(1.5), op=hvd.Sum), 1.5 * size)
    _same(hvd.allreduce(tf.zeros([0, 3]), op=hvd.Sum), np.zeros([0, 3]))
    _same(hvd.allgather(tf.zeros([0, 3])), np.zeros([0, 3]))
    rows = tf.fill([rank, 2], float(rank))  # rank 0 has none
    wanted = np.concatenate([np.full((r, 2), r) for r in range(size)])
    _same(hvd.allgather(rows), wanted)
    received, counts = hvd.alltoall(tf.range(size * 2) + 100 * rank, [2] * (size - 1) + [0])
    if rank < size - 1:
        _same(counts, [2] * size)
        _same(
            received,
            np.concatenate([[100 * r + 2 * rank, 100 * r + 2 * rank + 1] for r in range(size)]),
        )
    else:
        _same(counts, [0] * size)

    @tf.function
    def static(tensor):
        gathered = hvd.allgather(tensor)
        assert gathered.shape.as_list() == [None, 4]
        assert hvd.allreduce(tensor).shape.as_list() == [3, 4]
        assert hvd.size_op().shape.as_list() == []
        return gathered

    _same(static(tf.ones([3, 4])), np.ones([3 * size, 4]))
    long = "a" * 400
    _same(tf.function(lambda t: hvd.allreduce(t, op=hvd.Sum, name=long))(tf.ones(2)), [size] * 2)
    _same(hvd.allreduce(tf.ones(2), op=hvd.Sum, name=long), [size] * 2)
    variable = tf.Variable([1.0, 2.0])
    _same(hvd.allreduce(variable, op=hvd.Sum), [size, 2 * size])
    _same(variable, [1.0, 2.0])
    return True


@pytest.mark.parametrize("nranks", RANKS)
def test_shapes(job, nranks):
    assert job(nranks, shapes) == [True] * nranks


def groups():
    tf, hvd = _import()
    rank, size = hvd.rank(), hvd.size()
    mixed = [
        tf.fill([i + 1], tf.cast(rank + i, name))
        for i, name in enumerate(("float32", "int32", "float32", "float64"))
    ]
    for call in _both(tf, lambda t: hvd.grouped_allreduce(t, op=hvd.Sum)):
        for i, one in enumerate(call(mixed)):
            assert one.dtype == mixed[i].dtype
            _same(one, np.full(i + 1, sum(r + i for r in range(size))))
    for call in _both(tf, lambda t: hvd.grouped_allgather(t)):
        for i, one in enumerate(call(mixed)):
            _same(one, np.concatenate([np.full(i + 1, r + i) for r in range(size)]))
    found = hvd.grouped_reducescatter([tf.ones([4, 2]), tf.ones([3])], op=hvd.Sum)
    _same(found[0], np.full((4 // size + (rank < 4 % size), 2), size))
    _same(found[1], np.full(3 // size + (rank < 3 % size), size))
    assert hvd.grouped_allreduce([]) == []
    return True


@pytest.mark.parametrize("nranks", RANKS)
def test_groups(job, nranks):
    assert job(nranks, groups) == [True] * nranks


def slices():
    tf, hvd = _import()
    rank, size = hvd.rank(), hvd.size()

    def reduce(values, indices):
        mine = tf.IndexedSlices(values, indices, dense_shape=tf.constant([5, 2]))
        dense = tf.ones([2])
        found = hvd.grouped_allreduce([dense, mine], op=hvd.Average)
        return found[0], found[1].values, found[1].indices

    values = tf.fill([rank + 1, 2], float(rank + 1))
    indices = tf.range(rank + 1)
    for call in _both(tf, reduce):
        dense, joined, places = call(values, indices)
        _same(dense, np.ones(2))
        _same(
            joined,
            np.concatenate([np.full((r + 1, 2), np.float32((r + 1) / size)) for r in range(size)]),
        )
        _same(places, np.concatenate([np.arange(r + 1) for r in range(size)]))
    for op in (hvd.Min, hvd.Adasum):
        with pytest.raises(NotImplementedError):
            hvd.allreduce(tf.IndexedSlices(values, indices), op=op)
    return True


@pytest.mark.parametrize("nranks", RANKS)
def test_indexed_slices(job, nranks):
    assert job(nranks, slices) == [True] * nranks


def gradients():
    tf, hvd = _import()
    rank, size = hvd.rank(), hvd.size()

    def of(function, start):
        def run(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                found = function(x)
            return tape.gradient(found, x)

        return [call(start) for call in _both(tf, run)]

    x = tf.constant([[1.0, 2.0], [3.0, 4.0]]) * (rank + 1)
    ranks = range(size)
    for found in of(lambda t: hvd.allreduce(t, op=hvd.Sum) * (rank + 1), x):
        _same(found, np.full((2, 2), sum(r + 1 for r in ranks)))
    for found in of(lambda t: hvd.allreduce(t) * (rank + 1), x):
        _same(found, np.full((2, 2), np.float32(sum(r + 1 for r in ranks) / size)))
    for found in of(lambda t: hvd.broadcast(t, 1) * (rank + 1), x):
        mean = np.float32(sum(r + 1 for r in ranks) / size)
        _same(found, np.full((2, 2), mean if rank == 1 else 0))
    weights = tf.reshape(tf.range(2.0 * size), [-1, 1])
    for found in of(lambda t: hvd.allgather(t) * weights * (rank + 1), x):
        mean = np.float32(sum(r + 1 for r in ranks) / size)
        _same(found, np.repeat(weights.numpy()[2 * rank : 2 * rank + 2] * mean, 2, axis=1))
    wide = tf.reshape(tf.range(2.0 * size), [size, 2])
    for found in of(lambda t: hvd.alltoall(t) * (rank + 1), wide):
        _same(found, np.repeat(np.arange(1.0, size + 1)[:, None], 2, axis=1))
    for found in of(lambda t: hvd.reducescatter(t, op=hvd.Sum) * (rank + 1), wide):
        _same(found, np.repeat(size * np.arange(1.0, size + 1)[:, None], 2, axis=1))
    for found in of(lambda t: hvd.grouped_allreduce([t, 2 * t], op=hvd.Sum)[0], x):
        _same(found, np.full((2, 2), size))
    with pytest.raises(LookupError, match="Min has no gradient"):
        of(lambda t: hvd.allreduce(t, op=hvd.Min), x)
    return True


@pytest.mark.parametrize("nranks", RANKS)
def test_gradients(job, nranks):
    assert job(nranks, gradients) == [True] * nranks


def opposite():
    """64 in flight, made and run in opposite orders, on two threads; shapes change."""
    tf, hvd = _import()
    rank, size = hvd.rank(), hvd.size()
    assert tf.config.threading.get_inter_op_parallelism_threads() == 2
    order = range(64) if rank % 2 else range(63, -1, -1)

    @tf.function(reduce_retracing=True)
    def many(x):
        found = [tf.zeros([])] * 64
        before = []
        for i in order:
            with tf.control_dependencies(before[-1:]):
                given = tf.identity(x * float(i))
            before.append(given)
            found[i] = hvd.allreduce(given, op=hvd.Sum, name=f"tensor{i}")
        return found

    for length in (1, 7, 1000, 3):
        for i, one in enumerate(many(tf.fill([length], float(rank + 1)))):
            _same(one, np.full(length, i * sum(r + 1 for r in range(size))))
    assert hvd.counters()["later"] >= 64 * 4
    return True


def opposite_in_own_process():
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    return opposite()


def test_opposite_orders(job):
    assert job(2, opposite_in_own_process, own=True) == [True] * 2


def constants():
    """A collective of constants is none: it runs each time."""
    tf, hvd = _import()
    size = hvd.size()

    @tf.function
    def twice():
        one = hvd.allreduce(tf.constant([2.0, 3.0]) * 2.0, op=hvd.Sum)
        return one + hvd.allreduce(tf.constant([2.0, 3.0]) * 2.0, op=hvd.Sum)

    before = hvd.counters()["later"]
    for _ in range(3):
        _same(twice(), [8.0 * size, 12.0 * size])
    assert hvd.counters()["later"] - before == 6
    return True


def test_constants_are_not_folded(job):
    assert job(2, constants) == [True] * 2


def loops():
    tf, hvd = _import()
    rank, size = hvd.rank(), hvd.size()

    @tf.function
    def loop(count):
        total = tf.zeros([2])
        for i in tf.range(count):  # iterations do not depend on each other: many at a time
            total += hvd.allreduce(tf.fill([2], tf.cast(i * (rank + 1), tf.float32)), op=hvd.Sum)
        return total

    @tf.function
    def branch(flag):
        return hvd.allreduce(tf.ones(2), op=hvd.Sum) if flag else tf.zeros(2)

    for count in (0, 1, 50):
        wanted = sum(range(count)) * sum(r + 1 for r in range(size))
        _same(loop(tf.constant(count)), [wanted] * 2)
    _same(branch(tf.constant(True)), [size] * 2)
    _same(branch(tf.constant(False)), [0] * 2)
    return True


def test_loops_and_branches(job):
    assert job(2, loops) == [True] * 2


def sets():
    tf, hvd = _import()
    rank = hvd.rank()
    last = hvd.add_process_set([1, 2])
    assert hvd.process_set_included_op(last.process_set_id).numpy() == int(rank in (1, 2))
    assert hvd.process_set_included_op(77).numpy() == -2
    assert hvd.size_op(last.process_set_id).numpy() == 2
    if rank > 0:
        _same(hvd.allreduce(tf.constant([rank]), op=hvd.Sum, process_set=last), [3])
        _same(hvd.broadcast(tf.constant([rank]), 2, process_set=last), [2])
        _same(hvd.allgather(tf.constant([rank]), process_set=last), [1, 2])
        with tf.GradientTape() as tape:
            x = tf.Variable([float(rank)])
            y = hvd.allgather(x * x, process_set=last)
        _same(tape.gradient(y, x), [2.0 * rank])
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match="not in process set"):
            hvd.allreduce(tf.constant([rank]), process_set=last)
    hvd.barrier()

    # Each rank has other ones of the sets, so other numbers of calls in its graph.
    pairs = [last, hvd.add_process_set([0, 1]), hvd.add_process_set([0, 2])]

    @tf.function
    def own_sets(x):
        for name in (None, "own"):
            for one in pairs:
                if one.included():
                    found = hvd.allreduce(x, op=hvd.Sum, name=name, process_set=one)
                    tf.debugging.assert_equal(found, float(sum(one.ranks)))

    own_sets(tf.constant(float(rank)))
    for one in pairs[1:]:
        assert hvd.remove_process_set(one)
    number = last.process_set_id
    assert hvd.remove_process_set(last)
    with pytest.raises(ValueError, match="not in use"):
        hvd.allreduce(tf.constant([rank]), process_set=last)
    with pytest.raises(tf.errors.FailedPreconditionError, match="no such process set"):
        hvd.size_op(number)
    assert hvd.process_set_included_op(number).numpy() == -2
    return True


def test_process_sets(job):
    assert job(3, sets) == [True] * 3


def joins():
    tf, hvd = _import()
    rank, size = hvd.rank(), hvd.size()
    last = None
    for steps in (3, 2):  # the second time names have to agree again
        for _ in range(steps + rank):
            _same(hvd.allreduce(tf.ones(2), op=hvd.Sum).numpy() >= 1, [True] * 2)
        last = int(hvd.join())
        _same(hvd.allreduce(tf.ones(2), op=hvd.Sum), [size] * 2)
    assert last == size - 1
    return True


def test_join(job):
    assert job(2, joins) == [True] * 2


def adasum():
    tf, hvd = _import()
    rank, size = hvd.rank(), hvd.size()
    parallel = hvd.allreduce(tf.constant([1.0, 2.0, 3.0]), op=hvd.Adasum)
    np.testing.assert_allclose(parallel.numpy(), [1.0, 2.0, 3.0], rtol=1e-6)
    apart = tf.one_hot(rank, size + 1)
    for call in _both(tf, lambda t: hvd.allreduce(t, op=hvd.Adasum)):
        np.testing.assert_allclose(call(apart).numpy(), [1.0] * size + [0.0], rtol=1e-6)
    return True


@pytest.mark.parametrize("nranks", RANKS)
def test_adasum(job, nranks):
    assert job(nranks, adasum) == [True] * nranks


def asks():
    tf, hvd = _import()
    for call, wanted in (
        (hvd.rank_op, hvd.rank()),
        (hvd.size_op, hvd.size()),
        (hvd.local_rank_op, hvd.local_rank()),
        (hvd.local_size_op, hvd.local_size()),
    ):
        assert int(call()) == wanted == int(tf.function(call)())
    late = tf.function(hvd.size_op)
    assert int(late()) == 2
    hvd.shutdown()
    with pytest.raises(tf.errors.FailedPreconditionError, match="not been initialized"):
        late()
    assert int(hvd.process_set_included_op()) == -1
    hvd.init()
    assert int(late()) == 2
    return True


def test_what_the_job_is(job):
    assert job(2, asks) == [True] * 2
