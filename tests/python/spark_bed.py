# SPDX-License-Identifier: Apache-2.0
"""The Spark of test_spark*.py: two executors, which are processes on this machine; and what tests
ask of these.
"""

import contextlib
import os
import pathlib
import shutil
import sys

import pytest
import watch
from conftest import HERE, SOURCE

SLOTS = 4
FAILURES = 2  # so often Spark lets a task fail
LATE_S = 300  # where others have the cores
EXECUTOR = b"CoarseGrainedExecutorBackend"
AGENTS = (b"halayrun", b"halay._agents")
SOON_S = 20  # "within seconds", under a load of 20


@contextlib.contextmanager
def cluster(events):
    """A SparkContext whose events are logged in that folder."""
    import pyspark
    from pyspark.sql import SparkSession

    from halay.spark import driver, session

    patch = pytest.MonkeyPatch()
    patch.setenv("TEST_SPARK", str(os.getpid()))  # before the JVM starts
    patch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCE / "python"), str(HERE)]))
    patch.setenv("PYSPARK_PYTHON", sys.executable)
    patch.setenv("OMP_NUM_THREADS", "1")
    patch.setattr(driver, "GRACE_S", SOON_S)
    settings = {
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
        "spark.driver.memory": "512m",
        "spark.sql.warehouse.dir": str(events / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.python.task.killTimeout": "300s",  # what ends ranks is the line to the driver
        "spark.task.maxFailures": str(FAILURES),
    }
    builder = SparkSession.builder.master(f"local-cluster[2,{SLOTS // 2},1024]")
    spark = builder.config(map=settings).getOrCreate()
    found = spark.sparkContext
    found.setLogLevel("OFF")
    patch.delenv("PYSPARK_PYTHON")  # ranks have this process's all the same
    work = pathlib.Path(os.environ.get("SPARK_HOME") or pyspark.__path__[0]) / "work"
    found.event_log, found.work = events, work / found.applicationId
    try:
        until(lambda: session.slots(found) == SLOTS)  # both executors have come
        yield found
    finally:
        spark.stop()
        shutil.rmtree(found.work, ignore_errors=True)
        patch.undo()


def pyspark_or_skip():
    """pyspark. The module that calls this is skipped without it, or without Java."""
    found = pytest.importorskip("pyspark", reason="pyspark is not installed: pip install pyspark")
    if shutil.which("java") is None:
        pytest.skip(
            "Spark needs Java: apt-get install openjdk-17-jre-headless", allow_module_level=True
        )
    return found


def until(condition, within_s=LATE_S):
    watch.until(condition, within_s)


def processes():
    """pid: (parent's pid, command line)"""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            status = (path / "stat").read_text().rpartition(")")[2].split()
            if status[0] != "Z":
                found[int(path.name)] = (int(status[1]), (path / "cmdline").read_bytes())
    return found


def ranks():
    """Of this test's Spark: ranks, guards and what they have started."""
    table, found = processes(), []
    for pid, (_, words) in table.items():
        if any(word in words for word in (b"halay.spark.child", *AGENTS, b"86399")):
            with contextlib.suppress(OSError):
                env = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
                if f"TEST_SPARK={os.getpid()}\0".encode() in env:
                    found.append(pid)
    return found


def parents(pid, count):
    """Its parent, that one's parent, ..."""
    table, found = processes(), []
    for _ in range(count):
        pid = table[pid][0]
        found.append(pid)
    return found


def above(pid, word):
    """The first of those that have started it whose command line has the word."""
    table = processes()
    while word not in table[pid][1]:
        pid = table[pid][0]
    return pid
