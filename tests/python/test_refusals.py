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
backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
for call in (backend.send, backend.recv):
    try:
        call([torch.ones(2)], dist.get_rank(), 0)
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
