#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a training job takes to start: from the start of `halayrun -np 2 python ...` until
hvd.init() has returned on both ranks, less what two Pythons that only import torch take beside
each other.

    python bench/training_startup.py [BUILD [ROUNDS]]     (build, 11)

Both in turns; each round is compared in itself, and which comes first changes. Needs halay.torch
to be found.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

RANKS = 2


def now():
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def rank(with_halay):
    """Prints when each stage was over."""
    import torch  # noqa: F401

    times = [now()]
    if with_halay:
        import halay.torch as hvd

        times.append(now())
        hvd.init()
        times.append(now())
    sys.stdout.write("over " + " ".join(map(str, times)) + "\n")  # one write: ranks share the pipe
    sys.stdout.flush()
    if with_halay:
        hvd.shutdown()


def run(commands):
    """Seconds from the start to the end of each stage, of the later rank."""
    begin = now()
    children = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True) for one in commands]
    texts = [child.communicate()[0] for child in children]
    assert not any(child.returncode for child in children), "a rank has failed"
    lines = [line.split()[1:] for text in texts for line in text.splitlines()]
    assert len(lines) == RANKS, texts
    return [max(float(line[i]) for line in lines) - begin for i in range(len(lines[0]))]


def main(build, rounds):
    own = [sys.executable, str(Path(__file__).resolve())]
    halayrun = str(Path(build) / "bin" / "halayrun")
    ways = [[[*own, "torch"]] * RANKS, [[halayrun, "-np", str(RANKS), *own, "halay"]]]
    torch, halay = [], []
    for number in range(-1, rounds):  # the first one brings the files into memory
        for way in (number % 2, 1 - number % 2):
            found = run(ways[way])
            if number >= 0:
                (halay if way else torch).append(found)
    beyond = [one[2] - other[0] for one, other in zip(halay, torch)]
    low, mid, high = statistics.quantiles(beyond, n=4)
    print(f"torch imported by two Pythons  {statistics.median(one[0] for one in torch):.3f} s")
    print(f"halayrun to after init         {statistics.median(one[2] for one in halay):.3f} s")
    print(f"beyond torch                   {mid:.3f} s (quartiles {low:.3f}, {high:.3f}), of it")
    for i, stage in ((1, "import halay.torch"), (2, "hvd.init()")):
        took = statistics.median(one[i] - one[i - 1] for one in halay)
        print(f"  {stage:28} {took:.3f} s")


if __name__ == "__main__":
    if sys.argv[1:] in (["torch"], ["halay"]):
        rank(sys.argv[1] == "halay")
    else:
        main(*(sys.argv[1:2] or ["build"]), *(map(int, sys.argv[2:3] or ["11"])))
