# SPDX-License-Identifier: Apache-2.0
"""What the library refuses at once has its reason in the exception, not only on standard error."""

import sys

from conftest import HALAYRUN, environment, run

from halay._core import lib, verdict_error

TO_ITSELF = """
import torch
import torch.distributed as dist
import halay.distributed
dist.init_process_group("halay", init_method="halay://")
from halay._core import ffi, lib
group, rank = dist.group.WORLD, dist.get_rank()
data, request = ffi.new("float[2]"), ffi.new("halay_request_t **")
for call in (lib.halay_isend, lib.halay_irecv):
    try:
        group._job.must(call(data, 2, lib.HALAY_FLOAT32, rank, group._comm, request), group._comm)
    except halay.HalayError as refused:
        print(f"refused: {refused.verdict}", flush=True)
dist.destroy_process_group()
"""


def test_a_message_to_oneself():
    command = [str(HALAYRUN), "-np", "2", "--whole-lines", sys.executable, "-c", TO_ITSELF]
    status, output = run(command, 100, environment())
    assert status == 0, output
    for rank in range(2):
        for word in ("send to", "receive from"):
            said = f"{word} rank {rank}: it has to be another rank of 2, and this is {rank}"
            assert f"refused: rank {rank} of 2 on " in output and said in output, output


def test_texts_name_calls_of_python():
    text = str(verdict_error(lib.HALAY_EINVAL, "go on without it (halay_comm_shrink)"))
    assert text == "go on without it (halay.distributed.shrink())"
