# SPDX-License-Identifier: Apache-2.0
"""A rank of a training that chaos.py disturbs: chaos_train.py SECONDS SEED; its lines and exit
statuses are those of chaos_rank."""

from __future__ import annotations

import signal
import socket
import sys
import time

import torch

import halay.torch as hvd
from halay.errors import HalayError


def say(rank: int, text: str) -> None:
    """A line in one piece: several ranks write to one file."""
    sys.stdout.write(f"chaos: rank {rank}: {text}\n")
    sys.stdout.flush()


def fill(*_: object) -> None:
    """Memory, until the kernel kills the process; a bound for where it does not."""
    print(len([b"1" * (1 << 20) for _ in range(1024)]))


def main() -> int:
    signal.signal(signal.SIGUSR1, fill)
    seconds, seed = float(sys.argv[1]), int(sys.argv[2])
    begin = time.monotonic()
    rank = -1
    torch.set_num_threads(1)
    try:
        hvd.init()
        rank = hvd.rank()
        torch.manual_seed(seed)
        net = torch.nn.Sequential(
            torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1)
        )
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.01), named_parameters=net.named_parameters()
        )
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        say(rank, f"begins on {socket.gethostname()}")
        end, steps, go = time.monotonic() + seconds, 0, 1
        while go:
            begin = time.monotonic()
            optimizer.zero_grad()
            torch.autograd.backward(net(torch.randn(8, 64)).square().mean())
            optimizer.step()
            go = int(hvd.allreduce(torch.tensor([int(begin < end)]), op=hvd.Min, name="go"))
            steps += 1
        total = torch.cat([p.detach().flatten() for p in net.parameters()])
        least, most = hvd.allreduce(total, op=hvd.Min), hvd.allreduce(total, op=hvd.Max)
        if not torch.equal(least, most):
            say(rank, "the ranks' parameters differ")
            return 1
        hvd.shutdown()
    except HalayError as error:
        ms = 1e3 * (time.monotonic() - begin)
        text = " ".join(str(error).split())
        say(rank, f"told {error.code} after {ms:.0f} ms: {text}")
        return 4
    say(rank, f"well, {steps} calls")
    return 0


if __name__ == "__main__":
    sys.exit(main())
