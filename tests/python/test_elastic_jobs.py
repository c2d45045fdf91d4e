# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs under halayrun: ranks are killed, end, leave and join in mid-training."""

import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from conftest import HALAYRUN, HERE, SOURCE, end, environment, run
from elastic_events import check, commits_of, events_of
from elastic_job import ROWS, batch_of

pytestmark = pytest.mark.sampled


def train(folder, options, events, batches, timeout=180, **env):
    """What the processes have logged, by meeting and batch, and what halayrun has printed."""
    command = [str(HALAYRUN), *options.split(), sys.executable, str(HERE / "elastic_job.py")]
    command += [str(folder), json.dumps(events), str(batches)]
    status, text = run(command, timeout, environment(env))
    assert status == 0, f"exit status {status}\n{text}"
    return commits_of(folder), text


def losses(batches):
    """Of the same training, by one process and without Halay."""
    torch.manual_seed(1)
    layers = torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
    model = torch.nn.Sequential(*layers).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    found = []
    for number in range(batches):
        x, y = batch_of(number)
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).sum() / ROWS
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


def test_rank_0_is_killed_and_one_joins(tmp_path):
    events = [[3, 0, "kill"], [9, 0, "wait"]]
    commits, text = train(tmp_path, "-np 2 --min-np 1 --blacklist-cooldown-range 0.1 1", events, 20)
    assert check(commits, losses(20), text) == 2, text
    assert events_of(tmp_path) == ["event-3-kill", "event-9-wait"]
    sizes = [line["size"] for key in sorted(commits) for line in commits[key][:1]]
    assert sizes[0] == 2 and 1 in sizes and sizes[-1] == 2


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("what", ["kill", "exit", "raise", "leave"])
def test_one_event(tmp_path, what, rank):
    """Three ranks, of which one ends; the others go on without it."""
    options = "-np 3 --min-np 2 --blacklist-cooldown-range 100 100"
    commits, text = train(tmp_path, options, [[5, rank, what]], 16)
    assert check(commits, losses(16), text) == 2, text
    assert events_of(tmp_path) == [f"event-5-{what}"]
    if what == "leave":  # at the next commit, no step is lost, and nobody waits for its end
        first = min(key for key in commits if key[0])
        assert commits[first][0]["time"] < float((tmp_path / "lingers-5").read_text())
        batches = [batch for _, batch in sorted(commits)]
        assert batches == sorted(set(batches)), batches


@pytest.mark.sampled
@pytest.mark.parametrize(
    "method, rank",
    [("greatest", 0), ("_open_trainer", 0), ("_open_trainer", 1), ("add_members", 0)],
)
def test_one_stops_in_the_meeting(tmp_path, method, rank):
    """Before all can exchange the state: the last one that has it goes on."""
    options = "-np 3 --min-np 1 --blacklist-cooldown-range 100 100"
    events = [[5, 2, "kill"], [5, rank, f"stop in {method}"]]
    commits, text = train(tmp_path, options, events, 10, HALAY_STOP_TIMEOUT="1")
    assert check(commits, losses(10), text) == 1, text
    assert events_of(tmp_path) == ["event-5-kill", f"event-5-stop-in-{method}"]
    assert "Traceback" not in text, text


@pytest.mark.parametrize(
    "events, how",
    [(15, "--slots 6 --pause 0.05"), pytest.param(1000, "", marks=pytest.mark.long)],
)
def test_random_events(tmp_path, events, how):
    """tests/chaos/elastic.py judges each commit."""
    script = SOURCE / "tests/chaos/elastic.py"
    command = [sys.executable, str(script), str(events), "--folder", str(tmp_path / "events")]
    command += ["--build", str(HALAYRUN.parents[1]), "--seed", str(time.time_ns() // 10**9)]
    command += how.split()
    status, text = run(command, 20 * events + 120, environment())
    print(text)
    verdict = text.rstrip().rpartition("\n")[2]  # first, where an excerpt shows it
    assert status == 0, f"{verdict}\n{text}"


PLACES = """
import json, os, horovod.torch as hvd
before = os.environ["HOROVOD_HOSTNAME"]
hvd.init()
names = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
own = {name: getattr(hvd, name)() for name in names}
assert all(os.environ[f"HOROVOD_{name.upper()}"] == str(own[name]) for name in names), os.environ
assert os.environ["HOROVOD_HOSTNAME"] == before
os.write(1, f"{json.dumps([before, *own.values()])}\\n".encode())  # one write: ranks share it
hvd.shutdown()
"""


@pytest.mark.sampled
@pytest.mark.parametrize("changes", [[], ["--min-np", "3"]])
def test_places_of_agents_on_one_machine(changes):
    """A rank's place is that on its machine, whose GPUs it shares with others; hosts' names are
    the agents'."""
    program = [sys.executable, "-c", PLACES]
    env = environment({"HALAY_SECRET": "of this test"})
    command = [str(HALAYRUN), "--agents", "2", "--listen", "127.0.0.1:0", *changes]
    head = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env,
        start_new_session=True)  # fmt: skip
    try:
        where = head.stderr.readline().partition("agents come to ")[2].partition(": ")[0]
        commands = [[str(HALAYRUN), "--agent", where, "--agent-name", name, "-np", str(n)]
                    for name, n in (("a.example", 2), ("b", 1))]  # fmt: skip
        with ThreadPoolExecutor(2) as pool:
            ends = list(pool.map(lambda it: run([*it, "--horovod", *program], 60, env), commands))
        said = head.communicate(timeout=10)[1]
    finally:
        end(head)
    assert [head.returncode, *(status for status, _ in ends)] == [0, 0, 0], (said, ends)
    texts = "".join(text for _, text in ends).splitlines()
    seen = sorted(
        (json.loads(line) for line in texts if line.startswith("[")), key=lambda it: it[1]
    )
    assert [line[1:] for line in seen] == [[rank, 3, rank, 3, 0, 1] for rank in range(3)]
    hosts = [line[0] for line in seen]
    assert hosts in (["a.example", "a.example", "b"], ["b", "a.example", "a.example"])


LATE = """
import os, pathlib, sys, time
import halay.arrays as ha
folder = pathlib.Path(sys.argv[1])
first, again = folder / "first", folder / "again"
if ";slot=0;" in os.environ["HALAY_JOB"] + ";":
    first.write_text(str(os.getpid()))
    ha.init()
    while not (folder / "go").exists():
        time.sleep(0.02)
elif not again.exists():
    ha.init()
    again.touch()
    os.kill(os.getpid(), 9)
else:
    (folder / "go").touch()
    stat = pathlib.Path("/proc", first.read_text(), "stat")
    while stat.exists() and " Z " not in stat.read_text():
        time.sleep(0.02)
    ha.init()
    print("joined")
"""


def test_one_that_comes_too_late(tmp_path):
    """It ends with one line."""
    options = ["-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "0.1", "1"]
    command = [str(HALAYRUN), *options, sys.executable, "-c", LATE, str(tmp_path)]
    status, text = run(command, 60, environment())
    assert status == 128 + 9, text  # of the first one, without which nobody has met
    (line,) = [line for line in text.splitlines() if not line.startswith("halayrun: ")]
    assert re.match("halay: .* it is too late to join", line), text
