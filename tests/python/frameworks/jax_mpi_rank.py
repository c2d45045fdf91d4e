# SPDX-License-Identifier: Apache-2.0
"""One process of test_jax_mpi.py: python jax_mpi_rank.py COORDINATOR CASE...

A stock JAX: what it needs of Halay is in the environment. Each case checks exact values.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

try:
    from jax import shard_map
except ImportError:
    from jax.experimental.shard_map import shard_map

if "TEST_PLACE" in os.environ:  # no launcher
    RANK, SIZE = map(int, os.environ["TEST_PLACE"].split())
else:
    RANK, SIZE = int(os.environ["PMIX_RANK"]), int(os.environ["WORLD_SIZE"])


def mesh(*shape: int, devices: list | None = None) -> Mesh:
    """Axes x, y, z over all devices, one a process."""
    found = np.array(jax.devices() if devices is None else devices)
    return Mesh(found.reshape(shape), ("x", "y", "z")[: len(shape)])


def spread(full: np.ndarray, over: Mesh, spec: P) -> jax.Array:
    return jax.make_array_from_callback(
        full.shape, NamedSharding(over, spec), lambda index: full[index]
    )


def check(got: jax.Array, wanted: np.ndarray) -> None:
    assert got.shape == wanted.shape and got.dtype == wanted.dtype, (got.aval, wanted.dtype)
    for shard in got.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), wanted[shard.index])


def apply(function, full: np.ndarray, over: Mesh, taken: P, given: P, dtype=None) -> jax.Array:
    """function on each device's part, which it takes and gives along these axes."""
    mapped = shard_map(function, mesh=over, in_specs=taken, out_specs=given)
    return jax.jit(mapped)(spread(full if dtype is None else full.astype(dtype), over, taken))


def numbers(*shape: int) -> np.ndarray:
    """Small integers: their sums are exact in every type."""
    return (np.arange(int(np.prod(shape))) * 7 % 5 + 1).reshape(shape)


def types() -> None:
    line, full = mesh(SIZE), numbers(SIZE, 3)
    summed = np.broadcast_to(full.sum(0, keepdims=True), (1, 3))
    names = "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float32 float64 complex64"
    for dtype in [*(np.dtype(n) for n in [*names.split(), "complex128"]), jnp.dtype("bfloat16")]:
        factor = 1 + 2j if np.issubdtype(dtype, np.complexfloating) else 1
        at = (full * factor).astype(dtype)
        psum = apply(lambda a: jax.lax.psum(a, "x"), at, line, P("x"), P())
        check(psum, (summed * factor).astype(dtype))
        if factor == 1:
            highest = apply(lambda a: jax.lax.pmax(a, "x"), at, line, P("x"), P())
            check(highest, full.max(0, keepdims=True).astype(dtype))
        moved = apply(turn, at, line, P("x"), P("x"))
        check(moved, np.roll(at, 1, axis=0))
    for flags in ([r == 0 for r in range(SIZE)], [True] * SIZE, [False] * SIZE):
        at = np.array(flags)
        some = apply(lambda a: jax.lax.pmax(a, "x"), at, line, P("x"), P())
        check(some, np.array([any(flags)]))


def turn(part: jax.Array) -> jax.Array:
    """To the next device of the line."""
    return jax.lax.ppermute(part, "x", [(r, (r + 1) % SIZE) for r in range(SIZE)])


def collectives() -> None:
    line = mesh(SIZE)
    for each in (1, 3, 5000):
        full = numbers(SIZE, SIZE * each).astype(np.float32)
        total = full.sum(0, keepdims=True)
        psum = apply(lambda a: jax.lax.psum(a, "x"), full, line, P("x"), P())
        check(psum, total)
        scattered = apply(
            lambda a: jax.lax.psum_scatter(a, "x", scatter_dimension=1, tiled=True),
            full, line, P("x"), P(None, "x"),
        )  # fmt: skip
        check(scattered, total)
        swapped = apply(
            lambda a: jax.lax.all_to_all(a, "x", split_axis=1, concat_axis=0, tiled=True),
            full, line, P("x"), P(None, "x"),
        )  # fmt: skip
        check(swapped, full)
        gathered = apply(
            lambda a: jax.lax.all_gather(a, "x", axis=0, tiled=True)[None],
            full, line, P("x"), P("x"),
        )  # fmt: skip
        check(gathered, np.broadcast_to(full, (SIZE, *full.shape)))
        # Nobody sends to rank 0, which gets zeros; the last one sends to nobody.
        onward = apply(
            lambda a: jax.lax.ppermute(a, "x", [(r, r + 1) for r in range(SIZE - 1)]),
            full, line, P("x"), P("x"),
        )  # fmt: skip
        check(onward, np.concatenate([np.zeros_like(full[:1]), full[:-1]]))
    large = numbers(SIZE, 1 << 20).astype(np.float32)
    check(apply(lambda a: jax.lax.psum(a, "x"), large, line, P("x"), P()), large.sum(0)[None])


def again() -> None:
    """The same program, many times, with other numbers; and the calls in flight at once."""
    line = mesh(SIZE)
    mapped = shard_map(lambda a: jax.lax.psum(a, "x"), mesh=line, in_specs=P("x"), out_specs=P())
    summed = jax.jit(mapped)
    results = [summed(spread(numbers(SIZE, 256) + i, line, P("x"))) for i in range(200)]
    for i, result in enumerate(results):
        check(result, (numbers(SIZE, 256) + i).sum(0)[None])


def grids() -> list[Mesh]:
    return [mesh(2, SIZE // 2), mesh(SIZE // 2, 2)] if SIZE > 2 else [mesh(1, 2), mesh(2, 1)]


def axes() -> None:
    """Communicators of rows, of columns, and of all."""
    for grid in grids():
        rows, columns = grid.devices.shape
        full = numbers(4 * rows, 4 * columns).astype(np.float64)
        blocks = full.reshape(rows, 4, columns, 4)
        both = P("x", "y")
        for names, kept in ((("x",), P(None, "y")), (("y",), P("x")), (("x", "y"), P())):
            wanted = blocks
            for name in names:
                wanted = wanted.sum("x y".index(name), keepdims=True)
            psum = apply(lambda a, n=names: jax.lax.psum(a, n), full, grid, both, kept)
            a, b, c, d = wanted.shape
            check(psum, wanted.reshape(a * b, c * d))
        scattered = apply(
            lambda a: jax.lax.psum_scatter(a, "x", scatter_dimension=0, tiled=True),
            full, grid, both, both,
        )  # fmt: skip
        check(scattered, blocks.sum(0).reshape(4, 4 * columns))
        gathered = apply(
            lambda a: jax.lax.all_gather(a, "y", axis=1, tiled=True)[:, None],
            full, grid, both, P("x", "y"),
        )  # fmt: skip
        check(gathered, np.broadcast_to(full[:, None], (4 * rows, columns, 4 * columns)))


def partitioned() -> None:
    """jit over two axes, batch by x and weights by y: XLA makes the collectives."""
    grid, rng = grids()[0], np.random.default_rng(1)
    batch, width = 8, 16
    given = [rng.standard_normal(shape) for shape in ((batch, 6), (6, width), (width, 4))]

    def loss(weights, inputs):
        return jnp.mean((jnp.tanh(inputs @ weights[0]) @ weights[1] - 1) ** 2)

    def step(weights, inputs):
        value, slopes = jax.value_and_grad(loss)(weights, inputs)
        return [w - 0.1 * s for w, s in zip(weights, slopes)], value

    def train(weights, inputs, step):
        losses = []
        for _ in range(5):
            weights, value = step(weights, inputs)
            losses.append(value)
        return weights, losses

    inputs = spread(given[0], grid, P("x"))
    weights = [spread(given[1], grid, P(None, "y")), spread(given[2], grid, P("y"))]
    spreads = ([w.sharding for w in weights], NamedSharding(grid, P()))
    got, losses = train(weights, inputs, jax.jit(step, out_shardings=spreads))
    wanted, alone = train(given[1:], given[0], jax.jit(step))
    np.testing.assert_allclose([float(x) for x in losses], [float(x) for x in alone], rtol=1e-12)
    for a, b in zip(got, wanted):
        for shard in a.addressable_shards:
            np.testing.assert_allclose(shard.data, np.asarray(b)[shard.index], rtol=1e-12)


def threads() -> None:
    """Communicators that are first made in a thread of XLA's pool, or in one of Python's."""
    for grid in grids():

        def heavy(part):
            """More work than runs in the caller's own thread."""
            parts = [jnp.sin(part * k) @ jnp.cos(part * k).T for k in range(1, 24)]
            low = sum(jax.lax.psum(p, "x") for p in parts[::2])
            high = sum(jax.lax.psum(p, "y") for p in parts[1::2])
            return jax.lax.psum(low + high, ("x", "y"))

        rows, columns = grid.devices.shape
        full = np.random.default_rng(3).standard_normal((64 * rows, 64 * columns))
        result = []

        def call(grid=grid, full=full, result=result):
            result.append(apply(heavy, full, grid, P("x", "y"), P()))
            jax.block_until_ready(result[0])

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        part = np.zeros((64, 64))
        blocks = full.reshape(rows, 64, columns, 64).transpose(0, 2, 1, 3)
        for k in range(1, 24):
            products = np.sin(blocks * k) @ np.cos(blocks * k).transpose(0, 1, 3, 2)
            part += products.sum((0, 1)) * (rows if k % 2 else columns)
        for shard in result[0].addressable_shards:
            np.testing.assert_allclose(shard.data, part, rtol=1e-9, atol=1e-9)


def half() -> None:
    """XLA's own MPI code does not know float16: its error, or the right sum."""
    try:
        types_of_half = apply(
            lambda a: jax.lax.psum(a, "x"), numbers(SIZE, 3).astype(np.float16), mesh(SIZE),
            P("x"), P(),
        )  # fmt: skip
        check(types_of_half, numbers(SIZE, 3).sum(0)[None].astype(np.float16))
    except Exception as error:
        assert "Unsupported primitive type" in str(error), error


def unlooked() -> None:
    """The process ends while its last programs run; rank 0, which looks, gets the right number."""
    line = mesh(SIZE)

    def often(part):
        mean = lambda _, a: a * jax.lax.psum(jnp.cos(a @ a) * 0 + 1, "x") / SIZE  # noqa: E731
        return jax.lax.psum(jax.lax.fori_loop(0, 20, mean, part), "x")

    mapped = jax.jit(shard_map(often, mesh=line, in_specs=P("x"), out_specs=P()))
    full = np.ones((100 * SIZE, 100))
    results = [mapped(spread(full, line, P("x"))) for _ in range(20)]
    if RANK == 0:
        check(results[-1], SIZE * np.ones((100, 100)))


# ------------------------------------------------------------------ with another user of Halay


def torch_first() -> None:
    import torch

    import halay.torch as hvd

    hvd.init()
    assert total(mesh(SIZE)) == SIZE
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [SIZE] * 3
    axes()
    hvd.shutdown()
    assert total(mesh(SIZE)) == SIZE


def torch_later() -> None:
    import torch

    import halay.torch as hvd

    assert total(mesh(SIZE)) == SIZE
    for _ in range(2):
        hvd.init()
        assert hvd.size() == SIZE and hvd.rank() == RANK
        assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [SIZE] * 3
        assert total(mesh(SIZE)) == SIZE
        hvd.shutdown()


# ------------------------------------------------------------------ what goes wrong


def total(over: Mesh, axis: str = "x") -> float:
    full, spec = np.ones(over.devices.shape), P(*over.axis_names)
    kept = P(*(name if name != axis else None for name in over.axis_names))
    result = apply(lambda a: jax.lax.psum(a, axis), full, over, spec, kept)
    return float(np.asarray(result.addressable_shards[0].data).sum())


def fails(call, *words: str, within: float = 15) -> None:
    """call() raises an error with these words."""
    begun = time.monotonic()
    try:
        value = call()
    except Exception as error:
        took, text = time.monotonic() - begun, str(error)
    else:
        raise AssertionError(f"it gave {value}")
    print(f"rank {RANK}, {took:.1f} s: {text}", flush=True)
    assert took < within, took
    assert all(word in text for word in words), text


def dies() -> None:
    assert total(mesh(SIZE)) == SIZE
    if RANK == 1:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    fails(lambda: total(mesh(SIZE)), "rank 1 of", "is lost")


def raises() -> None:
    """JAX keeps rank 1 at its end until the others have come; they hear of it at once."""
    assert total(mesh(SIZE)) == SIZE
    if RANK == 1:
        raise ValueError("of rank 1")
    begin = time.monotonic()
    fails(lambda: total(mesh(SIZE)), "rank 1 of")
    assert time.monotonic() - begin < 30


def sleeps() -> None:
    assert total(mesh(SIZE)) == SIZE
    if RANK != 1:
        fails(lambda: total(mesh(SIZE)), "rank 1 of", "has not made this call")


def reversed_devices() -> None:
    devices = jax.devices()
    fails(lambda: total(mesh(SIZE, devices=devices if RANK else devices[::-1])), "different sets")


def other_axis() -> None:
    fails(lambda: total(mesh(2, 2), "y" if RANK == 1 else "x"), "different sets")


def part_of_the_job() -> None:
    """Two processes use a mesh of two devices; the others are not told."""
    some = mesh(2, devices=jax.devices()[:2])
    if RANK < 2:
        fails(lambda: total(some), "has not made this call")


def alone() -> None:
    """Each process is a job of its own to Halay, and one of several to JAX."""
    fails(lambda: total(mesh(SIZE)), "no launcher has told Halay")


def no_job() -> None:
    """MPI_Init fails, at whose result JAX does not look: each collective says why."""
    for _ in range(2):
        fails(lambda: total(mesh(SIZE)), "HALAY_DEBUG is 'abacus'")


def many_devices() -> None:
    fails(lambda: total(mesh(2 * SIZE)), "one device")


def meet(others: int) -> None:
    """Until so many have come here: who ends sooner is lost to the others."""
    folder = Path(os.environ["TEST_FOLDER"])
    (folder / str(RANK)).touch()
    late = time.monotonic() + 60
    while len(list(folder.iterdir())) < others and time.monotonic() < late:
        time.sleep(0.02)


def main() -> None:
    coordinator, *cases = sys.argv[1:]
    jax.config.update("jax_enable_x64", True)
    jax.distributed.initialize(coordinator, SIZE, RANK)
    for case in cases:
        globals()[case]()
        print(f"rank {RANK}: {case}", flush=True)
    if cases[-1] in FAULTS:
        meet(SIZE - (cases[-1] == "dies"))
        os._exit(0)  # at its own end JAX would wait for processes that have failed


FAULTS = ("dies", "sleeps", "reversed_devices", "other_axis", "part_of_the_job", "alone",
          "no_job", "many_devices")  # fmt: skip

if __name__ == "__main__":
    main()
