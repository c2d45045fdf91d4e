# SPDX-License-Identifier: Apache-2.0
"""A rank of slurm_jax.sh: jax_rank.py stock|told. JAX's own collectives run over libhalay_mpi.

stock: JAX finds the processes itself. told: halay.jax.distributed tells it where they are, and
halay.jax reduces beside it.
"""

import os
import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

if sys.argv[1] == "told":
    import halay.jax as hvd

    hvd.distributed.initialize()
    assert (jax.process_index(), jax.process_count()) == (hvd.rank(), hvd.size())
else:
    jax.distributed.initialize()

rank, size = jax.process_index(), jax.process_count()
assert size > 1 and jax.device_count() == size and jax.local_device_count() == 1
total = sum(range(size))
whole = np.arange(size, dtype=np.float32)
spread = NamedSharding(Mesh(jax.devices(), ("x",)), PartitionSpec("x"))
array = jax.make_array_from_callback((size,), spread, lambda index: whole[index])
summed = jax.jit(jax.numpy.sum)(array)
assert float(summed.addressable_shards[0].data) == total
if sys.argv[1] == "told":
    assert float(hvd.allreduce(jax.numpy.float32(rank), op=hvd.Sum)) == total
    hvd.distributed.shutdown()
print(f"rank {rank} of {size} on {os.uname().nodename}: right", flush=True)
