# SPDX-License-Identifier: Apache-2.0
"""What is asked of the caller's SparkContext, and what a run makes of the caller's arguments."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

_PYTHONS = re.compile(r"(?!java|org|scala)[A-Za-z_][\w.]*(Error|Exception): .")
START_S = 600  # where nobody says how long tasks may take to start


def slots(context: Any) -> int | None:
    """How many tasks the cluster can run at a time; None where it does not say."""
    try:
        jvm = context._jsc.sc()
        profile = jvm.resourceProfileManager().defaultResourceProfile()
        return int(jvm.maxNumConcurrentTasks(profile))
    except Exception:
        return None


def text_of(error: BaseException | None) -> str:
    """What Spark says, without the stacks of its own calls."""
    if error is None:
        return "no reason is known"
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage() if java is not None else error)
    first = next((line for line in text.splitlines() if line.strip()), "it said nothing")
    raised = [line for line in text.splitlines() if _PYTHONS.match(line) and line != first]
    return f"{first} {raised[-1]}" if raised else first


def python_of(context: Any) -> str | None:
    """The Python of the ranks: this process's, as with Horovod; None if Spark has another one."""
    told = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    return None if told else sys.executable


def match_workers() -> None:
    """On this machine Spark's own Python workers are this Python, where Spark is told no other one:
    else they are the `python3` of PATH, which may lack what this one has. On a cluster it may be at
    another path, or not there."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # Spark Connect has none
    if context is not None and context.master.startswith("local") and python_of(context):
        context.pythonExec = sys.executable


def active_context() -> Any:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        raise RuntimeError(
            "there is no active SparkContext: make a SparkSession first. (One of Spark Connect has "
            "none: run() needs a session that runs in this process)"
        )
    return context


def addresses_of(context: Any) -> tuple[str, str]:
    """Where executors reach the driver, and what it listens at for that."""
    conf = context.getConf()
    host = conf.get("spark.driver.host")
    return host, conf.get("spark.driver.bindAddress", host)


def announce(size: int, given: int | None, verbose: int) -> None:
    """How many ranks there are; given: num_proc."""
    if verbose >= 1:
        inferred = " (inferred from spark.default.parallelism)" if given is None else ""
        logging.info("Running %d processes%s...", size, inferred)


def start_timeout_of(given_s: float | None) -> float:
    """Seconds."""
    if given_s is not None:
        return given_s
    return float(os.environ.get("HOROVOD_SPARK_START_TIMEOUT") or START_S)


def late(started: int, size: int, start_s: float, room: int | None) -> NoReturn:
    """Not all tasks have started in time; room: slots()."""
    if room is None:
        why = "is there room for them?"
    else:
        held = "" if room < size else ", of which others may hold some"
        why = f"the cluster has room for {room} tasks at a time{held}"
    raise TimeoutError(
        f"Timed out waiting for Spark tasks to start: {started} of {size} have in {start_s:g} s; "
        f"{why}. Ask for a smaller num_proc, give Spark more executors or cores, or run() a longer "
        "start_timeout"
    )


def streams_of(stdout: Any, stderr: Any) -> dict[str, Any]:
    """Those that the caller has given."""
    return {n: s for n, s in (("stdout", stdout), ("stderr", stderr)) if s is not None}


def variables_of(nics: Iterable[str] | None, env: Mapping[str, Any] | None) -> dict[str, str]:
    """The variables of the ranks: env, and the interface of nics that they listen at."""
    names = sorted(nics) if isinstance(nics, (set, frozenset)) else list(nics or ())
    if len(names) > 1:
        warnings.warn(f"nics: ranks listen at one of them, {names[0]}", stacklevel=3)
    given = {name: str(value) for name, value in (env or {}).items() if value is not None}
    return {**({"HALAY_INTERFACE": names[0]} if names else {}), **given}


def failures_of(context: Any) -> int:
    """So often Spark lets a task fail: spark.task.maxFailures, and once in local[N]."""
    return int(context._jsc.sc().taskScheduler().maxTaskFailures())


def is_cancelled(error: BaseException | None) -> bool:
    """Whether somebody has ended the job, or the context: Spark says so in words only."""
    return re.search(r"Job \d+ cancelled", text_of(error)) is not None


def cancel(context: Any, group: str) -> None:
    """Ends the group's jobs, if Spark is still there."""
    with contextlib.suppress(Exception):
        context.cancelJobGroup(group)
