# SPDX-License-Identifier: Apache-2.0
"""horovod.run(): a function on all ranks of a job on this machine."""

from __future__ import annotations

import io
import os
import re
import runpy
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import HALAYRUN, environment

from halay.horovod import SHIM, command, launch

pytestmark = pytest.mark.sampled


@pytest.fixture(autouse=True)
def built(monkeypatch, tmp_path):
    """The build's halayrun; the folder of a run is made where it can be seen."""
    monkeypatch.setenv("HALAYRUN", str(HALAYRUN))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def gather(offset, factor=1):
    import horovod.torch as hvd
    import torch

    hvd.init()
    found = hvd.allgather(torch.tensor([hvd.rank() * factor + offset])).tolist()
    return found if hvd.rank() == 0 else {"rank": hvd.rank()}


def fail_on_rank_one():
    import horovod.torch as hvd

    hvd.init()
    if hvd.rank() == 1:
        raise LookupError("nothing to be found")
    time.sleep(120)


def leave_without_a_word():
    import os

    os._exit(3 if os.environ["HOROVOD_RANK"] == "1" else 0)


def fail_in_each_meeting():
    import os

    import horovod.torch as hvd
    import torch

    hvd.init()
    state = hvd.elastic.TorchState()

    @hvd.elastic.run
    def train(state):
        hvd.allreduce(torch.ones(1))
        if hvd.rank() == 1:
            os._exit(7)
        while True:
            hvd.allreduce(torch.ones(1))
            state.commit()

    train(state)


def leave_well():
    import os

    if os.environ["HOROVOD_RANK"] == "1":
        os._exit(0)


def say(word):
    print(word)


def say_in_pieces(count):
    import os

    for n in range(count):
        for piece in ("line", f" {n}", " of", " " + os.environ["HOROVOD_RANK"], "\n"):
            os.write(1, piece.encode())


def say_half_a_line(path):
    """Whether it was seen while it was no whole one."""
    import os
    import time

    os.write(1, b"50 %")
    until = time.monotonic() + 60
    while not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.01)
    return os.path.exists(path)


def unpicklable():
    import threading

    return threading.Lock()


def test_results_by_rank(tmp_path):
    assert launch.run(gather, (5,), {"factor": 2}, num_proc=2) == [[5, 7], {"rank": 1}]
    assert list(tmp_path.iterdir()) == []


def test_a_function_of_no_module():
    pytest.importorskip("cloudpickle")
    word = "closure"
    with pytest.warns(DeprecationWarning, match="np"):
        assert launch.run(lambda times: word * times, (2,), np=1) == [word * 2]


def test_a_rank_that_raises(tmp_path):
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="one or more processes exited") as caught:
        launch.run(fail_on_rank_one, num_proc=2)
    assert "LookupError: nothing to be found" in str(caught.value)
    assert time.monotonic() - start < 60
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_exits():
    reason = r"halayrun ended with 3: rank 1 \(pid \d+ on .*\) exited with status 3$"
    with pytest.raises(RuntimeError, match=reason):
        launch.run(leave_without_a_word, num_proc=2)


def test_the_reset_limit_is_the_reason():
    """What Horovod's test_reset_limit asks for, with its own name for the text."""
    texts = runpy.run_path(str(Path(SHIM) / "horovod/runner/elastic/constants.py"))
    text = texts["RESET_LIMIT_EXCEEDED_MESSAGE"].format(1)
    with pytest.raises(RuntimeError, match="exited with non-zero.*ended with 7: ") as caught:
        launch.run(
            fail_in_each_meeting,
            num_proc=2, min_num_proc=1, reset_limit=1, cooldown_range=[0.05, 0.1],
        )  # fmt: skip
    assert text in str(caught.value)
    assert "exited with status 7" in str(caught.value)


def test_too_few_hosts_are_the_reason():
    """What Horovod's test_min_hosts_timeout asks for: the failure drops one of two hosts."""
    words = "-np 2 --min-num-proc 2 -H localhost:1,127.0.0.1:1 --elastic-timeout 1"
    script = 'case "$HALAY_JOB;" in *";slot=1;"*) exit 7;; esac; exec sleep 60'
    found = command.parse_args([*words.split(), "sh", "-c", script])
    with pytest.raises(RuntimeError, match="exited with non-zero") as caught:
        command.run_elastic(found)
    text = str(caught.value)
    assert re.search(r"ended with 7: process 1 \(.*\) exited with status 7", text), text
    assert "there have been too few ranks for 1 s (--elastic-timeout): 1 process" in text
    assert "must be 2 (--min-np)" in text


def test_a_result_that_cannot_be_sent():
    with pytest.raises(RuntimeError, match=r"cannot pickle"):
        launch.run(unpicklable, num_proc=1)


SRUN = """#!/bin/sh
# Two nodes of a test-bed that are this machine: srun's options, and then a program.
[ "$(sort -u "$SLURM_HOSTFILE" | xargs)" = "node1 node2" ] || exit 3
n=0
while :; do
    case $1 in -n*) n=${1#-n} ;; -*) ;; *) break ;; esac
    shift
done
unset SLURM_JOB_ID
exec "$HALAYRUN" --launcher local -np "$n" "$@"
"""


@pytest.fixture
def two_nodes(monkeypatch, tmp_path):
    """An allocation of two nodes, and a current directory that they share."""
    for name in [n for n in os.environ if n.startswith(("SLURM_", "PMIX_", "PMI_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/srun").write_text(SRUN)
    (tmp_path / "bin/srun").chmod(0o755)
    (tmp_path / "shared").mkdir()
    monkeypatch.chdir(tmp_path / "shared")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    monkeypatch.setenv("SLURM_NNODES", "2")
    return tmp_path / "shared"


def who(word):
    """Of a rank, before it has called init(): what its launcher says."""
    import os

    return word + os.environ["HOROVOD_RANK"]


def test_on_several_hosts(two_nodes):
    assert launch.run(who, ("n",), num_proc=3, hosts="node1:1,node2:2") == ["n0", "n1", "n2"]
    hosts = two_nodes / "hosts"
    hosts.write_text("node1 slots=1\nnode2 slots=1\n")
    assert launch.run(who, ("n",), num_proc=2, hostfile=str(hosts)) == ["n0", "n1"]
    assert list(two_nodes.iterdir()) == [hosts]


def test_a_folder_that_is_not_shared(tmp_path):
    gone = tmp_path / "gone"
    done = subprocess.run(
        [sys.executable, "-m", "halay.horovod.task", str(gone)],
        env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"the folder {gone} of horovod.run() is not on" in done.stderr
    assert done.stderr.count("\n") == 1


def test_no_folder_can_be_made(monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    with pytest.raises(OSError, match="horovod.run.. cannot make a folder.*set TMPDIR"):
        launch.run(gather, (1,))


def test_a_rank_that_ends_before_it_returns():
    with pytest.raises(RuntimeError, match="rank 1 has ended with status 0 before"):
        launch.run(leave_well, num_proc=2)


NOTEBOOK = """
import io, sys
sys.stdout = io.StringIO()  # as a notebook's, whose output is no file of the system

def cell(word):
    print("from", word)
    return helper(word)

def helper(word):
    return word.upper()

from halay.horovod.launch import run
found = run(cell, ("a",), num_proc=2)
shown = sys.stdout.getvalue()
sys.stdout = sys.__stdout__
print(found, repr(shown))
"""


def test_in_a_notebook():
    """Functions of __main__, which is no file, and output that is none of the system's."""
    pytest.importorskip("cloudpickle")
    done = subprocess.run(
        [sys.executable, "-"], input=NOTEBOOK, env=environment({"HALAYRUN": str(HALAYRUN)}),
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "['A', 'A'] 'from a\\nfrom a\\n'\n", done.stdout + done.stderr


def test_lines_of_ranks_stay_whole(capsys):
    launch.run(say_in_pieces, (300,), num_proc=3)
    expected = [f"line {n} of {rank}" for rank in range(3) for n in range(300)]
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(expected)


@pytest.mark.parametrize("same", [False, True])
def test_half_a_line_is_shown(monkeypatch, tmp_path, same):
    """A progress bar, where standard error is a thing of its own, and where it is not."""
    path = tmp_path / "seen"

    class Cell(io.StringIO):
        def write(self, text):
            if "50 %" in text:
                path.touch()
                raise ValueError("a cell that takes no more costs the job nothing")
            return super().write(text)

    cell = Cell()
    monkeypatch.setattr(sys, "stdout", cell)
    if same:
        monkeypatch.setattr(sys, "stderr", cell)
    assert launch.run(say_half_a_line, (str(path),)) == [True]


def test_a_function_that_only_cloudpickle_takes(monkeypatch):
    monkeypatch.setattr(launch, "_pickler", launch.pickle)
    with pytest.raises(ValueError, match="needs cloudpickle.*pip install cloudpickle"):
        launch.run(lambda: 1)


def test_what_ranks_print_is_kept(tmp_path):
    out = tmp_path / "out"
    assert launch.run(say, ("x",), num_proc=2, output_filename=str(out)) == [None, None]
    assert [(out / f"rank.{r}/stdout").read_text() for r in range(2)] == ["x\n", "x\n"]


def test_bad_arguments():
    for more in ({"num_proc": -1}, {"num_proc": 1, "min_num_proc": 2},
                 {"use_gloo": True, "use_mpi": True}, {"hosts": "a", "hostfile": "b"}):  # fmt: skip
        with pytest.raises(ValueError):
            launch.run(gather, (1,), **more)
    with pytest.raises(ValueError, match="runs a function, not None"):
        launch.run(None)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("num_proc", 2.0, "num_proc must be a whole number from 1 on, not '2.0'"),
        ("num_proc", True, "num_proc must be a whole number from 1 on, not 'True'"),
        ("start_timeout", -1, "start_timeout must be a whole number from 1 on"),
        ("ssh_port", 70000, "ssh_port must be a whole number from 1 to 65535"),
        ("hosts", ["localhost:2"], r"hosts must be a text, not \['localhost:2'\]"),
        ("hosts", "", "hosts must not be empty"),
        ("cooldown_range", 3, "cooldown_range must be two numbers of seconds, not 3"),
    ],
)
def test_what_makes_no_sense(name, value, text):
    with pytest.raises(ValueError, match=text):
        launch.run(who, ("x",), **{name: value})


def test_what_makes_sense_all_the_same():
    """A number that is a text, as of the environment, and one interface that is one."""
    assert launch.run(who, ("x",), num_proc="2", network_interfaces="lo") == ["x0", "x1"]


def test_elastic_options(monkeypatch):
    """horovodrun's options reach halayrun by its own names, and their variables the ranks."""
    calls = []

    def start(words, env, **_):
        assert words[1] == "--notes-fd"
        calls.append((words[3:], env))
        return 0

    monkeypatch.setattr(launch, "_run", start)
    monkeypatch.setattr(launch, "lines", list)
    options = "--min-num-proc 1 --max-np 4 -np 2 --host-discovery-script ./d --slots-per-host 3"
    options += " --elastic-timeout 60 --reset-limit 5 --blacklist-cooldown-range 1 2.5"
    options += " --log-level DEBUG --no-stall-check --gloo python train.py --verbose"
    found = command.parse_args(options.split())
    command.run_elastic(found)
    words, env = calls.pop()
    assert " ".join(words) == (
        "--launcher local --horovod -np 2 --min-np 1 --max-np 4 --host-discovery-script ./d "
        "--slots-per-host 3 --elastic-timeout 60 --reset-limit 5 "
        "--blacklist-cooldown-range 1.0 2.5 --blacklist hosts python train.py --verbose"
    )
    assert env["HOROVOD_LOG_LEVEL"] == "DEBUG" and env["HOROVOD_STALL_CHECK_DISABLE"] == "1"
    with pytest.raises(ValueError, match="--min-np"):
        command.run_elastic(command.parse_args(["-np", "1", "true"]))
    arguments = launch.Arguments()  # as programs fill them in themselves
    arguments.num_proc, arguments.hosts, arguments.command = 3, "a:2,b:2", ["p"]
    arguments.mpi_args, arguments.fusion_threshold_mb, arguments.nics = "-x", 1, {"eth0"}
    arguments.use_mpi, arguments.verbose = False, 2
    launch.launch(arguments)
    words, env = calls.pop()
    assert words == ["-H", "a:2,b:2", "--horovod", "-np", "3", "-v", "p"]
    assert env["HOROVOD_FUSION_THRESHOLD"] == "1048576" and env["HOROVOD_GLOO_IFACE"] == "eth0"
    arguments.nics = []
    launch.launch(arguments)
    assert "HOROVOD_GLOO_IFACE" not in calls.pop()[1]
    with pytest.raises(ValueError, match="neither a function nor a command"):
        launch.launch(launch.Arguments())


def test_no_halayrun(monkeypatch, tmp_path):
    monkeypatch.delenv("HALAYRUN")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(launch._programs, "find", lambda name: None)
    with pytest.raises(FileNotFoundError, match="HALAYRUN"):
        launch.find_halayrun()
