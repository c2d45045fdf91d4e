# SPDX-License-Identifier: Apache-2.0
"""Who a rank is under each launcher, without an init method, and what other programs are told."""

import shutil
import sys

import pytest
from conftest import HALAYRUN, HERE, environment, run

pytestmark = pytest.mark.sampled

RANK = [sys.executable, str(HERE / "start_rank.py")]


LAUNCHERS = [
    ("halayrun", [str(HALAYRUN), "-np", "2"]),
    ("mpirun", ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]),
]


@pytest.mark.parametrize(("name", "start"), LAUNCHERS)
def test_no_init_method(name, start):
    if shutil.which(start[0]) is None:
        pytest.skip(f"no {name} here")
    status, text = run([*start, *RANK], 150, environment({}))
    assert status == 0 and text.count("well") == 2, text


def test_a_port_for_later():
    """The kernel gives it to no connection meanwhile: on a busy machine it did."""
    from halay import _variables

    lent = range(_variables._first_lent(), 65536)
    assert all(_variables.free_port(host) not in lent for host in ("", "127.0.0.1") * 20)


FOREIGN = [
    {"WORLD_SIZE": "2"},
    {"RANK": "0", "WORLD_SIZE": "2"},  # right for one of the two
    pytest.param({"RANK": "0"}, marks=pytest.mark.long),
    pytest.param({"RANK": "1", "WORLD_SIZE": "5"}, marks=pytest.mark.long),
]


@pytest.mark.parametrize("variables", FOREIGN)
def test_started_by_the_program_itself(tmp_path, variables):
    """Variables that are not what torch is told are not those of a launcher: as Lightning's own
    start leaves them, a job of Kubernetes that spawns, or torch's own tests."""
    command = [sys.executable, str(HERE / "spawned.py"), str(tmp_path), "2"]
    status, text = run(command, 150, environment(variables))
    assert status == 0 and "well" in text, text
