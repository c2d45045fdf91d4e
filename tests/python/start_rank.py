# SPDX-License-Identifier: Apache-2.0
"""One of two ranks of a launcher, without the variables of torchrun's.

Prints "well" on each rank if init_process_group() finds the job without an init method, and the
variables are there exactly while something uses the job.
"""

import os
import subprocess
import sys

import torch
import torch.distributed as dist

import halay.arrays as ha
import halay.distributed  # noqa: F401
import halay.torch as hvd

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
CHILD = "import halay.arrays as ha; ha.init(); print('child', ha.rank(), ha.size())"
NONE = dict.fromkeys(NAMES)
for _name in NAMES:
    os.environ.pop(_name, None)


def values():
    return {name: os.environ.get(name) for name in NAMES}


def check(rank, size):
    """The variables are this job's, and torch finds a store by them."""
    found = values()
    assert [int(found[name]) for name in NAMES[:4]] == [rank, size, rank, size], found
    assert found["MASTER_ADDR"] and 0 < int(found["MASTER_PORT"]) < 65536, found


def use(backend, size):
    dist.init_process_group(backend)
    rank = dist.get_rank()
    check(rank, size)
    data = torch.ones(3)
    dist.all_reduce(data)
    assert data.tolist() == [size] * 3 and dist.get_world_size() == size
    dist.destroy_process_group()
    return rank


def main(size):
    rank = use("halay", size)
    assert values() == NONE
    assert use("halay", size) == rank
    for part in (hvd, ha):
        part.init()
        assert (part.rank(), part.size()) == (rank, size)
        check(rank, size)
        assert use("halay", size) == rank  # within the other
        check(rank, size)
        part.shutdown()
        assert values() == NONE, part
    hvd.init()
    assert use("gloo", size) == rank  # by the variables
    os.environ["MASTER_PORT"] = "1"  # the program's own from here on
    alone = dict(os.environ, HALAY_JOB="none")
    said = subprocess.run([sys.executable, "-c", CHILD], env=alone, capture_output=True, text=True)
    assert "child 0 1" in said.stdout, said
    hvd.shutdown()
    assert values() == {**NONE, "MASTER_PORT": "1"}
    del os.environ["MASTER_PORT"]
    os.environ["RANK"] = "7"  # of something else: left alone, and nothing is mixed with it
    ha.init()
    assert values() == {**NONE, "RANK": "7"}
    ha.shutdown()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main(2)
    print("well")
