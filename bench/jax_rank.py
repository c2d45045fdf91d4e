# SPDX-License-Identifier: Apache-2.0
"""One process of bench/jax: psum of float32 in a stock JAX. Rank 0 prints a line psum BYTES MICROSECONDS for each size, the
slower process's mean of calls, each of which ends before the next begins."""

import argparse
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

try:
    from jax import shard_map
except ImportError:
    from jax.experimental.shard_map import shard_map


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at", required=True)
    parser.add_argument("--sizes", type=lambda text: [int(n) for n in text.split(",")], required=True)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMIX_RANK"])
    jax.distributed.initialize(args.at, 2, rank)
    mesh = Mesh(np.array(jax.devices()), ("x",))
    spread = NamedSharding(mesh, PartitionSpec("x"))

    def over(call):
        return jax.jit(shard_map(call, mesh=mesh, in_specs=PartitionSpec("x"), out_specs=PartitionSpec()))

    psum, slowest = over(lambda a: jax.lax.psum(a, "x")), over(lambda a: jax.lax.pmax(a, "x"))

    def timed(given, calls):
        jax.block_until_ready(psum(given))
        begin = time.perf_counter()
        for _ in range(calls):
            psum(given).block_until_ready()
        took = np.full(2, (time.perf_counter() - begin) / calls, np.float32)
        both = jax.make_array_from_callback((2,), spread, lambda at: took[at])
        return float(slowest(both).addressable_shards[0].data[0])

    for nbytes in args.sizes:
        count = nbytes // 4
        values = jnp.arange(2 * count, dtype=jnp.float32) % 7
        given = jax.make_array_from_callback((2 * count,), spread, lambda at: np.asarray(values)[at])
        wanted = np.asarray(values).reshape(2, count).sum(0)
        assert (np.asarray(psum(given).addressable_shards[0].data) == wanted).all(), "wrong data"
        calls = max(3, min(int(args.seconds / timed(given, 2)), 20000))
        took = timed(given, calls)
        if rank == 0:
            print("psum", nbytes, took * 1e6, flush=True)


main()
