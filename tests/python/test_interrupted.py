# SPDX-License-Identifier: Apache-2.0
"""Handlers of signals run while a call waits; what they raise ends the call, on all ranks."""

import json
import re
import sys
from pathlib import Path

import pytest
from conftest import HALAYRUN, environment, run

PROGRAM = Path(__file__).with_name("interrupted.py")
SOON_S = 5.0  # 0.2 on a quiet machine; the call would end after a minute
ALL = ["hvd.allreduce", "hvd.allreduce_", "hvd.synchronize", "hvd.barrier", "hvd.broadcast_object"]
ALL += ["ha.allreduce", "ha.barrier"]
DIST = ["dist.all_reduce", "dist.wait", "dist.barrier", "dist.recv"]


def interrupted(folder, *calls):
    """Its output, and what ranks 0 and 1 have said of each call."""
    words = ["-np", "3", "--whole-lines", sys.executable, str(PROGRAM), str(folder), *calls]
    _, output = run([str(HALAYRUN), *words], 240, environment())
    said = [json.loads(line) for line in re.findall(r"^\{.*\}$", output, re.M)]
    return output, {(one["call"], one["rank"]): one for one in said}


def check(folder, *calls):
    output, said = interrupted(folder, *calls)
    for call in calls:
        first, second = said[call, 0], said[call, 1]
        assert first["how"] == "KeyboardInterrupt", output
        assert len(first["ran"]) == 1, "the handler that returns has not run, or ended the call"
        assert first["ran"][0] - first["sent"][0] < SOON_S, output
        assert first["at"] - first["sent"][1] < SOON_S, output
        assert re.search("rank 0 of 3 .*interrupted", second["how"]), output
        assert second["at"] - first["sent"][1] < SOON_S, output


@pytest.mark.sampled
@pytest.mark.parametrize("calls", [ALL, DIST], ids=["hvd, arrays", "dist"])
def test_a_signal_while_a_call_waits(tmp_path, calls):
    check(tmp_path, *calls)


def test_a_signal_while_init_waits(tmp_path):
    _, said = interrupted(tmp_path, "hvd.init")
    first = said["hvd.init", 0]
    assert first["how"] == "KeyboardInterrupt" and len(first["ran"]) == 1
    assert first["at"] - first["sent"][1] < SOON_S


def test_handlers_make_calls_and_raise_at_once():
    program = PROGRAM.with_name("handler_calls.py")
    command = [str(HALAYRUN), "-np", "2", "--whole-lines", sys.executable, str(program)]
    status, output = run(command, 100, environment())
    assert status == 0, output
    for rank in range(2):
        assert f"rank {rank}: [2.0] [3.0, 3.0, 3.0, 3.0]" in output, output
    assert "caught: by signal" in output, output
