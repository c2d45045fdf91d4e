# SPDX-License-Identifier: Apache-2.0
"""Plain processes, without a launcher, that meet in a store of torch: a file that all of them see,
or host:port, where rank 0 listens. Each is started with its rank and the number of ranks:

python examples/torch_store.py 0 2 /tmp/store & python examples/torch_store.py 1 2 /tmp/store
"""

import sys

import torch
from torch.distributed import FileStore, TCPStore

import halay.torch as hvd

rank, size, place = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if ":" in place:
    host, port = place.rsplit(":", 1)
    store = TCPStore(host, int(port), size, is_master=rank == 0)
else:
    store = FileStore(place, size)


def allgather(own: bytes) -> list[bytes]:
    """Once a store: another init() needs keys of its own."""
    store.set(f"halay/{rank}", own)
    return [store.get(f"halay/{one}") for one in range(size)]


hvd.init(allgather=allgather, rank=rank, size=size)
total = hvd.allreduce(torch.arange(4.0) + rank, op=hvd.Sum)
print(f"rank {hvd.rank()} of {hvd.size()}: {total.tolist()}", flush=True)
hvd.shutdown()
