# SPDX-License-Identifier: Apache-2.0
"""halay.tensorflow and programs that are wrong: a named error by the deadline, or what is right."""

import concurrent.futures
import functools
import multiprocessing
import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import halayrun

pytestmark = pytest.mark.sampled

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}
DEADLINE = {"HALAY_DEADLINE": "3", "HALAY_START_DEADLINE": "120", **QUIET}


def _import():
    import lean  # noqa: F401
    import tensorflow as tf

    import halay.tensorflow as hvd

    return tf, hvd


def _again(tf, hvd, ahead=False):
    """The job is as good as before. ahead: this rank has not waited for the deadline, others have,
    and would come too late for its own."""
    if ahead:
        time.sleep(float(os.environ["HALAY_DEADLINE"]))
    hvd.barrier()
    found = hvd.allreduce(tf.constant([1.0]), op=hvd.Sum, name="again")
    np.testing.assert_array_equal(found, [hvd.size()])


def _fails(function, kind, words):
    with pytest.raises(kind, match=words):
        function()


def mismatches():
    tf, hvd = _import()
    rank, errors = hvd.rank(), tf.errors
    differs = "HALAY_EMISMATCH.*differs between ranks.*rank 0: .*rank 1: "
    of_types = tf.ones([2], tf.float32 if rank else tf.int32)
    of_shapes = tf.ones([2, 3]) if rank else tf.ones([3, 2])
    for call in (hvd.allreduce, tf.function(hvd.allreduce, autograph=False)):
        for wrong in (of_types, of_shapes):
            _fails(functools.partial(call, wrong), errors.FailedPreconditionError, differs)
        _again(tf, hvd)
    op = hvd.Sum if rank else hvd.Max
    _fails(lambda: hvd.allreduce(tf.ones(2), op=op), errors.FailedPreconditionError, differs)
    _fails(lambda: hvd.broadcast(tf.ones(2), rank), errors.FailedPreconditionError, differs)
    _fails(lambda: hvd.allgather(tf.ones([1, 2 + rank])), errors.FailedPreconditionError, differs)
    _fails(
        lambda: hvd.grouped_allreduce([tf.ones(2), tf.ones(2 + rank)]),
        errors.FailedPreconditionError,
        differs,
    )
    _again(tf, hvd)
    return True


def test_types_shapes_and_operations_that_differ(job):
    assert job(2, mismatches, env=DEADLINE) == [True] * 2


def arguments():
    """What one rank can see by itself: on all ranks alike here."""
    tf, hvd = _import()
    size, invalid = hvd.size(), tf.errors.InvalidArgumentError
    _fails(lambda: hvd.allreduce(tf.constant(["a"])), (TypeError, invalid), "string|STRING|Value")
    _fails(lambda: hvd.allgather(tf.constant(1.0)), invalid, "scalar has no first dimension")
    _fails(lambda: hvd.reducescatter(tf.constant(1.0)), invalid, "scalar has no first dimension")
    _fails(lambda: hvd.broadcast(tf.ones(2), 7), invalid, "root_rank 7 is not one of the 2 ranks")
    _fails(lambda: hvd.alltoall(tf.ones(size + 1)), invalid, "cannot be dealt out evenly")
    _fails(lambda: hvd.alltoall(tf.ones(4), [1]), invalid, "splits has 1 entries, for 2 ranks")
    _fails(lambda: hvd.alltoall(tf.ones(4), [5, -1]), invalid, "negative entry, or more rows")
    _fails(lambda: hvd.alltoall(tf.ones(4), [3, 3]), invalid, "negative entry, or more rows")
    _fails(lambda: hvd.alltoall(tf.ones(4), [2**40, 4]), invalid, "negative entry, or more rows")
    _fails(lambda: hvd.alltoall(tf.ones(4), [2.5, 1.5]), TypeError, "splits must be integers")
    for call in (hvd.broadcast, lambda x, root: hvd.broadcast_variables([tf.Variable(x)], root)):
        _fails(
            functools.partial(call, tf.ones(2), 0.5),
            TypeError,
            "broadcast: root_rank must be an integer, not 0.5",
        )
    _fails(lambda: hvd.allreduce(tf.constant([True])), invalid, "does not take .* bool")
    _fails(lambda: hvd.allreduce(tf.ones(2), op=9), ValueError, "is no reduction")
    _fails(
        lambda: hvd.allreduce(tf.ones(2), op=hvd.Min, prescale_factor=2.0), ValueError, "need op"
    )
    _fails(lambda: hvd.allreduce(tf.ones(2), prescale_factor=float("nan")), invalid, "HALAY_EINVAL")
    for sparse in (tf.ragged.constant([[1.0], []]), tf.sparse.from_dense([1.0])):
        for call in (lambda t: hvd.allreduce(t), lambda t: hvd.grouped_allreduce([t])):
            _fails(functools.partial(call, sparse), TypeError, "is not dense: make it so")
    for call in (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter):
        _fails(functools.partial(call, tf.ones([2, 2])), TypeError, "takes a list of tensors")
    _fails(lambda: hvd.allreduce(tf.ones(2), process_set=0), TypeError, "process_set=0 is none")
    resource = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[])
    _fails(lambda: hvd.allreduce(resource), (TypeError, invalid, ValueError), "(?i)resource")
    _again(tf, hvd)
    return True


def test_arguments(job):
    assert job(2, arguments, env=QUIET) == [True] * 2


def one_alone():
    """Only rank 1 does something: it hears of it by the deadline, and rank 0 is not harmed."""
    tf, hvd = _import()
    rank, late = hvd.rank(), tf.errors.DeadlineExceededError

    # A variable more: a larger model.
    if rank:
        words = "HALAY_ETIMEOUT.*tf.allreduce.extra"
        _fails(lambda: hvd.allreduce(tf.ones(3), name="extra"), late, words)
    _again(tf, hvd, ahead=rank == 0)

    # Strings.
    if rank:
        _fails(
            lambda: hvd.allreduce(tf.constant(["a"]), name="words"),
            (TypeError, tf.errors.InvalidArgumentError),
            "",
        )
    else:
        _fails(lambda: hvd.allreduce(tf.constant([1.0]), name="words"), late, "tf.allreduce.words")
    _again(tf, hvd, ahead=rank == 1)

    # Sparse on one rank only.
    gradient = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0])) if rank else tf.ones([3, 2])
    _fails(lambda: hvd.allreduce(gradient, name="gradient"), late, "HALAY_ETIMEOUT.*gradient")
    _again(tf, hvd)

    # A loop that rank 0 leaves early.
    @tf.function
    def loop(count):
        total = tf.zeros([])
        for i in tf.range(count):
            total += hvd.allreduce(tf.cast(i, tf.float32), op=hvd.Sum)
        return total

    if rank:
        _fails(lambda: loop(tf.constant(4)), late, "HALAY_ETIMEOUT")
    else:
        assert float(loop(tf.constant(3))) == 6.0
    _again(tf, hvd, ahead=rank == 0)
    assert float(loop(tf.constant(4))) == 12.0

    # A retrace: names follow from the program, not from how often it was traced.
    @tf.function
    def traced(x, _number):
        return hvd.allreduce(x, op=hvd.Sum) + hvd.allreduce(2 * x, op=hvd.Sum)

    for number in range(4):
        assert float(traced(tf.constant(1.0), number if rank else 0)) == 3.0 * hvd.size()
    assert traced.experimental_get_tracing_count() == (4 if rank else 1)
    return True


def test_one_rank_alone(job):
    assert job(2, one_alone, env=DEADLINE) == [True] * 2


def twice():
    """One name twice at a time is refused, also where it would be a matter of luck."""
    tf, hvd = _import()
    rank = hvd.rank()

    @tf.function
    def both(x):
        one = hvd.allreduce(x, op=hvd.Sum, name="same", ignore_name_scope=True)
        two = hvd.allreduce(2 * x, op=hvd.Sum, name="same", ignore_name_scope=True)
        return one, two

    try:
        found = both(tf.constant(1.0))
    except tf.errors.OpError as failure:
        assert re.search("out already|HALAY_ETIMEOUT|HALAY_EMISMATCH", failure.message)
    else:  # one after the other
        assert [float(one) for one in found] == [2.0, 4.0]
    _again(tf, hvd)
    return rank


def test_one_name_twice(job):
    assert job(2, twice, env=DEADLINE) == [0, 1]


def compiled():
    tf, hvd = _import()
    words = "cannot be compiled by XLA"
    call = tf.function(lambda x: hvd.allreduce(x), jit_compile=True)
    _fails(lambda: call(tf.ones(2)), tf.errors.OpError, words)
    _again(tf, hvd)
    return True


def test_xla(job):
    assert job(2, compiled, env=DEADLINE) == [True] * 2


def ended():
    tf, hvd = _import()
    call = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum))
    assert float(call(tf.constant(1.0))) == 2.0
    hvd.shutdown()
    words = "has not been initialized"
    for again in (call, lambda x: hvd.allreduce(x)):
        _fails(functools.partial(again, tf.constant(1.0)), tf.errors.FailedPreconditionError, words)
    hvd.init()
    assert float(call(tf.constant(1.0))) == 2.0
    return True


def test_after_shutdown(job):
    assert job(2, ended, env=DEADLINE) == [True] * 2


def children():
    """A worker that is forked off, as data loaders do, is no rank, and does not harm its parent."""
    tf, hvd = _import()
    ours, theirs = multiprocessing.Pipe()
    pid = os.fork()
    if pid == 0:
        try:
            hvd.size_op()
            theirs.send("no error")
        except Exception as failure:
            theirs.send(str(failure))
        os._exit(0)
    said = ours.recv() if ours.poll(20) else "nothing"
    os.waitpid(pid, 0)
    assert "HALAY_EFORKED" in said
    # tf.data's own workers are threads of this process.
    data = tf.data.Dataset.range(4).map(
        lambda i: hvd.allreduce(tf.cast(i, tf.float32), op=hvd.Sum), num_parallel_calls=1
    )
    assert [float(one) for one in data] == [0.0, 2.0, 4.0, 6.0]
    _again(tf, hvd)
    return True


def test_forked_children_and_data(job):
    assert job(2, children, env=DEADLINE) == [True] * 2


def frameworks():
    """torch and TensorFlow in one process, with the same names and at the same time."""
    import torch

    import halay.torch

    tf, hvd = _import()
    rank, size = hvd.rank(), hvd.size()
    call = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="x"))
    for i in range(20):
        handle = halay.torch.allreduce_async(torch.full([3], float(i)), op=hvd.Sum, name="x")
        found = call(tf.fill([2], float(i + rank)))
        np.testing.assert_array_equal(found, [size * i + sum(range(size))] * 2)
        assert halay.torch.synchronize(handle).tolist() == [float(size * i)] * 3
    return True


def test_two_frameworks(job):
    assert job(2, frameworks) == [True] * 2


def all_surfaces():
    """torch, TensorFlow, JAX and arrays in one process, each rank in an order of its own; what one
    of them is told is not the others'."""
    import jax.numpy as jnp
    import torch

    import halay.arrays
    import halay.jax
    import halay.torch

    tf, hvd = _import()
    rank, size = hvd.rank(), hvd.size()
    total = float(sum(range(size)))
    graph = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="x"))

    def in_torch(times):
        found = halay.torch.allreduce(torch.full([3], float(rank)), op=hvd.Sum, name="x")
        assert found.tolist() == [total] * 3

    def in_tensorflow(times):
        found = graph(tf.fill([2 + times], float(rank)))
        np.testing.assert_array_equal(found, [total] * (2 + times))

    def in_jax(times):
        found = halay.jax.allreduce(jnp.full(4, float(rank)), "x", op=hvd.Sum)
        assert found.tolist() == [total] * 4

    def differs(times):
        with pytest.raises(halay.torch.HalayMismatch, match="'allreduce.other'"):
            halay.torch.allreduce(torch.ones(2 + (rank == times % size)), name="other")

    def fails(times):
        kind = tf.errors.FailedPreconditionError
        wrong = tf.ones([2 + (rank == times % size)])
        _fails(lambda: hvd.allreduce(wrong, name="other"), kind, "'tf.allreduce.other'")

    def gathers(times):
        found = halay.jax.allgather_object((rank, times))
        assert found == [(r, times) for r in range(size)]

    for times in range(6):
        # One thread a surface: each rank starts them in another order.
        calls = [in_torch, in_tensorflow, in_jax, differs, fails, gathers]
        order = calls[rank:] + calls[:rank]
        with concurrent.futures.ThreadPoolExecutor(len(order)) as pool:
            for done in [pool.submit(call, times) for call in order]:
                done.result()
        counts = np.full(5, rank)
        assert halay.arrays.allreduce(counts).tolist() == [int(total)] * 5
    halay.torch.init()
    halay.jax.init()
    halay.arrays.init()
    _again(tf, hvd)
    return True


def test_all_surfaces_on_three_ranks(job):
    assert job(3, all_surfaces) == [True] * 3


APART = """
import sys
import time
import {0}
before = set(sys.modules)
import halay.{0}
print("new:", *(set(sys.modules) - before))
"""


@pytest.mark.parametrize("one, other", [("torch", "tensorflow"), ("tensorflow", "torch")])
def test_imports_are_apart(one, other):
    status, text = halayrun(1, [sys.executable, "-c", APART.format(one)])
    assert status == 0, text
    words = text[text.index("new:") :].split()
    assert f"halay.{one}" in words
    assert not {other, f"halay.{other}", "jax", "keras", "tf_keras"} & set(words)


def unknown_functions():
    """As in a TensorFlow whose std::function is not libstdc++'s: nothing in it is known as code."""
    tf, hvd = _import()
    call = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum))
    words = "HALAY_EUNSUPPORTED.*keeps the function that ends an operation"
    for _ in range(2):
        _fails(lambda: call(tf.ones(2)), tf.errors.UnimplementedError, words)
    _again(tf, hvd)  # eagerly
    assert hvd.counters()["later"] == 0
    return True


NO_CODE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
int dladdr(const void *at, Dl_info *info)
{
    int (*real)(const void *, Dl_info *) = dlsym(RTLD_NEXT, "dladdr");
    if (real(__builtin_return_address(0), info) && strstr(info->dli_fname, "libhalay_tensorflow"))
        return 0;
    return real(at, info);
}
"""


def test_functions_that_cannot_be_moved(job, tmp_path):
    source = tmp_path / "none.c"
    source.write_text(NO_CODE)
    library = tmp_path / "none.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    env = {**DEADLINE, "LD_PRELOAD": str(library)}
    assert job(2, unknown_functions, env=env) == [True] * 2
