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
