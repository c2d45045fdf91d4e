# SPDX-License-Identifier: Apache-2.0
"""halay.ray on a real Ray of two nodes, which are two raylets on this machine.

Ranks use halay.arrays: hvd.init() is the same call, behind an import that takes far longer.
"""

import array
import os
import pickle
import signal
import socket
import sys
import threading
import time

import engine_train
import pytest
from conftest import HERE, SOURCE
from watch import LATE_S, until

pytestmark = pytest.mark.sampled

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

from halay import HalayPeerLost  # noqa: E402
from halay.horovod import SHIM  # noqa: E402
from halay.ray import RayExecutor, WorkerLost, crew  # noqa: E402

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

CPUS = 3  # of each node
TIMEOUT_S = 6


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCE / "python"), str(HERE)]))
    patch.setenv("RAY_AUTH_MODE", "disabled")
    patch.setenv("RAY_worker_niceness", "0")  # or other processes have the cores before workers
    patch.setattr(crew, "LEAVE_S", 1)
    small = {"num_cpus": CPUS, "object_store_memory": 100 << 20, "include_dashboard": False}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={**small, "num_gpus": 2})
    second = cluster.add_node(**small)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster, second
    ray.shutdown()
    cluster.shutdown()
    patch.undo()


@pytest.fixture
def make(nodes):
    """RayExecutor(settings, ...), started; shut down in the end, when nothing may be left."""
    made = []

    def start(started=True, timeout_s=TIMEOUT_S, variables=None, **given):
        settings = RayExecutor.create_settings(timeout_s, placement_group_timeout_s=LATE_S)
        executor = RayExecutor(settings, **given)
        made.append(executor)
        if started:
            executor.start(extra_env_vars={"HALAY_START_DEADLINE": LATE_S, **(variables or {})})
        return executor

    free = ray.cluster_resources()
    yield start
    for executor in made:
        executor.shutdown()
    until(lambda: all(ray.available_resources().get(n, 0) == free[n] for n in ("CPU", "GPU")))


def total(number=1.0):
    """Of rank + number over all ranks; who and where this is."""
    import halay.arrays as ha

    ha.init()
    data = array.array("d", [ha.rank() + number] * 5)
    ha.allreduce(data)
    assert len(set(data)) == 1
    return data[0], ha.rank(), ha.size(), os.getpid(), ray.get_runtime_context().get_node_id()


def again(times):
    """Meets so many times, and is late at some of them."""
    import halay.arrays as ha

    found = []
    for turn in range(times):
        found.append(total()[0])
        time.sleep(0.05 * (turn % 2 == ha.rank() % 2))
        ha.shutdown()
    return found


def fails_on(rank, how):
    import halay.arrays as ha

    total()
    if ha.rank() == rank:
        if how == "raises":
            raise ValueError(f"no batch on {rank}")
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "sleeps" and ha.rank() == 2:
        time.sleep(1000)
    total()


def check(found, size):
    """What total() returned: right, by rank, host by host. The processes."""
    assert [row[:3] for row in found] == [(size * (size + 1) / 2, r, size) for r in range(size)]
    hosts = [row[4] for row in found]
    assert len(set(hosts)) == sum(a != b for a, b in zip(hosts, [None, *hosts]))
    return [row[3] for row in found]


class Half(Exception):
    """It can be pickled, but what was pickled cannot be read."""

    def __init__(self, number, word):
        super().__init__(f"{word} {number}")


def raises_half():
    raise Half(1, "half")


class Counter:
    def __init__(self, begin, step=1):
        self.value, self.step = begin, step

    def next(self):
        self.value += self.step
        return self.value


def test_calls(make):
    executor = make(num_workers=4, variables={"WORD": 7})  # more than one node has
    pids = check(executor.run(total), 4)
    assert check(ray.get(executor.run_remote(total, kwargs={"number": 1})), 4) == pids
    assert executor.run(again, args=[6]) == [[10.0] * 6] * 4
    assert executor.execute_single(lambda made: (made, total.__name__)) == (None, "total")
    names = ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_CROSS_SIZE", "WORD")
    seen = executor.run(lambda: [os.environ[name] for name in names])
    assert seen == [[str(rank), "4", "2", "7"] for rank in range(4)]

    executor.start(Counter, [10], {"step": 2})  # in the same processes
    assert executor.execute(lambda counter: counter.next()) == [12] * 4
    assert executor.execute_single(lambda counter: counter.next()) == 14
    assert executor.execute(lambda counter: counter.next()) == [16, 14, 14, 14]
    assert check(executor.run(total), 4) == pids

    with pytest.raises(ValueError, match="no batch on 1"):  # others wait for it, and are told
        executor.run(fails_on, [1, "raises"])
    assert check(executor.run(total), 4) == pids
    with pytest.raises(RuntimeError, match="Half: half 1"):
        executor.run(raises_half)


def test_lost(make):
    executor = make(num_workers=3)
    pids = check(executor.run(total), 3)
    with pytest.raises(WorkerLost) as caught:
        executor.run(fails_on, [0, "dies"])
    assert (caught.value.rank, caught.value.host) == (0, socket.gethostname())
    assert "died" in caught.value.cause and len(caught.value.losses) == 1
    assert "HalayPeerLost: " in str(caught.value) and "rank 0 of 3" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)

    now = check(executor.run(total), 3)  # who was rank 1 is rank 0
    assert now[:2] == pids[1:] and now[2] not in pids
    os.kill(now[1], signal.SIGKILL)  # between two calls
    until(lambda: not os.path.exists(f"/proc/{now[1]}"))
    last = check(executor.run(total), 3)
    assert [last[0], last[1]] == [now[0], now[2]] and last[2] not in now

    begin = time.monotonic()
    with pytest.raises(WorkerLost) as caught:
        executor.run(fails_on, [1, "sleeps"])
    assert time.monotonic() - begin < TIMEOUT_S + LATE_S
    assert [loss.rank for loss in caught.value.losses] == [1, 2]
    assert "no word from it" in caught.value.losses[1].cause
    assert check(executor.run(total), 3)[0] == last[0]
    executor.shutdown()
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in [*pids, *now, *last]))
    with pytest.raises(RuntimeError, match="start"):
        executor.run(total)


def waits(folder):
    total()
    open(os.path.join(folder, str(os.getpid())), "w").close()
    time.sleep(1000)


def test_interrupted(make, tmp_path):
    """By Ctrl-C, a notebook's stop: the next call does not wait for what was stopped."""

    def interrupt():
        until(lambda: len(os.listdir(tmp_path)) == 2)
        os.kill(os.getpid(), signal.SIGINT)

    executor = make(num_workers=2)
    pids = check(executor.run(total), 2)
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        executor.run(waits, [str(tmp_path)])
    assert not set(check(executor.run(total), 2)) & set(pids)


def test_shut_down_meanwhile(make, tmp_path):
    executor = make(num_workers=2)

    def shut_down():
        until(lambda: len(os.listdir(tmp_path)) == 2)
        executor.shutdown()

    threading.Thread(target=shut_down).start()
    with pytest.raises(RuntimeError, match=r"shutdown\(\) was called meanwhile"):
        executor.run(waits, [str(tmp_path)])


@pytest.mark.long
def test_stopped(make):
    """Between two calls: it is replaced. One that is busy for somebody else is waited for."""
    executor = make(num_workers=2)
    pids = check(executor.run(total), 2)
    os.kill(pids[1], signal.SIGSTOP)
    now = check(executor.run(total), 2)
    assert now[0] == pids[0] and now[1] != pids[1]
    executor.run_remote(time.sleep, [2 * TIMEOUT_S])
    assert check(executor.run(total), 2) == now


@pytest.mark.long
def test_hosts_and_gpus(make):
    executor = make(num_hosts=2, num_workers_per_host=2)
    found = executor.run(total)
    pids = check(found, 4)
    assert len({row[4] for row in found}) == 2
    executor.shutdown()
    executor = make(num_hosts=1, num_workers_per_host=2, use_gpu=True)
    seen = executor.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"])
    assert seen == ["0,1"] * 2 and not set(pids) & {r[3] for r in executor.run(total)}


def test_room(make):
    executor = make(started=False, num_hosts=3)
    executor.settings.placement_group_timeout_s = 1
    with pytest.raises(TimeoutError, match="no room for 3 times .* each on a node"):
        executor.start()
    executor.shutdown()
    with pytest.raises(ZeroDivisionError):  # in the executable: nobody stays behind
        make(started=False, num_workers=2).start(type("C", (), {"__init__": lambda _: 1 / 0}))


def test_arguments():
    for given in ({}, {"num_workers": 1, "num_hosts": 1}, {"num_workers": 0},
                  {"num_workers": 2, "gpus_per_worker": 1},
                  {"num_workers": 2, "use_gpu": True, "gpus_per_worker": 0.5},
                  {"num_workers": 2, "min_workers": 1}, {"max_workers": 2}):  # fmt: skip
        with pytest.raises(ValueError, match=r"\w"):
            RayExecutor(None, **given)
    with pytest.raises(NotImplementedError, match="callbacks"):
        RayExecutor(None, num_workers=1).run(total, callbacks=[print])
    lost = HalayPeerLost(-5, "HALAY_EPEER", "rank 1 is lost", 0, "here")
    assert str(pickle.loads(pickle.dumps(lost))) == str(lost)


def test_horovods_name(make, monkeypatch):
    monkeypatch.syspath_prepend(SHIM)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    from horovod.ray import RayExecutor as Theirs

    assert Theirs is RayExecutor
    executor = make(num_workers=1)

    def found():
        import horovod

        return horovod.__file__

    assert executor.run(found) == [os.path.join(SHIM, "horovod", "__init__.py")]


@pytest.mark.long
def test_torch(make):
    pytest.importorskip("torch")
    executor = make(num_workers=2, variables={"HALAY_START_DEADLINE": 300})
    first, second = executor.run(engine_train.steps)
    assert first == second
