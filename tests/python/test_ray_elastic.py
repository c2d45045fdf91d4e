# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs of halay.ray on a real Ray whose nodes are raylets on this machine.

What happens to a job follows what it has said by ray_logger, and it ends when a file is there: so
nothing here goes by the clock.
"""

import array
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import HERE, SOURCE
from watch import LATE_S, processes_with, until

pytestmark = pytest.mark.sampled

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

from halay import _elastic, _session  # noqa: E402
from halay.horovod.discovery import HostDiscovery  # noqa: E402
from halay.ray import ElasticRayExecutor, JobEnded, RayExecutor  # noqa: E402
from halay.ray.discovery import RayHostDiscovery, TestDiscovery  # noqa: E402

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

SMALL = {"num_cpus": 3, "object_store_memory": 100 << 20, "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster():
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCE / "python"), str(HERE)]))
    patch.setenv("RAY_AUTH_MODE", "disabled")
    patch.setenv("RAY_worker_niceness", "0")  # or other processes have the cores before workers
    found = cluster_utils.Cluster(initialize_head=True, head_node_args=SMALL)
    ray.init(address=found.address, log_to_driver=False)
    yield found
    ray.shutdown()
    found.shutdown()
    patch.undo()


@pytest.fixture
def run(cluster, tmp_path):
    """run(fn, *args, callback=..., **given): RayExecutor(**given).run(fn, args), and nothing left.

    The variable WHO of the processes is the test's folder.
    """
    who = f"WHO={tmp_path}"

    def call(fn, *args, callback=None, settings=None, **given):
        settings = settings or RayExecutor.create_settings()
        executor = RayExecutor(settings, **{"elastic_timeout": LATE_S, **given})
        executor.start(extra_env_vars={"WHO": tmp_path})
        try:
            return executor.run(fn, args, callbacks=callback and [callback])
        finally:
            executor.shutdown()

    yield call
    until(lambda: not processes_with(who))
    until(lambda: ray.available_resources().get("CPU") == ray.cluster_resources()["CPU"])


def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


class Steps(_elastic.State):
    """The number of steps that were made."""

    def __init__(self):
        super().__init__()
        self.made = self.saved = 0

    def save(self):
        self.saved = self.made

    def restore(self):
        self.made = self.saved

    def sync(self):
        import halay.arrays as ha

        data = array.array("q", [self.made])
        ha.broadcast(data)
        self.made = self.saved = data[0]


def train(done):
    """Steps until the file is there, each said by each rank. Where this process was what."""
    import halay.arrays as ha
    from halay.ray import ray_logger

    ha.init()
    met, alone, late_s = [], [], time.monotonic() + 3 * LATE_S

    def steps(state):
        met.append((ha.rank(), ha.size()))
        more = array.array("d", [1])
        while more[0]:
            data = array.array("d", [state.made + ha.rank()])
            ha.allreduce(data)
            size = ha.size()
            assert data[0] == size * state.made + size * (size - 1) / 2
            state.made += 1
            assert time.monotonic() < late_s
            ray_logger.log((os.getpid(), ha.rank(), size, state.made))
            more[0] = not os.path.exists(done)
            ha.broadcast(more)
            state.commit()
            time.sleep(0.01)
        alone.append(state.made)

    _elastic.run_fn(steps)(Steps())
    return os.getpid(), ha.rank(), ha.size(), met, alone[0]


class Watch:
    """A callback: does one thing after the other, each as soon as what it waits for was said.

    acts: pairs of a size and what to do when all ranks of so many, not the same processes as at the
    last act, have said something since then, with their pids by rank. The job ends behind the last.
    """

    def __init__(self, done, *acts):
        self.done, self.acts, self.said, self.last = done, list(acts), {}, []

    def __call__(self, said):
        pid, rank, size, _ = said
        self.said = {pids: what for pids, what in self.said.items() if what[1] == size}
        self.said[pid] = (rank, size)
        ranks = {rank: pid for pid, (rank, _) in self.said.items()}
        full = len(ranks) == size == len(self.said) and sorted(self.said) != self.last
        if self.acts and size == self.acts[0][0] and full:
            self.last = sorted(self.said)
            self.said = {}
            self.acts.pop(0)[1]([ranks[rank] for rank in range(size)])
            if not self.acts:
                self.done.touch()


def check(found, size):
    """What train() returned: all that were there to the end. Pids, and what each was, by rank."""
    assert [row[1:3] for row in found] == [(rank, size) for rank in range(size)]
    assert len({row[4] for row in found}) == 1
    return [row[0] for row in found], [row[3] for row in found]


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def test_a_process_and_an_actor_are_lost(run, tmp_path):
    seen, done = [], tmp_path / "done"

    def kill_first(pids):
        seen.append(pids)
        kill(pids[0])

    def kill_actor_of_second(pids):
        seen.append(pids)
        kill(parent(parent(pids[1])))  # of the agent

    watch = Watch(done, (3, kill_first), (3, kill_actor_of_second), (3, seen.append))
    found = run(train, str(done), callback=watch, min_workers=2, max_workers=3)
    pids, met = check(found, 3)
    assert pids == seen[2] and seen[0] != seen[1] != seen[2]
    # Who was rank 2 of the first three has never been anything but alive.
    assert seen[1][:2] == seen[0][1:] and pids[0] == seen[0][1]
    # The job may have begun with two of them.
    assert (1, 3) in met[0] and met[0][-1] == (0, 3)


def starts(done):
    """Also something in a session of its own, which is to end with the job."""
    subprocess.Popen(["sleep", "86399"], start_new_session=True)
    train(done)


def test_shut_down_meanwhile(run, tmp_path):
    executor = RayExecutor(RayExecutor.create_settings(), min_workers=2, max_workers=2)
    executor.start(extra_env_vars={"WHO": tmp_path})
    with pytest.raises(RuntimeError, match=r"shutdown\(\) was called meanwhile"):
        executor.run(starts, [str(tmp_path / "done")], callbacks=[lambda _: executor.shutdown()])


def test_nodes_come_and_go(run, cluster, tmp_path):
    seen, nodes, done = [], [], tmp_path / "done"

    def add(pids):
        seen.append(pids)
        nodes.append(cluster.add_node(**{**SMALL, "num_cpus": 1}))

    def remove(pids):
        seen.append(pids)
        cluster.remove_node(nodes.pop(), allow_graceful=False)

    watch = Watch(done, (3, add), (4, remove), (3, seen.append))
    found = run(train, str(done), callback=watch, min_workers=2)
    pids, _ = check(found, 3)
    assert seen[0] == seen[1][:3] == pids


class Planned(HostDiscovery):
    """So many places on this node. It fails after each change, once."""

    def __init__(self):
        self.places, self.fails = 2, False

    def find_available_hosts_and_slots(self):
        if self.fails:
            self.fails = False
            raise OSError("no answer")
        return {ray.util.get_node_ip_address(): self.places}


@pytest.mark.long
def test_a_discovery_of_ones_own(run, tmp_path):
    settings, done = RayExecutor.create_settings(), tmp_path / "done"
    settings.discovery = Planned()
    seen = []

    def make(places):
        def act(pids):
            seen.append(pids)
            settings.discovery.places, settings.discovery.fails = places, True

        return act

    watch = Watch(done, (2, make(3)), (3, make(1)), (1, seen.append))
    with pytest.warns(UserWarning, match="no answer"):
        found = run(train, str(done), callback=watch, settings=settings,
                    min_workers=1, override_discovery=False)  # fmt: skip
    pids, met = check(found, 1)
    assert pids == seen[2] and pids[0] in seen[0]
    assert [size for _, size in met[0]][-3:] == [2, 3, 1]


def fails_on(ranks, done, kind):
    import halay.arrays as ha

    ha.init()
    if kind == "at once" and ha.rank() in ranks:
        raise ValueError(f"no batch on {ha.rank()}")
    if kind == "killed":
        kill(os.getpid())
    return train(done)


def test_a_function_that_raises(run, tmp_path):
    begin = time.monotonic()
    with pytest.raises(ValueError, match="no batch") as caught:
        run(fails_on, [0, 1, 2], "", "at once", min_workers=2, max_workers=3)
    assert time.monotonic() - begin < LATE_S
    if hasattr(caught.value, "__notes__"):
        assert "raised by rank" in caught.value.__notes__[0] and "in fails_on" in str(
            caught.value.__notes__
        )

    done = tmp_path / "done"  # on one of three, two are enough
    watch = Watch(done, (2, lambda _: None))
    found = run(fails_on, [2], str(done), "at once", callback=watch, min_workers=2)
    check(found, 2)


@pytest.mark.long
def test_without_end(run, cluster):
    with pytest.raises(JobEnded, match="reset-limit|3 times|failed"):
        run(fails_on, [], "", "killed", min_workers=1, max_workers=1, reset_limit=1,
            cooldown_range=(0.1, 0.1))  # fmt: skip


@pytest.fixture
def other(cluster):
    """An actor that holds all but one of the CPUs."""

    @ray.remote(num_cpus=SMALL["num_cpus"] - 1)
    class Other:
        def here(self):
            return True

    actor = Other.remote()
    assert ray.get(actor.here.remote())
    yield
    ray.kill(actor)


@pytest.mark.long
def test_too_few(run, other):
    with pytest.raises(TimeoutError, match=r"3 places .* min_workers is 4: ask for less"):
        run(train, "", min_workers=4, elastic_timeout=1)
    with pytest.raises(JobEnded, match=r"[01] of 2 agents have come .* free are .* ask for less"):
        run(train, "", min_workers=2, max_workers=2, elastic_timeout=3)


DRIVER = """
import sys
import ray
from test_ray_elastic import RayExecutor, kill, train
import os
ray.init(address=sys.argv[1], log_to_driver=False)
executor = RayExecutor(RayExecutor.create_settings(), min_workers=2, max_workers=2)
executor.start(extra_env_vars={"WHO": sys.argv[2]})
executor.run(train, ["/nowhere"], callbacks=[lambda said: said[3] == 5 and kill(os.getpid())])
"""


def test_a_driver_that_is_killed(run, cluster, tmp_path):
    status = subprocess.run(
        [sys.executable, "-c", DRIVER, cluster.address, str(tmp_path)], timeout=LATE_S
    ).returncode
    assert status == -signal.SIGKILL  # run's fixture says what is left


class Executable:
    def __init__(self, word, times=1):
        self.word = word * times


def speak(executable):
    import halay.arrays as ha

    ha.init()
    return executable.word, ha.rank()


@pytest.mark.long
def test_executables_and_the_older_executor(run):
    executor = RayExecutor(None, min_workers=2, max_workers=2)
    with pytest.raises(RuntimeError, match="start"):
        executor.execute(speak)
    executor.start(Executable, ["a"], {"times": 2})
    assert executor.execute(speak) == [("aa", 0), ("aa", 1)]
    for call in (executor.run_remote, executor.execute_single):
        with pytest.raises(NotImplementedError, match="come and go"):
            call(speak)
    executor.shutdown()

    settings = ElasticRayExecutor.create_settings(min_num_proc=2, max_num_proc=2, verbose=0)
    older = ElasticRayExecutor(settings, env_vars={"WORD": 7})
    older.start()

    def word():
        import halay.arrays as ha

        ha.init()
        return os.environ["WORD"], ha.size()

    assert older.run(word) == [("7", 2)] * 2


def test_arguments():
    for given in ({"min_workers": 0}, {"min_workers": 2, "max_workers": 1},
                  {"min_workers": 1, "num_hosts": 1}, {"num_workers": 1, "reset_limit": 3},
                  {"num_workers": 1, "cooldown_range": [1, 2]},
                  {"min_workers": 1, "cooldown_range": [2, 1]},
                  {"min_workers": 1, "gpus_per_worker": 1},
                  {"min_workers": 1, "use_gpu": True, "gpus_per_worker": 0.5}):  # fmt: skip
        with pytest.raises(ValueError, match=r"\w"):
            RayExecutor(None, **given)
    with pytest.raises(ValueError, match=r"settings\.discovery"):
        RayExecutor(None, min_workers=1, override_discovery=False).start()


def test_discovery(monkeypatch):
    def node(host, alive=True, **resources):
        return {"NodeManagerAddress": host, "alive": alive, "Resources": resources}

    nodes = [node("a", CPU=5, GPU=2), node("a", CPU=2), node("b", CPU=1.5), node("c", CPU=1),
             node("d", alive=False, CPU=8), node("e")]  # fmt: skip
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    assert RayHostDiscovery().find_available_hosts_and_slots() == {"a": 7, "b": 1, "c": 1}
    found = RayHostDiscovery(cpus_per_slot=1.5).find_available_hosts_and_slots()
    assert found == {"a": 4, "b": 1}
    assert RayHostDiscovery(True, 2, 1).find_available_hosts_and_slots() == {"a": 2}
    assert RayHostDiscovery(True, 2, None).find_available_hosts_and_slots() == {"a": 2}
    trial = TestDiscovery(1, 2, 0)
    counts = [len(trial.find_available_hosts_and_slots()) for _ in range(50)]
    assert set(counts[2:]) <= {1, 2} and len(set(counts)) > 1
    assert all(abs(a - b) <= 1 for a, b in zip(counts, counts[1:]))
    with pytest.raises(NotImplementedError, match="ray stop"):
        TestDiscovery(1, 2, 0, _graceful=False)
    assert _session.current() is None
