# SPDX-License-Identifier: Apache-2.0
"""halay.spark.run() on a real Spark.

Ranks use halay.arrays: hvd.init() is the same call, behind an import that takes far longer.
"""

import array
import contextlib
import inspect
import io
import os
import pathlib
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time

import engine_train
import pytest
from spark_bed import (
    LATE_S,
    SLOTS,
    SOON_S,
    parents,
    pyspark_or_skip,
    ranks,
    until,
)

pytestmark = pytest.mark.sampled

pyspark = pyspark_or_skip()

import halay.spark  # noqa: E402
from halay._engines import Loss, Where, by_node, numbers  # noqa: E402
from halay.horovod import SHIM  # noqa: E402
from halay.spark import WorkerLost, board, driver, line, session, task  # noqa: E402
from halay.spark.board import Event  # noqa: E402
from halay.spark.words import RAISED, RETURNED, Failure  # noqa: E402

pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def run(spark_context):
    """halay.spark.run, of which nothing is left afterwards."""

    def start(fn, *args, **given):
        return halay.spark.run(fn, args, start_timeout=given.pop("start_timeout", LATE_S), **given)

    yield start
    until(lambda: not ranks(), SOON_S)


def total(number=1.0):
    """Of rank + number over all ranks; who and where this is."""
    import halay.arrays as ha

    ha.init()
    data = array.array("d", [ha.rank() + number] * 5)
    ha.allreduce(data)
    assert len(set(data)) == 1
    return data[0], ha.rank(), ha.size(), os.getpid()


def check(found, size):
    """What total() returned: right, by rank. The processes."""
    assert [row[:3] for row in found] == [(size * (size + 1) / 2, r, size) for r in range(size)]
    return [row[3] for row in found]


def meets(folder, rank, how):
    """All have met and said so in the folder; then something happens to one, others wait for it."""
    import halay.arrays as ha

    total()
    with open(os.path.join(folder, "began"), "a") as file:
        file.write(f"{ha.rank()} {os.getpid()}\n")
    if ha.rank() == rank:
        if how == "raises":
            raise KeyError(f"no batch on {rank}")
        if how == "exits":
            sys.exit(3)
        if how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "starts":
            subprocess.Popen(["sleep", "86399"])
        time.sleep(1000)
    if how == "raises" and ha.rank() == 2:
        time.sleep(1000)
    total()


def began(folder):
    """Processes by rank, as far as they have met."""
    path = folder / "began"
    words = path.read_text().split() if path.exists() else []
    return dict(zip(map(int, words[::2]), map(int, words[1::2])))


class Aside:
    """Calls something in a thread as soon as so many ranks have met."""

    def __init__(self, folder, size, call):
        self.at = None
        self._thread = threading.Thread(target=self._run, args=(folder, size, call))
        self._thread.start()

    def _run(self, folder, size, call):
        until(lambda: len(began(folder)) == size)
        self.at = time.monotonic()
        call(began(folder))

    def since(self):
        """Seconds since the call."""
        self._thread.join()
        return time.monotonic() - self.at


def test_results(run, spark_context, monkeypatch):
    # As where nobody has said which Python Spark's own workers are: `python3` of PATH.
    monkeypatch.setattr(spark_context, "pythonExec", "/nowhere/python3")

    class Own:  # which only cloudpickle takes along
        value = 7

    def seen(word, last=None):
        import halay.arrays as ha

        names = ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_CROSS_SIZE", "WORD")
        return [os.environ[name] for name in names], word, last, Own, total(), ha.size()

    found = run(seen, "a", kwargs={"last": Own()}, env={"WORD": 9, "NONE": None})
    assert len(found) == SLOTS == spark_context.defaultParallelism  # num_proc left out
    first = check([row[4] for row in found], SLOTS)
    for rank, row in enumerate(found):
        assert row[0] == [str(rank), "4", str(rank), "1", "9"]
        assert (row[1], row[2].value, row[3].value) == ("a", 7, 7)
    # The same Python workers: nobody is who it was.
    assert not set(first) & set(check(run(total, num_proc=3), 3))
    assert run(lambda: sys.executable, num_proc=1) == [sys.executable]
    assert spark_context.pythonExec == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/elsewhere/python3")
    monkeypatch.setattr(spark_context, "pythonExec", "/elsewhere/python3")
    session.match_workers()
    assert spark_context.pythonExec == "/elsewhere/python3"


@pytest.mark.long
def test_streams(run, spark_context):
    def speak(rest):
        rank = os.environ["HOROVOD_RANK"]
        print(f"one {rank}\ntwo {rank}", end=rest)
        print(f"wrong {rank}", file=sys.stderr)

    out, err = io.StringIO(), io.StringIO()
    run(speak, "", num_proc=2, stdout=out, stderr=err)
    assert sorted(out.getvalue().splitlines()) == [
        f"[{rank}]<stdout>:{word} {rank}" for rank in (0, 1) for word in ("one", "two")
    ]
    assert sorted(err.getvalue().splitlines()) == [f"[{r}]<stderr>:wrong {r}" for r in (0, 1)]
    out = io.StringIO()
    run(speak, "\n", num_proc=1, stdout=out, prefix_output_with_timestamp=True)
    year = time.strftime("%Y")
    assert all(f"{year}[0]<stdout>:" in text for text in out.getvalue().splitlines())
    logs = "".join(path.read_text() for path in spark_context.work.glob("*/stderr"))
    assert "[0]<stderr>:wrong 0\n" in logs and "one 0" not in logs  # where nobody wanted it


def test_raises(run, tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "GRACE_S", 2)  # rank 2 sleeps through it
    begin = time.monotonic()
    with pytest.raises(KeyError, match="no batch on 1") as caught:
        run(meets, tmp_path, 1, "raises", num_proc=3)
    assert time.monotonic() - begin < LATE_S
    cause = str(caught.value.__cause__)
    assert f"rank 1 on {socket.gethostname()}" in cause and "in meets" in cause
    if sys.version_info >= (3, 11):
        assert caught.value.__notes__ == [f"raised by rank 1 on {socket.gethostname()}"]
    (tmp_path / "began").unlink()
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        run(meets, tmp_path, 0, "exits", num_proc=1)


def test_rank_killed(run, tmp_path):
    with pytest.raises(WorkerLost) as caught:
        run(meets, tmp_path, 1, "dies", num_proc=3)
    assert (caught.value.rank, caught.value.host) == (1, socket.gethostname())
    assert "SIGKILL" in caught.value.cause and len(caught.value.losses) == 1
    assert "HalayPeerLost: " in str(caught.value) and "rank 1 of 3" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_executor_lost(run, tmp_path):
    def kill(pids):
        os.kill(parents(pids[1], 4)[3], signal.SIGKILL)  # guard, worker, daemon, executor

    aside = Aside(tmp_path, SLOTS, kill)
    with pytest.raises(WorkerLost) as caught:
        run(meets, tmp_path, 1, "sleeps", num_proc=SLOTS)
    assert aside.since() < SOON_S
    # Of the two ranks there, the one whose task goes last may still tell of the other one.
    lost = {loss.rank for loss in caught.value.losses}
    assert 1 in lost and len(lost) <= 2
    assert all("Spark task is gone" in loss.cause for loss in caught.value.losses)
    assert str(caught.value).count("HalayPeerLost: ") == SLOTS - len(lost)
    until(lambda: not ranks(), SOON_S)
    assert len((tmp_path / "began").read_text().splitlines()) == SLOTS  # nothing ran again
    assert check(run(total, num_proc=SLOTS), SLOTS)  # when Spark has another executor


def test_cancelled(run, spark_context, tmp_path):
    aside = Aside(tmp_path, 2, lambda _: spark_context.cancelAllJobs())
    with pytest.raises(RuntimeError, match="cancelled"):
        run(meets, tmp_path, 0, "starts", num_proc=2)
    assert aside.since() < SOON_S
    until(lambda: not ranks(), SOON_S)  # nor what rank 0 has started


def test_interrupted(run, tmp_path):
    """By Ctrl-C, a notebook's stop."""
    aside = Aside(tmp_path, 2, lambda _: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run(meets, tmp_path, 0, "sleeps", num_proc=2)
    assert aside.since() < SOON_S


def test_what_a_rank_leaves(run):
    """In sessions of its own, and one of them writes on: it ends with the rank."""

    class Sink:
        write = flush = staticmethod(lambda *_: None)

    def leaves():
        for command in (["sleep", "86399"], ["yes", "86399"]):
            subprocess.Popen(command, start_new_session=True)
        return 7

    assert run(leaves, num_proc=2, stdout=Sink()) == [7, 7]


@pytest.mark.sampled
@pytest.mark.parametrize(("who", "says"), [(0, "guard was killed"), (1, "Spark task is gone")])
def test_task_killed(run, tmp_path, who, says):
    aside = Aside(tmp_path, 2, lambda pids: os.kill(parents(pids[1], 2)[who], signal.SIGKILL))
    with pytest.raises(WorkerLost) as caught:
        run(meets, tmp_path, 1, "starts", num_proc=2)
    assert aside.since() < SOON_S
    assert caught.value.rank == 1 and says in caught.value.cause
    if who == 0:  # nobody else knows of what the rank has started
        for pid in ranks():
            os.kill(pid, signal.SIGKILL)


@pytest.mark.long
def test_room(run, spark_context, tmp_path):
    done = tmp_path / "done"
    with pytest.raises(
        TimeoutError, match=r"^Timed out waiting .* 0 of 5 have in 1 s.* for 4 task"
    ):
        run(total, num_proc=5, start_timeout=1)

    def hold(_):
        while not done.exists():
            time.sleep(0.1)
        return []

    def busy():
        with contextlib.suppress(Exception):
            spark_context.parallelize(range(2), 2).mapPartitions(hold).collect()

    other = threading.Thread(target=busy)
    other.start()
    until(lambda: any(
        spark_context.statusTracker().getStageInfo(stage).numActiveTasks == 2
        for stage in spark_context.statusTracker().getActiveStageIds()))  # fmt: skip
    with pytest.raises(TimeoutError, match=r"0 of 4 have in 2 s.* 4 tasks .* others may hold"):
        run(total, start_timeout=2)
    done.touch()
    other.join()
    assert check(run(total, num_proc=2), 2)


def test_secrets(run, spark_context, monkeypatch):
    """Who looks at Spark's events or at the processes does not find them."""
    drawn, token_bytes = [], board.secrets.token_bytes

    def token(count):
        drawn.append(token_bytes(count))
        return drawn[-1]

    monkeypatch.setattr(board.secrets, "token_bytes", token)

    def seen():
        from halay import _session

        found = []
        for pid in (os.getpid(), os.getppid()):
            for name in ("cmdline", "environ"):
                found.append(pathlib.Path(f"/proc/{pid}/{name}").read_bytes())
        return _session.standing().secret, found

    (secret, words), *_ = run(seen, num_proc=1)
    (key,) = (one for one in drawn if len(one) == 32)
    assert secret == task.Contact("", 0, key).secret() != task.Contact("", 0, bytes(32)).secret()
    events = b"".join(p.read_bytes() for p in spark_context.event_log.rglob("*") if p.is_file())
    assert b"SparkListenerJobStart" in events and b"halay.spark.run(seen)" in events
    for one in (secret.encode(), bytes.fromhex(secret), key, key.hex().encode()):
        assert one not in events and not any(one in word for word in words)


def test_horovods_name(run, monkeypatch):
    monkeypatch.syspath_prepend(SHIM)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    import horovod.spark as theirs

    def found():
        import horovod

        return horovod.__file__

    assert theirs.run is halay.spark.run
    path = os.path.join(SHIM, "horovod", "__init__.py")
    assert theirs.run(found, num_proc=1, start_timeout=LATE_S) == [path]


def test_arguments(spark_context, monkeypatch):
    theirs = (
        "fn args kwargs num_proc start_timeout use_mpi use_gloo extra_mpi_args env stdout stderr"
    )
    theirs += " verbose nics prefix_output_with_timestamp executable"
    assert list(inspect.signature(halay.spark.run).parameters) == theirs.split()
    with pytest.raises(ValueError, match="exclude"):
        halay.spark.run(total, use_mpi=True, use_gloo=True)
    with pytest.raises(ValueError, match="at least 1"):
        halay.spark.run(total, num_proc=0)
    with pytest.raises(WorkerLost, match="could not be started: .*/no/python"):
        halay.spark.run(total, num_proc=1, executable="/no/python", start_timeout=LATE_S)
    monkeypatch.setenv("HOROVOD_SPARK_START_TIMEOUT", "1")
    with pytest.raises(TimeoutError, match="0 of 99 have in 1 s"):
        halay.spark.run(total, num_proc=99)
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)
    with pytest.raises(RuntimeError, match="no active SparkContext"):
        halay.spark.run(total)


# What follows needs no Spark: its tasks are threads.


class Conf(dict):
    def getConf(self):
        return self


class Fake:
    """A task of a job: says hello, and what it is told to."""

    def __init__(self, job, partition, node="a", attempt="1", gpus=()):
        self.line = job.board.contact.call()
        self.line.sock.settimeout(SOON_S)
        where = Where(node, node, 0, list(gpus))
        self.line.send(task.Hello(attempt, partition, where, f"{node}:{partition}"))

    def end(self, kind, said, status=0):
        self.line.send(task.End(status, kind + pickle.dumps(said)))


@pytest.fixture
def job(monkeypatch):
    monkeypatch.setattr(driver, "GRACE_S", 0.5)
    monkeypatch.setattr(board, "HANG_UP_S", 0.1)
    made = driver._Job(Conf({"spark.driver.host": "127.0.0.1"}), 3, 5, {})
    with made:
        yield made


def tell(job):
    job.tell(b"", {}, executable=None, forward=(), timestamp=False)


def test_places(job):
    gpus = (["2"], ["0"], ["10"])
    tasks = [Fake(job, part, "ab"[part % 2], gpus=gpus[part]) for part in (2, 1, 0)]
    job.gather()
    tell(job)
    got = [one.line.receive() for one in tasks]
    visible = [(w.variables["CUDA_VISIBLE_DEVICES"], w.orders.gpus) for w in got]
    assert visible == [("2,10", ["1"]), ("0", ["0"]), ("2,10", ["0"])]
    assert [work.orders.rank for work in got] == [1, 2, 0]  # a a b
    assert {work.orders.address for work in got} == {"a:0"} and got[0].orders.size == 3
    names = ("HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE")
    seen = [[work.variables[name] for name in names] for work in got]
    assert seen == [["1", "2", "0", "2"], ["0", "1", "1", "2"], ["0", "2", "0", "2"]]
    for one, work in zip(tasks, got):
        one.end(RETURNED, work.orders.rank)
    assert job.collect() == [0, 1, 2]

    places = [Where(node, node, 0, gpus) for node, gpus in (("x", ["10"]), ("y", []), ("x", ["9"]))]
    assert by_node(places) == [0, 2, 1]
    assert numbers(0, places)["CUDA_VISIBLE_DEVICES"] == "9,10"
    assert "CUDA_VISIBLE_DEVICES" not in numbers(1, places)


def test_tasks_started_again(job):
    former = [Fake(job, partition) for partition in (0, 1)]
    until(lambda: job.board.events.qsize() == 2)
    again = [Fake(job, partition, attempt="2") for partition in (2, 1, 0)]
    job.gather()
    tell(job)
    told = [one.line.receive() for one in again]
    assert [work.orders.rank for work in told] == [2, 1, 0]
    late = Fake(job, 1, attempt="3")
    until(lambda: job.board.events.qsize() == 1)
    for one in again:
        one.end(RETURNED, 5)
    assert job.collect() == [5] * 3
    assert late.line.receive() is None  # the run had begun
    assert former[0].line.receive() is None  # nor is who was there before part of it


@pytest.mark.sampled
@pytest.mark.parametrize("says", ["Job aborted: a task is lost", "Job 1 cancelled"])
def test_stage_given_up(job, monkeypatch, says):
    """Before ranks have begun there is another one, if nobody has ended it: it costs time only."""
    tasks, fails = [], 2

    def submit(_):
        turn = str(len(tasks))
        tasks.append([Fake(job, partition, attempt=turn) for partition in range(3 - fails)])
        until(lambda: job.board.events.qsize() == 3 - fails)
        if fails:
            job.board.events.put(Event("job", None, RuntimeError(says)))

    monkeypatch.setattr(job, "_submit", submit)
    with pytest.raises(RuntimeError, match=f"before all tasks had started: {says}"):
        job.begin("name")
    assert len(tasks) == (1 if "cancelled" in says else driver.TRIES)
    fails = 0
    job.begin("name")
    tell(job)
    assert [one.line.receive().orders.rank for one in tasks[-1]] == [0, 1, 2]
    assert tasks[0][0].line.receive() is None


def test_why(job):
    """The reason of all is what is raised, whoever is first to tell."""
    tasks = [Fake(job, partition) for partition in range(3)]
    job.gather()
    tell(job)
    lost = pickle.dumps(halay.HalayPeerLost(-5, "HALAY_EPEER", "rank 1 is lost"))
    tasks[0].end(RAISED, tuple(Failure(lost, "HalayPeerLost: rank 1", "")), 1)
    until(lambda: not job.board.events.empty())
    tasks[1].end(RAISED, tuple(Failure(pickle.dumps(KeyError("x")), "KeyError: x", "here")), 1)
    with pytest.raises(KeyError) as caught:
        job.collect()  # rank 2 is silent, and not to blame
    assert "rank 1" in str(caught.value.__cause__)


def test_ended_by_spark(job, monkeypatch):
    """Spark ends the tasks that are left when one is lost: they are not to blame."""
    monkeypatch.setattr(driver, "SAME_S", 0.2)
    tasks = [Fake(job, partition) for partition in range(3)]
    job.gather()
    tell(job)
    for one in tasks:
        one.line.receive()
    tasks[1].line.close()
    threading.Timer(0.4, lambda: [tasks[i].line.close() for i in (0, 2)]).start()
    with pytest.raises(WorkerLost) as caught:
        job.collect()
    assert [loss.rank for loss in caught.value.losses] == [1]


def test_silent(job):
    tasks = [Fake(job, partition) for partition in range(3)]
    job.gather()
    tell(job)
    lost = pickle.dumps(halay.HalayPeerLost(-5, "HALAY_EPEER", "rank 2 is lost"))
    tasks[0].end(RAISED, tuple(Failure(lost, "HalayPeerLost: rank 2", "")), 1)
    tasks[1].end(RETURNED, 1)
    with pytest.raises(WorkerLost) as caught:
        job.collect()
    assert caught.value.losses == [
        Loss(2, "a", "no word from it 0.5 s after the failure of rank 0")
    ]
    assert "rank 0: HalayPeerLost: rank 2" in str(caught.value)


def test_ends():
    def outcome(*end):
        return driver._outcome(Event("said", None, task.End(*end)))

    assert outcome(0, RETURNED + b"x") == b"x"
    assert "SIGSEGV after it had returned" in outcome(-11, RETURNED + b"x")
    assert "status 4" in outcome(4, b"") and "status 0" in outcome(0, b"")
    assert "cannot be read" in outcome(1, RAISED + b"cut")
    assert str(Failure(b"cut", "E: what", "").exception()) == "E: what"


def pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        return one, server.accept()[0]


def lines(*keys):
    """Of the driver and of a task."""
    made = [None, None]

    def make(i, sock, key):
        made[i] = line.Line(sock, key, i == 0)

    threads = [
        threading.Thread(target=make, args=(i, sock, key))
        for i, (sock, key) in enumerate(zip(pair(), keys))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made


def test_strangers(monkeypatch):
    one, other = lines(b"key", b"key")
    other.send("hello")
    one.send(["a"] * line.HELLO_BYTES)
    assert one.receive() == "hello" and len(other.receive()) == line.HELLO_BYTES
    other.send("x" * line.HELLO_BYTES)
    assert len(one.receive()) == line.HELLO_BYTES
    other.finish()
    with pytest.raises(EOFError, match="closed"):
        one.receive()

    one, other = lines(b"key", b"another")
    other.send("hello")
    with pytest.raises(EOFError, match="not signed"):
        one.receive()
    one, other = lines(b"key", b"key")
    other.send("x" * line.HELLO_BYTES)  # too much of who is not known yet
    with pytest.raises(EOFError, match="first message"):
        one.receive()
    one, other = lines(b"key", b"key")
    other.send("hello")
    other._sent = 0  # the same once more
    other.send("hello")
    assert one.receive() == "hello"
    with pytest.raises(EOFError, match="not signed"):
        one.receive()
    one, other = lines(b"key", b"key")
    one.send("hello")  # what the driver says, sent back to it
    until(lambda: len(other.sock.recv(1000, socket.MSG_PEEK)) > 50, SOON_S)
    other.sock.sendall(other.sock.recv(1000))
    with pytest.raises(EOFError, match="not signed"):
        one.receive()
    one, other = lines(b"key", b"key")
    other.send("hello")  # what was said in one connection, in another one
    until(lambda: len(one.sock.recv(1000, socket.MSG_PEEK)) > 50, SOON_S)
    said = one.sock.recv(1000)
    one, other = lines(b"key", b"key")
    other.sock.sendall(said)
    with pytest.raises(EOFError, match="not signed"):
        one.receive()


def test_slow_strangers(monkeypatch):
    monkeypatch.setattr(line, "HELLO_S", 0.5)
    one, other = pair()

    def drip():
        with contextlib.suppress(OSError):
            for _ in range(200):
                other.send(b"x")
                time.sleep(0.1)

    threading.Thread(target=drip, daemon=True).start()
    begin = time.monotonic()
    with pytest.raises(OSError, match="timed out"):
        line.Line(one, b"key", True).receive()
    one.close()
    assert 0.4 < time.monotonic() - begin < 5


def test_strangers_at_the_driver(job):
    """They come and say nothing, or nonsense; those that know the secret are served."""
    address = job.board.contact[:2]
    held = [socket.create_connection(address) for _ in range(5)]
    for sock in held[:3]:
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n" + bytes(100))
    tasks = [Fake(job, partition) for partition in range(3)]
    job.gather()
    tell(job)
    assert [one.line.receive().orders.rank for one in tasks] == [0, 1, 2]


def test_lines():
    cut = task.Lines("stdout", 3, False)
    assert cut.take(b"a\nb") == b"[3]<stdout>:a\n" and cut.take(b"c\r") == b""
    assert cut.take(b"\nd\re\n") == b"[3]<stdout>:bc\r\n[3]<stdout>:d\r[3]<stdout>:e\n"
    assert cut.take(b"f") == b"" and cut.take(b"", last=True) == b"[3]<stdout>:f\n"
    assert cut.take(b"", last=True) == b""
    long = b"x" * task.LINE_BYTES
    assert cut.take(long) == b"[3]<stdout>:" + long + b"\n"


@pytest.mark.long
def test_torch(run):
    pytest.importorskip("torch")
    first, second = run(engine_train.steps, num_proc=2, start_timeout=300)
    assert first == second
