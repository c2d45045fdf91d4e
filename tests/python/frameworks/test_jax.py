# SPDX-License-Identifier: Apache-2.0
"""halay.jax: exact values, gradients, programs of many calls, training, and what goes wrong."""

import functools
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import SOURCE, environment, halayrun

import halay.jax as hvd
import halay.torch

pytestmark = pytest.mark.sampled

HERE = Path(__file__).resolve().parent
INEXACT = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def everywhere(value):
    """Numbers of which each rank has others, small enough to be exact in every dtype."""
    return np.arange(6).reshape(3, 2) % 5 + value


def ways(function):
    """As it is, and compiled."""
    return [function, jax.jit(function)]


def same(found, expected):
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert np.asarray(found).tobytes() == np.asarray(expected).tobytes(), (found, expected)


# ---------------------------------------------------------------------------- values


def rank_reductions():
    size, rank = hvd.size(), hvd.rank()
    made = {"Sum": sum, "Average": lambda all_: sum(all_) // size, "Min": min, "Max": max}
    made["Product"] = lambda all_: functools.reduce(lambda a, b: a * b, all_)
    with jax.enable_x64(True):
        for dtype in [*INEXACT, *INTEGERS]:
            own = jnp.asarray(everywhere(rank + 1), dtype)
            assert own.dtype == dtype
            for op in made:
                if dtype.startswith("complex") and op in ("Min", "Max"):
                    continue
                expected = np.empty((3, 2))
                for at in np.ndindex(3, 2):
                    expected[at] = made[op]([int(everywhere(r + 1)[at]) for r in range(size)])
                    if op == "Average" and dtype in INEXACT:
                        expected[at] = sum(everywhere(r + 1)[at] for r in range(size)) / size
                for call in ways(lambda x, op=op: hvd.allreduce(x, op=getattr(hvd, op))):
                    same(call(own), jnp.asarray(expected, dtype))


def test_reductions(job):
    job(2, rank_reductions)


def rank_others():
    size, rank = hvd.size(), hvd.rank()
    own = jnp.asarray(everywhere(10 * rank), jnp.float32)
    all_ = [everywhere(10 * r).astype(np.float32) for r in range(size)]
    for call in ways(hvd.allgather):
        same(call(own), np.concatenate(all_))
    for root in range(size):
        for call in ways(lambda x, root=root: hvd.broadcast(x, root)):
            same(call(own), all_[root])
    rows = jnp.arange(4.0 * size).reshape(2 * size, 2) + rank
    whole = sum(np.arange(4.0 * size, dtype=np.float32).reshape(-1, 2) + r for r in range(size))
    for call in ways(lambda x: hvd.reducescatter(x, op=hvd.Sum)):
        same(call(rows), whole[2 * rank : 2 * rank + 2])
    for call in ways(hvd.alltoall):
        parts = [np.arange(4.0 * size, dtype=np.float32).reshape(-1, 2) + r for r in range(size)]
        same(call(rows), np.concatenate([part[2 * rank : 2 * rank + 2] for part in parts]))
    flags = jnp.asarray([True, rank == 0, False])
    same(hvd.allreduce(flags, op=hvd.Max), np.array([True, True, False]))
    same(hvd.allreduce(flags, op=hvd.Min), np.array([True, size == 1, False]))
    same(hvd.allgather(flags), np.concatenate([[True, r == 0, False] for r in range(size)]))
    # Nothing, a scalar, and more dimensions than the library knows.
    same(hvd.allreduce(jnp.zeros((0, 3))), np.zeros((0, 3), np.float32))
    same(hvd.allreduce(jnp.float32(rank), op=hvd.Sum), np.float32(sum(range(size))))
    same(hvd.allreduce(jnp.ones((1,) * 8 + (2,)), op=hvd.Sum), np.full((1,) * 8 + (2,), size, "f"))
    scaled = hvd.allreduce(own, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    same(scaled, np.float32(2) * sum(all_))
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        same(hvd.allreduce(own, op=hvd.Sum, compression=compression), sum(all_))
    pair = [own, own.astype(jnp.bfloat16)]
    for call in ways(lambda xs: hvd.grouped_allreduce(xs, op=hvd.Sum)):
        first, second = call(pair)
        same(first, sum(all_))
        same(second, jnp.asarray(sum(all_), jnp.bfloat16))
    assert hvd.broadcast_object({"rank": rank}, root_rank=size - 1) == {"rank": size - 1}
    assert hvd.allgather_object("x" * rank) == ["x" * r for r in range(size)]


def test_other_collectives(job):
    job(2, rank_others)


def rank_sets():
    size, rank = hvd.size(), hvd.rank()
    sets = [hvd.add_process_set([r]) for r in range(size)]
    for call in ways(lambda x: hvd.allreduce(x, process_set=sets[rank])):
        same(call(jnp.float32(rank)), np.float32(rank))
    with pytest.raises(ValueError, match="is not in process set"):
        hvd.allreduce(jnp.float32(1), process_set=sets[(rank + 1) % size])
    # Each rank has other ones of the sets, so other numbers of calls in its program.
    mine = [one for one in [*sets, hvd.global_process_set] if one.included()]
    for name in (None, "own"):
        program = jax.jit(
            lambda x, name=name: [
                hvd.allreduce(x, name, op=hvd.Sum, process_set=one)
                for one in (mine if rank else mine[1:])
            ]
        )
        assert [float(one) for one in program(jnp.float32(2))] == ([2.0] if rank else []) + [4.0]
    for one in sets:
        hvd.remove_process_set(one)
    same(hvd.allreduce(jnp.float32(rank), op=hvd.Max), np.float32(size - 1))


def test_process_sets(job):
    job(2, rank_sets)


# ---------------------------------------------------------------------------- transformations


def transposed(function, ct_of):
    """The gradient as it has to be: of the sum of all ranks' losses, each linear in its output."""
    size, rank = hvd.size(), hvd.rank()
    shape = (2 * size,)
    jacobians = []
    for r in range(size):  # what one element of one rank does to the outputs of all
        for at in range(shape[0]):
            one = jnp.zeros(shape).at[at].set(1.0) if r == rank else jnp.zeros(shape)
            jacobians.append(float(hvd.allreduce(jnp.vdot(ct_of(rank), function(one)), op=hvd.Sum)))
    return np.asarray(jacobians, np.float32).reshape(size, -1)[rank]


def rank_gradients():
    size, rank = hvd.size(), hvd.rank()
    calls = {
        "average": hvd.allreduce,
        "sum": lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5),
        "gather": hvd.allgather,
        "broadcast": lambda x: hvd.broadcast(x, size - 1),
        "scatter": lambda x: hvd.reducescatter(x, postscale_factor=2.0),
        "alltoall": hvd.alltoall,
        "group": lambda x: sum(hvd.grouped_allreduce([x, 2 * x])),
    }
    x = jnp.arange(2.0 * size) + rank
    for name, call in calls.items():
        out = call(x)
        weights = [jnp.arange(1.0, out.size + 1) * (r + 1) for r in range(size)]
        expected = transposed(call, lambda r, weights=weights: weights[r])
        loss = lambda x, call=call, w=weights[rank]: jnp.vdot(w, call(x))  # noqa: E731
        for gradient in (jax.grad(loss), jax.jit(jax.grad(loss))):
            assert np.asarray(gradient(x)).tolist() == expected.tolist(), name
        # Forward: the map is linear, so its derivative is itself.
        _, tangent = jax.jit(lambda x, call=call: jax.jvp(call, (x,), (2 * x,)))(x)
        same(tangent, 2 * out)
        # The gradient's gradient, of a loss that is quadratic in the output.
        square = lambda x, call=call: (call(x) ** 2).sum() / 2  # noqa: E731
        twice = jax.grad(lambda x: jnp.vdot(x, jax.grad(square)(x)) / 2)(x)  # noqa: B023
        assert np.all(np.isfinite(twice))
    with pytest.raises(NotImplementedError, match="only Sum and Average have a gradient"):
        jax.grad(lambda x: hvd.allreduce(x, op=hvd.Max).sum())(x)
    assert jax.grad(lambda x: (x * hvd.allreduce(jnp.arange(2), op=hvd.Max)).sum())(1.0) == 1


def test_gradients(job):
    job(2, rank_gradients)


def rank_transformations():
    size, rank = hvd.size(), hvd.rank()
    batch = jnp.arange(12.0).reshape(3, 4) * (rank + 1)
    total = sum(range(1, size + 1))
    for dim in (0, 1):
        for kind, alone in {
            "allreduce": lambda x: hvd.allreduce(x, op=hvd.Sum),
            "allgather": hvd.allgather,
            "broadcast": lambda x: hvd.broadcast(x, size - 1),
            "alltoall": hvd.alltoall,
            "reducescatter": lambda x: hvd.reducescatter(x, op=hvd.Sum),
        }.items():
            given = batch if kind in ("allreduce", "allgather", "broadcast") else batch[:2, :]
            rows = jnp.moveaxis(given, dim, 0)
            if kind in ("alltoall", "reducescatter") and rows.shape[1] % size:
                continue
            expected = jnp.stack([alone(row) for row in rows])
            same(jax.jit(jax.vmap(alone, in_axes=dim))(given), expected)

    def step(carry, x):
        mean = hvd.allreduce(x, op=hvd.Sum)
        return carry + mean, mean

    last, seen = jax.jit(lambda xs: jax.lax.scan(step, 0.0, xs))(batch[2])
    same(seen, np.arange(8.0, 12.0, dtype=np.float32) * total)
    assert last == 38 * total
    # As many rounds as the ranks agree on, in a loop that XLA runs.
    rounds = jax.jit(
        lambda: jax.lax.while_loop(
            lambda c: c[0] < 5, lambda c: (c[0] + 1, hvd.allreduce(c[1], op=hvd.Sum)), (0, 1.0)
        )
    )()
    assert rounds[1] == size**5
    same(jax.jit(jax.checkpoint(lambda x: hvd.allreduce(jnp.sin(x) * 0 + 1)))(batch), batch * 0 + 1)
    # The argument's memory becomes the result's, where another call still reads it, too.
    given = jax.jit(lambda x: [hvd.allreduce(x * k, op=hvd.Sum) for k in (1, 2)], donate_argnums=0)
    for times in range(1, 4):
        for k, out in zip((1, 2), given(jnp.full(1000, float(times)))):
            assert np.unique(out).tolist() == [k * times * size]
    # Without jit, as for debugging, on all ranks or on one.
    for off in (True, rank == 0):
        with jax.disable_jit(off):
            same(jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))(batch), total * batch / (rank + 1))
            same(jax.grad(lambda x: hvd.allreduce(x, op=hvd.Sum).sum())(batch), batch * 0 + size)


def test_transformations(job):
    job(2, rank_transformations)


MANY = 40


def rank_many():
    """Each rank asks for them in another order, and the program is run again and again."""
    size, rank = hvd.size(), hvd.rank()

    @jax.jit
    def program(x):
        order = range(MANY) if rank % 2 == 0 else reversed(range(MANY))
        return {
            i: hvd.allreduce(jnp.sin(x) * 0 + i + x, name=f"many.{i}", op=hvd.Sum) for i in order
        }

    for times in range(20):
        found = program(jnp.full((times % 2 + 1,), float(rank)))
        assert [float(found[i][-1]) for i in range(MANY)] == [
            size * i + sum(range(size)) for i in range(MANY)
        ]

    # Of one line: the second and later ones have a number.
    @jax.jit
    def lines(x):
        return [hvd.allreduce(x * i, op=hvd.Sum) for i in range(MANY)]

    assert [float(y) for y in lines(jnp.float32(1))] == [size * i for i in range(MANY)]
    program.clear_cache()  # of one rank alone makes no difference
    if rank == 0:
        jax.clear_caches()
    assert [float(y) for y in lines(jnp.float32(1))] == [size * i for i in range(MANY)]


def test_many_in_one_program(job):
    job(2, rank_many)


def rank_overtaken():
    """A call that waits for its argument is not overtaken by a later one of the same name."""
    size, rank = hvd.size(), hvd.rank()

    @jax.jit
    def slow(x):
        return jax.lax.fori_loop(0, 60, lambda _, x: jnp.tanh(x @ x), x)[0, 0] * 0 + 1

    @jax.jit
    def reduced(x):
        return hvd.allreduce(x, name="overtaken", op=hvd.Sum)

    for _ in range(5):
        late = slow(jnp.ones((400, 400))) if rank == 0 else jnp.float32(1)
        first, second = reduced(late), reduced(jnp.float32(100))
        assert (float(first), float(second)) == (size, 100 * size)


def test_calls_keep_their_order(job):
    job(2, rank_overtaken)


# ---------------------------------------------------------------------------- training


def dataset():
    random = np.random.default_rng(7)
    return random.normal(size=(64, 10)).astype("f"), random.integers(0, 3, size=64)


def network(seed):
    first, second = jax.random.split(jax.random.PRNGKey(seed))
    return {
        "dense": {"w": jax.random.normal(first, (10, 16)) * 0.3, "b": jnp.zeros(16)},
        "head": [jax.random.normal(second, (16, 3)) * 0.3, jnp.zeros(3)],
    }


def loss_of(params, x, y):
    hidden = jnp.tanh(x @ params["dense"]["w"] + params["dense"]["b"])
    logits = hidden @ params["head"][0] + params["head"][1]
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def train(optimizer, params, x, y, steps):
    state = optimizer.init(params)

    @jax.jit
    def step(params, state):
        loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    losses = []
    for _ in range(steps):
        params, state, loss = step(params, state)
        losses.append(loss)
    return params, losses


def rank_training(passes):
    size, rank = hvd.size(), hvd.rank()
    x, y = dataset()
    own = slice(rank * len(x) // size, (rank + 1) * len(x) // size)
    params = hvd.broadcast_parameters(network(rank), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optax.adam(1e-2), backward_passes_per_step=passes)
    params, losses = train(optimizer, params, x[own], y[own], 20)
    alone = optax.adam(1e-2)
    if passes > 1:
        alone = optax.MultiSteps(alone, passes)
    expected, whole = train(alone, network(0), x, y, 20)
    for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(expected)):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6)
    mean = hvd.allreduce(jnp.stack(losses))
    np.testing.assert_allclose(mean, jnp.stack(whole), rtol=0, atol=2e-6)
    assert whole[-1] < 0.95 * whole[0]
    raw = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(params))
    assert len(set(hvd.allgather_object(raw))) == 1


@pytest.mark.parametrize("passes", [pytest.param(1, marks=pytest.mark.long), 3])
def test_training_is_that_of_one_process(job, passes):
    job(2, rank_training, passes)


def test_state_of_all_types(job):
    job(2, rank_state_of_all_types)


@pytest.mark.long
def test_training_on_three_ranks_is_the_same_on_all(job):
    job(3, rank_training_of_three)


def rank_state_of_all_types():
    """To the bit, as root_rank has it: also what JAX sends as another type, and no arrays."""

    def state(seed):
        whole = jnp.arange(6).reshape(2, 3) % 2 + seed
        names = ["bfloat16", "float16", "float32", "int8", "uint8", "bool", "complex64"]
        names += ["float8_e4m3fn", "float8_e5m2", "int4", "uint4"]
        typed = {name: whole.astype(name) for name in names if hasattr(jnp, name) or name == "bool"}
        optimizer = optax.inject_hyperparams(optax.adam, ["mu_dtype"])(
            0.1 * seed, mu_dtype="float32"
        )
        return {
            **typed,
            "key": jax.random.key(seed),
            "plain": [seed, 0.1 * seed, seed == 1, f"text {seed}", None],
            "numpy": (np.full(2, 0.1 * seed, np.float64), np.int64(2**40 + seed)),
            "optax": optimizer.init({"w": jnp.full(3, seed, jnp.bfloat16)}),
        }

    def bits(leaf):
        if not hasattr(leaf, "dtype"):
            return type(leaf).__name__, repr(leaf)
        raw = leaf
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            raw = jax.random.key_data(leaf)
        return isinstance(leaf, jax.Array), str(leaf.dtype), np.asarray(raw).tobytes()

    for root in range(hvd.size()):
        found = hvd.broadcast_parameters(state(hvd.rank() + 1), root, f"state {root}")
        expected = state(root + 1)
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
            assert bits(a) == bits(b), (a, b)
    # Which leaves are arrays of JAX the root says, also where others have something else there.
    for root in range(hvd.size()):
        mine = np.full(3, hvd.rank(), np.float64), jnp.full(3, hvd.rank(), jnp.float32)
        tree = mine if hvd.rank() == root else mine[::-1]
        found = hvd.broadcast_parameters(tree, root, f"mixed {root}")
        expected = np.full(3, root, np.float64), jnp.full(3, root, jnp.float32)
        assert [bits(leaf) for leaf in found] == [bits(leaf) for leaf in expected]
    traced = jax.jit(lambda tree: hvd.broadcast_parameters(tree, 0, "traced"))
    assert float(traced({"x": jnp.float32(hvd.rank())})["x"]) == 0.0


def rank_training_of_three():
    rank = hvd.rank()
    x, y = dataset()
    params = hvd.broadcast_parameters(network(rank), root_rank=2)
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.1), compression=hvd.Compression.bf16)
    params, _ = train(optimizer, params, x[rank::3], y[rank::3], 5)
    raw = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(params))
    assert len(set(hvd.allgather_object(raw))) == 1


# ---------------------------------------------------------------------------- what goes wrong


def fails(call, *words):
    with pytest.raises(Exception) as caught:  # JaxRuntimeError, or ValueError where it ran at once
        jax.block_until_ready(call())
    text = str(caught.value)
    assert all(word in text for word in words), text


def rank_differences():
    rank, size = hvd.rank(), hvd.size()
    wrong = rank == size - 1
    for call in (lambda f: f, jax.jit):
        shape = (3, 4) if wrong else (4, 3)
        fails(
            lambda c=call, s=shape: c(lambda x: hvd.allreduce(x, name="shape"))(jnp.ones(s)),
            "HALAY_EMISMATCH", "jax.allreduce.shape", "[4, 3]", "[3, 4]",
        )  # fmt: skip
        dtype = jnp.int32 if wrong else jnp.float32
        fails(
            lambda c=call, d=dtype: c(lambda x: hvd.allreduce(x, name="d"))(jnp.ones(2, d)),
            "HALAY_EMISMATCH", "float32", "int32",
        )  # fmt: skip
        op = hvd.Max if wrong else hvd.Min
        fails(
            lambda c=call, op=op: c(lambda x: hvd.allreduce(x, "op", op))(jnp.ones(2)),
            "HALAY_EMISMATCH", "min", "max",
        )  # fmt: skip
        fails(
            lambda c=call: c(lambda x: hvd.broadcast(x, rank, name="root"))(jnp.ones(2)),
            "HALAY_EMISMATCH", "root",
        )  # fmt: skip
        rows = 3 if wrong else 2
        fails(
            lambda c=call, n=rows: c(lambda x: hvd.allgather(x, "rows"))(jnp.ones((n, 2))),
            "HALAY_EMISMATCH", "do not have as many rows",
        )  # fmt: skip
        same(call(lambda x: hvd.allreduce(x, op=hvd.Sum))(jnp.ones(2)), jnp.full(2, float(size)))


def test_differences_are_told_on_all_ranks(job):
    job(2, rank_differences)


def rank_wrong_arguments():
    size = hvd.size()
    ones = jnp.ones((size + 1, 2))
    for call, error, words in [
        (lambda: hvd.allreduce("text"), TypeError, "needs an array, not str: .*numeric"),
        (lambda: hvd.allreduce(np.ones(2, ">f4")), TypeError, "needs an array, not ndarray: "),
        (lambda: hvd.allreduce(ones, process_set=0), TypeError, "process_set=0 is none"),
        (lambda: hvd.allreduce(jnp.ones(2, jnp.float8_e4m3fn)), TypeError, "float8"),
        (lambda: hvd.allreduce(ones, op=17), ValueError, "op=17"),
        (lambda: hvd.allreduce(ones, op=hvd.Adasum), NotImplementedError, "torch and Tensor"),
        (lambda: hvd.allreduce(ones > 0, op=hvd.Sum), TypeError, "bool takes op"),
        (lambda: hvd.allreduce(ones + 1j, op=hvd.Min), TypeError, "complex"),
        (lambda: hvd.allreduce(jnp.arange(2), prescale_factor=2.0), TypeError, "floating"),
        (lambda: hvd.allgather(jnp.float32(1)), ValueError, "scalar has no rows"),
        (lambda: hvd.alltoall(ones), ValueError, "dealt out evenly"),
        (lambda: hvd.reducescatter(ones), ValueError, "dealt out evenly"),
        (lambda: hvd.broadcast(ones, size), ValueError, "root_rank"),
        (lambda: hvd.broadcast(ones, 0.5), TypeError, "root_rank must be an integer, not 0.5"),
        (lambda: hvd.grouped_allreduce([]), ValueError, "at least one"),
        (lambda: hvd.grouped_allreduce([ones, jnp.arange(2)]), TypeError, "different operations"),
        (lambda: hvd.allreduce(ones, name="x" * 300), ValueError, "at most"),
        (lambda: jax.jit(lambda: hvd.barrier())(), RuntimeError, "inside jax.jit"),
        (lambda: jax.jit(lambda: hvd.broadcast_object(1))(), RuntimeError, "inside jax.jit"),
    ]:
        with pytest.raises(error, match=words):
            call()

    def twice(x):
        return hvd.allreduce(x, name="same") + hvd.allreduce(x + 1, name="same")

    with pytest.raises(ValueError, match="stands twice in one program"):
        jax.jit(twice)(ones)

    # A function that is traced once and called twice, so XLA may run both at the same time.
    inner = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
    try:
        found = jax.block_until_ready(jax.jit(lambda x: inner(x) * inner(2 * x))(ones))
        assert float(found[0, 0]) == 2 * size * size
    except Exception as error:
        assert "two calls of one name at once" in str(error)
    hvd.barrier()


def test_wrong_arguments(job):
    job(2, rank_wrong_arguments)


def rank_after_shutdown():
    program = jax.jit(lambda x: hvd.allreduce(x, name="life", op=hvd.Sum))
    size = hvd.size()
    for _ in range(3):
        assert float(program(jnp.float32(1))) == size
        hvd.shutdown()
        fails(lambda: program(jnp.float32(1)), "HALAY_ESTATE", "life", "shut down")
        with pytest.raises(hvd.NotInitialized):
            hvd.allreduce(jnp.float32(1))
        hvd.init()  # the program that was compiled before serves again


def test_a_program_after_shutdown(job):
    job(2, rank_after_shutdown)


def rank_alone_in_it():
    """Each rank calls what the other never does; HALAY_DEADLINE is short."""
    rank = hvd.rank()
    many = jax.jit(lambda x: [hvd.allreduce(x, name=f"alone.{rank}.{i}") for i in range(5)])
    fails(lambda: many(jnp.ones(2)), "HALAY_ETIMEOUT", "jax.allreduce.alone.", "not submitted by")


def test_a_call_of_one_rank_alone_ends_by_the_deadline(job):
    job(2, rank_alone_in_it, env={"HALAY_DEADLINE": "10", "HALAY_START_DEADLINE": "120"})


def rank_both():
    import torch

    size, rank = hvd.size(), hvd.rank()
    program = jax.jit(lambda x: [hvd.allreduce(x + i, "shared", op=hvd.Sum) for i in (0,)])
    for times in range(20):
        handle = halay.torch.allreduce_async(
            torch.full((3,), float(rank)), name="shared", op=hvd.Sum
        )
        (found,) = program(jnp.full(3, float(times)))
        assert halay.torch.synchronize(handle).tolist() == [sum(range(size))] * 3
        assert found.tolist() == [size * times] * 3


def test_jax_and_torch_in_one_process(job):
    job(2, rank_both)


# ---------------------------------------------------------------------------- other processes


DEVICES = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import halay.jax as hvd
hvd.init()
def refused(call):
    try:
        jax.block_until_ready(call())
    except NotImplementedError as error:
        assert "'named'" in str(error) and "one device a process" in str(error), error
        assert "docs/jax_collectives.md" in str(error), error
    else:
        raise SystemExit("not refused")
one = lambda x: hvd.allreduce(x, name="named")
assert jax.jit(one)(jnp.ones(2)).tolist() == [1, 1]
refused(lambda: jax.pmap(one)(jnp.ones((2, 3))))
alone = NamedSharding(Mesh(jax.devices()[:1], ("d",)), P("d"))
assert jax.jit(one)(jax.device_put(jnp.ones(2), alone)).tolist() == [1, 1]
where = NamedSharding(Mesh(jax.devices(), ("d",)), P("d"))
refused(lambda: jax.jit(one)(jax.device_put(jnp.ones(4), where)))
print("refused")
"""


def test_several_devices_are_refused_by_name():
    status, text = halayrun(1, [sys.executable, "-c", DEVICES])
    assert status == 0 and "refused" in text, text


UNLOOKED = """
import jax, jax.numpy as jnp
import halay.jax as hvd
hvd.init()
ones = lambda i, a: hvd.allreduce(jnp.cos(a @ a) * 0 + 1)
program = jax.jit(lambda a: jax.lax.fori_loop(0, 20, ones, a))
results = [program(jnp.ones((300, 300))) for _ in range(20)]
if hvd.rank() == 0:
    assert float(results[-1].sum()) == 90000
"""


def test_the_job_is_not_left_while_programs_run():
    status, text = halayrun(2, [sys.executable, "-c", UNLOOKED])
    assert status == 0, text


INITIALIZE = """
import jax
import halay.jax as hvd
hvd.distributed.initialize()
assert (jax.process_index(), jax.process_count()) == (hvd.rank(), hvd.size())
assert jax.device_count() == hvd.size() and jax.local_device_count() == 1
import jax.numpy as jnp
assert float(hvd.allreduce(jnp.float32(hvd.rank()), op=hvd.Sum)) == sum(range(hvd.size()))
hvd.distributed.shutdown()
"""


def test_distributed_initialize():
    status, text = halayrun(2, [sys.executable, "-c", INITIALIZE])
    assert status == 0, text


def python(code: str, **more: str) -> str:
    env = environment(more)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_of_torch_brings_no_jax():
    found = python(
        "import sys, halay.torch; print([m for m in ('jax', 'keras') if m in sys.modules])"
    )
    assert found.strip() == "[]"


def test_import_costs_little_beyond_jax():
    code = """
import jax, jax.extend.core, jax.interpreters.mlir, jax.interpreters.batching
import resource
def used():
    found = resource.getrusage(resource.RUSAGE_SELF)
    return found.ru_utime + found.ru_stime
begin = used()
import halay.jax
print(used() - begin)
"""
    assert min(float(python(code)) for _ in range(3)) < 0.05


OLD = "0.5.3"


@pytest.mark.long
def test_the_same_binary_under_an_old_jaxlib(tmp_path):
    python_ = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    needed = [f"jax=={OLD}", f"jaxlib=={OLD}", "numpy<2.3", "cffi"]
    subprocess.run([python_, "-m", "pip", "install", "-q", *needed], check=True)
    status, text = halayrun(2, [str(python_), str(HERE / "jax_any.py")])
    assert status == 0 and text.count(f"jax {OLD} well") == 2, text
    status, text = halayrun(2, [sys.executable, str(HERE / "jax_any.py")])
    assert status == 0 and text.count(f"jax {jax.__version__} well") == 2, text


def test_the_declarations_are_those_of_the_installed_jaxlib(tmp_path):
    from jax import ffi

    program = tmp_path / "abi.c"
    program.write_text((HERE / "xla_abi.c").read_text())
    include = ["-I", ffi.include_dir(), "-I", str(SOURCE / "bindings" / "xla")]
    command = ["gcc", "-std=c11", *include, "-c", str(program), "-o", str(tmp_path / "abi.o")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wrong = (
        (SOURCE / "bindings" / "xla" / "ffi.h").read_text().replace("int64_t rank;", "int rank;")
    )
    (tmp_path / "ffi.h").write_text(wrong.replace("int64_t *dims;", ""))
    done = subprocess.run([command[0], "-I", str(tmp_path), *command[1:]], capture_output=True)
    assert done.returncode != 0
