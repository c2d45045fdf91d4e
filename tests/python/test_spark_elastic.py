# SPDX-License-Identifier: Apache-2.0
"""halay.spark.run_elastic() on a real Spark: its executors, tasks and ranks are killed.

Ranks use halay.arrays: hvd.init() is the same call, behind an import that takes far longer.
"""

import array
import functools
import io
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from spark_bed import (
    AGENTS,
    EXECUTOR,
    FAILURES,
    LATE_S,
    SLOTS,
    SOON_S,
    above,
    processes,
    pyspark_or_skip,
    ranks,
    until,
)

pytestmark = pytest.mark.sampled

pyspark = pyspark_or_skip()

from conftest import environment  # noqa: E402

import halay.spark  # noqa: E402
from halay.errors import HalayBootError  # noqa: E402
from halay.spark import JobEnded, elastic, elastic_task, session  # noqa: E402

pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])

WORKER = b"pyspark"


class Folder:
    """What the ranks of train() have written."""

    def __init__(self, path):
        self.path = path

    def rows(self):
        """[pid, rank, size, step] of each commit, in no order among the processes."""
        rows = []
        for path in self.path.glob("log.*"):
            lines = path.read_text().splitlines(keepends=True)
            rows += [[int(w) for w in line.split()] for line in lines if line.endswith("\n")]
        return rows

    def until_size(self, size, but=()):
        """Waits until so many train, none of them one of those; their pids by rank."""

        found = {}

        def is_there():
            rows = self.rows()
            last = max((row[3] for row in rows), default=-1)
            found.clear()
            found.update({row[1]: row[0] for row in rows if row[3] == last and row[2] == size})
            return len(found) == size and not set(but) & set(found.values())

        until(is_there)
        return found

    def finish(self):
        (self.path / "done").touch()


def train(folder, at_step=None, what=None):
    """Sums up step numbers until the folder has a file done: rank, size, steps, sum, its pid and
    the step at which it began. what happens at at_step to rank 1, in each process again."""
    import halay.arrays as ha
    from halay import _elastic

    class Sum(_elastic.State):
        step = total = 0
        kept = (0, 0)

        def save(self):
            self.kept = (self.step, self.total)

        def restore(self):
            self.step, self.total = self.kept

        def sync(self):
            data = array.array("q", self.kept)
            ha.broadcast(data)
            self.kept = tuple(data)
            self.restore()

    log = open(os.path.join(folder, f"log.{os.getpid()}"), "a", buffering=1)  # noqa: SIM115
    began = []

    def loop(state):
        began.append(state.step)
        while True:
            if ha.rank() == 1 and state.step == at_step:
                what()
            is_done = ha.rank() == 0 and os.path.exists(os.path.join(folder, "done"))
            data = array.array("q", [state.step * (ha.rank() == 0), is_done])
            ha.allreduce(data)
            if data[1]:
                return ha.rank(), ha.size(), state.step, state.total, os.getpid(), began[0]
            state.total += data[0]
            state.step += 1
            log.write(f"{os.getpid()} {ha.rank()} {ha.size()} {state.step}\n")
            state.commit()
            time.sleep(0.01)

    while os.path.exists(os.path.join(folder, "stay out")):
        time.sleep(0.1)
    ha.init()
    return _elastic.run_fn(loop)(Sum())


def check(found, size):
    """What train() returned: right, by rank. The processes, and when they began."""
    steps = found[0][2]
    total = steps * (steps - 1) // 2
    assert [row[:4] for row in found] == [(rank, size, steps, total) for rank in range(size)]
    return {row[4]: row[5] for row in found}


class Aside:
    """Does something in a thread while the job runs; with its result, or its error."""

    def __init__(self, call):
        self._found, self._error = None, None
        self._thread = threading.Thread(target=self._run, args=(call,))
        self._thread.start()

    def _run(self, call):
        try:
            self._found = call()
        except BaseException as error:
            self._error = error

    def found(self):
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._found


@pytest.fixture
def folder(tmp_path):
    made = Folder(tmp_path)
    yield made
    made.finish()


@pytest.fixture
def run(spark_context):
    """halay.spark.run_elastic, of which nothing is left afterwards."""

    def start(fn, *args, **given):
        times = {"start_timeout": LATE_S, "elastic_timeout": LATE_S, **given}
        return halay.spark.run_elastic(fn, args, **times)

    yield start
    until(lambda: not ranks(), SOON_S)
    until(lambda: not spark_context.statusTracker().getActiveJobsIds(), SOON_S)


def test_executor_lost(run, folder):
    """Again and again: Spark gives up a task that has been lost twice, and the run does not."""

    def disturb():
        before = folder.until_size(SLOTS)
        first = set(before.values())
        for _ in range(FAILURES):
            executor = above(before[1], EXECUTOR)
            lost = {pid for pid in before.values() if above(pid, EXECUTOR) == executor}
            assert len(lost) == SLOTS // 2
            os.kill(executor, signal.SIGKILL)
            before = folder.until_size(SLOTS, but=lost)
            first -= lost
        folder.finish()
        return first, before

    aside = Aside(disturb)
    began = check(run(train, folder.path, num_proc=SLOTS, min_num_proc=1), SLOTS)
    stayed, last = aside.found()
    assert set(began) == set(last.values())
    for pid, step in began.items():
        assert step == 0 if pid in stayed else step > 0


def test_task_and_rank_killed(run, folder):
    def disturb():
        before = folder.until_size(2)
        os.kill(before[1], signal.SIGKILL)  # the head starts another one
        between = folder.until_size(2, but=[before[1]])
        agent = above(between[0], AGENTS[0])
        os.kill(above(processes()[agent][0], WORKER), signal.SIGKILL)  # Spark starts another task
        after = folder.until_size(2, but=[between[0]])
        folder.finish()
        return before, between, after

    aside = Aside(disturb)
    began = check(run(train, folder.path, num_proc=2, min_np=1), 2)
    before, between, after = aside.found()
    assert set(began) == set(after.values())
    assert before[0] in between.values() and between[1] in after.values()
    assert before[0] not in after.values() and before[1] not in between.values()


@pytest.mark.long
def test_grows(run, folder, spark_context, tmp_path):
    """Places for which there is no room come when there is."""

    def hold(_):
        while not os.path.exists(os.path.join(folder.path, "free")):
            time.sleep(0.1)
        return []

    def busy():
        spark_context.parallelize(range(2), 2).mapPartitions(hold).collect()

    def disturb():
        until(lambda: len(spark_context.statusTracker().getActiveStageIds()) >= 1)
        before = folder.until_size(2)
        (folder.path / "free").touch()
        after = folder.until_size(SLOTS)
        folder.finish()
        return before, after

    other = Aside(busy)
    until(lambda: any(
        spark_context.statusTracker().getStageInfo(stage).numActiveTasks == 2
        for stage in spark_context.statusTracker().getActiveStageIds()))  # fmt: skip
    aside = Aside(disturb)
    began = check(run(train, folder.path, num_proc=2, max_num_proc=SLOTS), SLOTS)
    before, after = aside.found()
    other.found()
    assert set(before.values()) < set(after.values()) == set(began)
    assert sorted(began.values())[:2] == [0, 0] and sorted(began.values())[2] > 0


def raises():
    raise KeyError("no batch")


@pytest.mark.long
def test_raises(run, folder, tmp_path):
    with pytest.raises(KeyError, match="no batch") as caught:
        run(train, folder.path, 3, raises, num_proc=2)
    cause = caught.value.__cause__
    assert re.match("rank 1 on .*\nTraceback", str(cause)) and "in raises" in str(cause)
    assert isinstance(cause.__cause__, JobEnded)
    begun = list(folder.path.glob("log.*"))
    assert FAILURES <= len(begun) <= 1 + FAILURES  # the one that stays, and one for each time

    def exits():
        sys.exit(3)

    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        run(train, folder.path, 0, exits, num_proc=2)


def test_cannot_be_pickled(run):
    with pytest.raises(TypeError, match="pickle"):
        run(functools.partial(id, threading.Lock()), num_proc=2)

    def gives():
        import halay.arrays as ha

        ha.init()
        return threading.Lock() if ha.rank() == 0 else 1

    with pytest.raises(TypeError, match=r"pickle '_thread.lock'"):
        run(gives, num_proc=2)


@pytest.mark.long
def test_too_few(run, folder):
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match=r"^Timed out .* \d of 5 have in 3 s; .* for 4 tasks"):
        run(train, folder.path, num_proc=5, start_timeout=3)
    assert time.monotonic() - begin < 3 + SOON_S

    def disturb():
        pids = folder.until_size(2)
        (folder.path / "stay out").touch()  # who comes anew comes to no meeting
        os.kill(pids[1], signal.SIGKILL)

    aside = Aside(disturb)
    with pytest.raises(HalayBootError, match="only 1 of the 2 that there must be") as caught:
        run(train, folder.path, num_proc=2, elastic_timeout=3)
    aside.found()
    ended = caught.value.__cause__.__cause__
    assert "there have been too few ranks for 3 s" in str(ended)
    assert str(pickle.loads(pickle.dumps(ended))) == str(ended)


def dies():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.long
def test_reset_limit(run, folder):
    """Each process that is rank 1 at step 3 dies there: the state is never further."""
    with pytest.raises(JobEnded, match=r"reset.limit"):
        run(train, folder.path, 3, dies, num_proc=2, reset_limit=1)


def test_cancelled(run, folder, spark_context):
    def cancel():
        folder.until_size(2)
        spark_context.cancelAllJobs()

    aside = Aside(cancel)
    with pytest.raises(RuntimeError, match="Spark ended the run: .*cancelled"):
        run(train, folder.path, num_proc=2)
    aside.found()
    until(lambda: not ranks(), SOON_S)


@pytest.mark.long
def test_streams(run, folder):
    def speak():
        import halay.arrays as ha

        print("before", flush=True)
        ha.init()
        print(f"one {ha.rank()}\ntwo {ha.rank()}", end="")
        print(f"wrong {ha.rank()}", os.environ["WORD"], file=sys.stderr)
        return ha.rank()

    out, err = io.StringIO(), io.StringIO()
    assert run(speak, num_proc=2, stdout=out, stderr=err, env={"WORD": 9}) == [0, 1]
    assert sorted(out.getvalue().splitlines()) == ["[-]<stdout>:before"] * 2 + [
        f"[{rank}]<stdout>:{word} {rank}" for rank in (0, 1) for word in ("one", "two")
    ]
    assert [f"[{r}]<stderr>:wrong {r} 9" for r in (0, 1)] == sorted(
        line for line in err.getvalue().splitlines() if "wrong" in line
    )


DRIVER = """
import sys
from pyspark.sql import SparkSession
import halay.spark
from test_spark_elastic import train
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
session.sparkContext.setLogLevel("OFF")
halay.spark.run_elastic(train, (sys.argv[1],), num_proc=2)
"""


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.long)]
)
def test_driver_ended(folder, number):
    """local[2]: where nothing but the driver could end its ranks."""
    word = f"TEST_SPARK_DRIVER={os.getpid()}.{number}".encode()
    name, _, value = word.decode().partition("=")
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder.path)],
        env={**environment({name: value}), "PYSPARK_PYTHON": sys.executable},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def left():
        found = []
        for pid in processes():
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    found += [pid] if word in file.read().split(b"\0") else []
            except OSError:
                pass
        return found

    try:
        folder.until_size(2)
        assert len(left()) > 4
        driver.send_signal(number)
        driver.wait(LATE_S)
        until(lambda: not left(), SOON_S)
    finally:
        for pid in left():
            os.kill(pid, signal.SIGKILL)
        driver.wait()


def test_arguments(spark_context, monkeypatch):
    terms = elastic._terms(spark_context, None, None, None, None, None, None)
    assert terms == (SLOTS, SLOTS, SLOTS, 600, 600, None, FAILURES)
    monkeypatch.setenv("HOROVOD_ELASTIC_TIMEOUT", "7")
    monkeypatch.setenv("HOROVOD_SPARK_START_TIMEOUT", "8")
    assert elastic._terms(spark_context, 3, 2, 4, None, None, 5) == (3, 2, 4, 8, 7, 5, FAILURES)
    for given in ((2, 3, 4), (2, 1, 1), (2, 0, 2)):
        with pytest.raises(ValueError, match="must hold"):
            elastic._terms(spark_context, *given, None, None, None)
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)
    with pytest.raises(RuntimeError, match="no active SparkContext"):
        halay.spark.run_elastic(train)


def test_is_cancelled():
    assert session.is_cancelled(RuntimeError("Job 3 cancelled as part of cancellation of all jobs"))
    for text in ("Job aborted due to stage failure: Task 0 failed", "ValueError: was cancelled"):
        assert not session.is_cancelled(RuntimeError(text))
    assert not session.is_cancelled(None)


def test_gpus(monkeypatch):
    """A task's GPU is where its rank looks for it: at the local rank."""
    monkeypatch.setattr(elastic_task.glob, "glob", lambda _: [f"/dev/nvidia{i}" for i in (0, 1, 2)])
    assert elastic_task._gpus(["1"]) == ("1", "0", "2")
    assert elastic_task._gpus(["MIG-a"]) == ("MIG-a",) and elastic_task._gpus([]) == ()
    monkeypatch.setattr(halay.spark, "task_gpus", [])
    call = elastic_task._Call(pickle.dumps(halay.spark.get_available_devices), ["1"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2,1")
    assert pickle.loads(pickle.dumps(call))() == ["2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0,2")
    assert call() == ["0"]


def test_texts():
    java = "An exception was thrown from the Python worker:\nTraceback\n  File x\n"
    java += "ModuleNotFoundError: No module named 'halay'\n\n\tat org.apache.Error: x\n"
    assert session.text_of(RuntimeError(java)) == (
        "An exception was thrown from the Python worker: "
        "ModuleNotFoundError: No module named 'halay'"
    )
    assert session.text_of(RuntimeError("ValueError: once")) == "ValueError: once"
    assert session.text_of(None) == "no reason is known"
