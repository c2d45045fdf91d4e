# SPDX-License-Identifier: Apache-2.0
"""What each HOROVOD_* variable does under Halay.

A setting is used (it is put into Halay's own, unless that is set too), read by the package itself,
or without effect for a reason. What a user sets that is not used is reported once a
process, on rank 0: a job that asks for something and does not get it should know.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import MutableMapping
from typing import Callable, NamedTuple

START_S = 30  # how long Horovod's init() waits
USED, READ, NONE, BUILD = "used", "read", "no effect", "build"


class Setting(NamedTuple):
    """What becomes of HOROVOD_<name>, and for USED: of which variable of Halay, with what value.

    A variable with "=WORD:" takes several such words; they count where HOROVOD_AUTOTUNE is on.

    A value that `to` makes None of is one that asks for what Halay does anyway. Where a setting
    without effect has none, a value that is "" or 0 is such a one.
    """

    kind: str
    text: str
    variable: str = ""
    to: Callable[[str], str | None] | None = None


def _level(text: str) -> str | None:
    levels = {"trace": "trace", "debug": "info", "info": "info", "warning": "warn",
              "error": "error", "fatal": "error"}  # fmt: skip
    if text.lower() not in levels:
        raise ValueError(text)
    return levels[text.lower()]


def _on(text: str) -> bool:
    """Whether a number is above 0, as Horovod reads it. ValueError: it is a word."""
    return int(text or 0) > 0


def _seconds(text: str) -> str | None:
    seconds = float(text)
    if not math.isfinite(seconds):
        raise ValueError("no number of seconds")
    return text if seconds > 0 else None


def _bytes(text: str) -> str | None:
    count = int(text)
    if count < 0:
        raise ValueError("a negative size")
    return str(count)


def _never(text: str) -> str | None:
    return "0" if _on(text) else None


def _timeline(text: str) -> str | None:
    return text if text and text != "DYNAMIC" else None


def _flag(text: str) -> str | None:
    return "1" if _on(text) else None


def _off(text: str) -> str | None:
    return None if _on(text) else "0"


def _block(text: str) -> str | None:
    steps = int(text)
    if steps < 1:
        raise ValueError("no steps")
    return str(min(steps, 128))


def _count(text: str) -> str | None:
    count = int(text)
    if count < 0:
        raise ValueError("a negative number")
    return str(count)


def _same(text: str) -> str | None:
    return text or None


_START = "HALAY_START_DEADLINE"
_BY_PLAN = (
    "Halay chooses its algorithm by a table of costs, those of two levels among them, "
    "on GPUs with NCCL in the node; HALAY_ALGORITHM overrides it"
)
_NO_CYCLE = "there is no cycle: what is submitted starts at once"
_GPU_BUILD = "of Horovod's installation; Halay takes CUDA tensors in any operation"
_NCCL = "where NCCL is used, each of the two channels of a communicator has a stream"
_NO_BAYES = "settings are compared by halving, which has no such parameter"
_NO_MPI = "Halay uses no MPI"
_LAUNCHER = "set by horovodrun; Halay sets it for programs that read it"

SETTINGS: dict[str, Setting] = {
    "STALL_SHUTDOWN_TIME_SECONDS": Setting(
        USED, "how long a call may wait for other ranks; 0: 30 min", "HALAY_DEADLINE", _seconds
    ),
    "GLOO_TIMEOUT_SECONDS": Setting(
        USED, "how long init() waits for other ranks; 300 s", _START, _seconds
    ),
    "START_TIMEOUT": Setting(
        USED, "the same, where HOROVOD_GLOO_TIMEOUT_SECONDS is not set", _START, _seconds
    ),
    # In the order of the alphabet: the first that is set counts.
    "STALL_CHECK_DISABLE": Setting(
        USED, "no notices of which rank has not submitted what", "HALAY_STALL", _never
    ),
    "STALL_CHECK_TIME_SECONDS": Setting(
        USED, "the seconds before such a notice; not set: 1", "HALAY_STALL", _seconds
    ),
    "TIMELINE": Setting(
        USED, "a file for the timeline; DYNAMIC: none yet", "HALAY_TIMELINE", _timeline
    ),
    "TIMELINE_MARK_CYCLES": Setting(
        USED, "marks where a round or a programme begins", "HALAY_TIMELINE_MARK_CYCLES", _flag
    ),
    "LOG_LEVEL": Setting(USED, "what is printed", "HALAY_DEBUG", _level),
    "GLOO_IFACE": Setting(USED, "the interface to listen on", "HALAY_INTERFACE", _same),
    "CONTROLLER": Setting(READ, "mpi: mpi_built() and mpi_enabled() are True"),
    "CPU_OPERATIONS": Setting(READ, "mpi: as HOROVOD_CONTROLLER=mpi"),
    "DYNAMIC_PROCESS_SETS": Setting(READ, "add_process_set() is allowed always"),
    "FUSION_THRESHOLD": Setting(
        USED, "bytes of the buffers for small tensors; 0: none", "HALAY_FUSION", _bytes
    ),
    "CYCLE_TIME": Setting(NONE, _NO_CYCLE),
    "CACHE_CAPACITY": Setting(NONE, "what ranks agreed on is kept by step, not by name"),
    "HIERARCHICAL_ALLREDUCE": Setting(NONE, _BY_PLAN),
    "HIERARCHICAL_ALLGATHER": Setting(NONE, _BY_PLAN),
    "TORUS_ALLREDUCE": Setting(NONE, _BY_PLAN),
    "GPU_OPERATIONS": Setting(BUILD, _GPU_BUILD),
    "GPU_ALLREDUCE": Setting(BUILD, _GPU_BUILD),
    "GPU_ALLGATHER": Setting(BUILD, _GPU_BUILD),
    "GPU_BROADCAST": Setting(BUILD, _GPU_BUILD),
    "GPU_ALLTOALL": Setting(BUILD, _GPU_BUILD),
    "GPU_REDUCESCATTER": Setting(BUILD, _GPU_BUILD),
    "DISABLE_GROUP_FUSION": Setting(NONE, "groups are reduced all or none, whatever is fused"),
    "ENABLE_ASYNC_COMPLETION": Setting(NONE, "a call is over when its result is there"),
    "ENABLE_XLA_OPS": Setting(READ, "for TensorFlow: 1 is refused at its import"),
    "BATCH_D2D_MEMCOPIES": Setting(
        NONE, "a group in a GPU's memory is always copied by one launch", to=_off
    ),
    "NUM_NCCL_STREAMS": Setting(NONE, _NCCL),
    "DISABLE_NVTX_RANGES": Setting(NONE, "no NVTX ranges are made"),
    "CCL_CACHE": Setting(NONE, "Halay uses no oneCCL"),
    "ADASUM_MPI_CHUNK_SIZE": Setting(NONE, _NO_MPI),
    "MPI_THREADS_DISABLE": Setting(NONE, _NO_MPI),
    "THREAD_AFFINITY": Setting(NONE, "Halay's one thread sleeps unless there is work"),
    "LOG_HIDE_TIME": Setting(
        NONE, "messages have no time; horovodrun --prefix-output-with-timestamp gives lines one"
    ),
    "AUTOTUNE": Setting(
        USED, "1: the size of fused groups is tuned, and kept", "HALAY_AUTOTUNE", _flag
    ),
    "AUTOTUNE_LOG": Setting(USED, "a file for what was measured", "HALAY_AUTOTUNE=log:", _same),
    "AUTOTUNE_WARMUP_SAMPLES": Setting(
        USED, "samples before the first that counts; 3", "HALAY_AUTOTUNE=warmup:", _count
    ),
    "AUTOTUNE_STEPS_PER_SAMPLE": Setting(
        USED, "steps of a sample, up to 128; 10", "HALAY_AUTOTUNE=steps:", _block
    ),
    "AUTOTUNE_BAYES_OPT_MAX_SAMPLES": Setting(NONE, _NO_BAYES),
    "AUTOTUNE_GAUSSIAN_PROCESS_NOISE": Setting(NONE, _NO_BAYES),
    "ELASTIC": Setting(READ, "set by horovodrun; a job is elastic by halayrun --min-np"),
    "ELASTIC_TIMEOUT": Setting(NONE, "halayrun --elastic-timeout says it"),
    "RANK": Setting(READ, _LAUNCHER),
    "SIZE": Setting(READ, _LAUNCHER),
    "LOCAL_RANK": Setting(READ, _LAUNCHER),
    "LOCAL_SIZE": Setting(READ, _LAUNCHER),
    "CROSS_RANK": Setting(READ, _LAUNCHER),
    "CROSS_SIZE": Setting(READ, _LAUNCHER),
    "HOSTNAME": Setting(READ, _LAUNCHER),
    "GLOO_RENDEZVOUS_ADDR": Setting(NONE, "ranks find each other through their launcher"),
    "GLOO_RENDEZVOUS_PORT": Setting(NONE, "ranks find each other through their launcher"),
    "SECRET_KEY": Setting(NONE, "ranks find each other through their launcher"),
    "TEST_GPU": Setting(READ, "of Horovod's own tests"),
}
# Of its installation, and of Spark: asked for by no program at run time, and not worth a word.
BUILD_PREFIXES = ("WITH_", "WITHOUT_", "GPU", "CUDA_", "ROCM_", "NCCL_", "BUILD_", "SPARK_")
BUILD_NAMES = ("ALLOW_MIXED_GPU_IMPL", "CMAKE", "DEBUG")

# Asked for nothing that Halay does not do anyway.
_OFF = ("", "0")
_INDIFFERENT = {
    ("MPI_THREADS_DISABLE", "1"),
    ("CACHE_CAPACITY", "1024"),
    ("NUM_NCCL_STREAMS", "1"),
}

_said: set[str] = set()
# What apply() has put into Halay's settings: taken out again when init() is called once more.
_put: dict[str, str] = {}


def find(name: str) -> Setting | None:
    """The setting HOROVOD_<name>; None if there is no such one."""
    if name in SETTINGS:
        return SETTINGS[name]
    if name.startswith(BUILD_PREFIXES) or name in BUILD_NAMES:
        return Setting(BUILD, "of Horovod's installation")
    return None


def _note(variable: str, value: str, setting: Setting, name: str) -> str | None:
    """The message about a setting without effect."""
    assert setting.kind == NONE
    note = f"{variable} has no effect: {setting.text}"
    if setting.to is None:
        return None if value in _OFF or (name, value) in _INDIFFERENT else note
    try:
        return None if setting.to(value) is None else note
    except ValueError:
        return f"{variable}={value} is not understood, and has no effect: {setting.text}"


def _use(
    variable: str, value: str, setting: Setting, env: MutableMapping[str, str], words: list[str]
) -> str | None:
    assert setting.to is not None
    try:
        made = setting.to(value)
    except ValueError:
        return f"{variable}={value} is not understood, and has no effect: {setting.text}"
    target, _, word = setting.variable.partition("=")
    if made is not None and word:
        words.append(word + made)
    elif made is not None and target not in env:
        env[target] = _put[target] = made
    return None


def apply(env: MutableMapping[str, str] | None = None) -> list[str]:
    """Puts what is set for Horovod into Halay's settings; returns what it has to say about it."""
    env = os.environ if env is None else env
    for variable, put in _put.items():
        if env.get(variable) == put:
            del env[variable]
    _put.clear()
    notes = []
    words: list[str] = []
    for variable in sorted(v for v in env if v.startswith("HOROVOD_")):
        name, value = variable[len("HOROVOD_") :], env[variable]
        setting = find(name)
        note: str | None = None
        if setting is None:
            note = f"{variable} is no setting that is known, and has no effect"
        elif setting.kind == USED:
            note = _use(variable, value, setting, env, words)
        elif setting.kind == NONE:
            note = _note(variable, value, setting, name)
        if note is not None:
            notes.append(note)
    if words and "HALAY_AUTOTUNE" in _put:  # warmup, steps, log: the last may have commas
        words.sort(reverse=True)
        env["HALAY_AUTOTUNE"] = _put["HALAY_AUTOTUNE"] = ",".join(["1", *words])
    if float(_put.get("HALAY_DEADLINE", START_S)) < START_S and _START not in env:
        env[_START] = _put[_START] = str(START_S)  # what bounds Horovod's calls, bounds no start
    return notes


def report(notes: list[str]) -> None:
    """Says each note once a process, and in a job on rank 0 only."""
    if os.environ.get("HOROVOD_RANK", "0") != "0":
        return
    for note in notes:
        if note not in _said:
            _said.add(note)
            print(f"halay: {note}", file=sys.stderr, flush=True)


def table() -> str:
    """The settings as a Markdown table."""
    rows = ["| setting | under Halay | what |", "|---|---|---|"]
    for name, setting in SETTINGS.items():
        kind = f"→ {setting.variable}" if setting.kind == USED else setting.kind
        rows.append(f"| HOROVOD_{name} | {kind} | {setting.text} |")
    return "\n".join(rows)
