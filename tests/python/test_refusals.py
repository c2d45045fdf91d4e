# SPDX-License-Identifier: Apache-2.0
"""What the library refuses at once has its reason in the exception, not only on standard error."""

import re
import sys
from pathlib import Path

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
    lost = "it (halay_comm_shrink; in Python halay.distributed.shrink() or halayrun --min-np)"
    text = str(verdict_error(lib.HALAY_EPEER, lost))
    assert text == "it (halay.distributed.shrink() or halayrun --min-np)"


def test_names_of_the_program_stay():
    own = "tensor 'allreduce.halay_allreduce' of /home/u/halay_barrier/train.py:3, halay_init.py:4"
    text = f"{own} (halay_reduce(), then halay_finalize())"
    expected = f"{own} (reduce(), then shutdown())"
    assert str(verdict_error(lib.HALAY_EINVAL, text)) == expected


def texts_of_the_library():
    """The literals of its sources in which a function stands, joined as the compiler does."""
    root = Path(__file__).parents[2]
    for folder in ("src", "boot", "transports", "keys", "proc"):
        for path in (root / folder).rglob("*.c"):
            for found in re.finditer(
                r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', path.read_text()
            ):
                text = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', found[0]))
                if " " in text and re.search(r"\bhalay_[a-z_]+\b", text):
                    yield path, text


def test_no_function_of_c_in_an_exception():
    found = list(texts_of_the_library())
    assert len(found) > 10
    for path, text in found:
        said = str(verdict_error(lib.HALAY_EINVAL, text))
        left = re.findall(r"\bhalay_[a-z_]+\b", said)
        # The last two are types of members that Python does not set.
        assert set(left) <= {"halay_config_t", "halay_stream_t"}, f"{path}: {said}"


OF_MANY = """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
import halay.distributed
import halay.torch as hvd
hvd.init()
dist.init_process_group("halay", init_method="halay://")
mesh = init_device_mesh("cpu", (1,))
whole = DTensor.from_local(torch.ones(3), mesh, [Replicate()])
calls = [
    lambda: hvd.broadcast_parameters({"w": whole}, 0),
    lambda: hvd.allreduce(whole),
    lambda: hvd.broadcast_(whole, 0),
]
for call in calls:
    try:
        call()
        print("taken")
    except (TypeError, ValueError, NotImplementedError) as refused:
        print(f"refused: {refused}", flush=True)
dist.destroy_process_group()
"""


def test_dtensors_are_refused_by_name():
    command = [str(HALAYRUN), "-np", "1", sys.executable, "-c", OF_MANY]
    status, output = run(command, 100, environment())
    assert status == 0 and "taken" not in output, output
    assert len(re.findall("refused: .*DTensor", output)) == 3, output


IN_A_HANDLER = """
import os
import signal
import threading
import time
import torch
import halay.torch as hvd
hvd.init()

def handler(*_):
    hvd.shutdown()

if hvd.rank() == 0:
    signal.signal(signal.SIGUSR1, handler)
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
    try:
        hvd.barrier()
    except RuntimeError as refused:
        print(f"refused: {refused}", flush=True)
else:
    time.sleep(2)
os._exit(0)
"""


def test_shutdown_in_a_handler():
    """While a call of the thread waits, which would wait for itself."""
    command = [str(HALAYRUN), "-np", "2", sys.executable, "-c", IN_A_HANDLER]
    status, output = run(command, 100, environment())
    assert status == 0, output
    assert "refused: shutdown() was called by a handler of a signal" in output, output
