# SPDX-License-Identifier: Apache-2.0
"""What each option of horovodrun does under Halay.

An option is done by horovodrun itself, goes to halayrun, becomes a variable of the ranks, asks for
what is done anyway, or has no effect for a reason, which one line tells when it is given.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, NamedTuple

from . import settings

HERE, STARTER, VARIABLE, ANYWAY, NONE = "here", "halayrun", "variable", "done anyway", "no effect"


class Flag(NamedTuple):
    """One option. `to` is of halayrun (STARTER), or the variable HOROVOD_<to> (VARIABLE).

    take: makes a value of a text (ValueError: it makes no sense); None: a switch, whose value is
    `switch`. put: the variable's text of a value. alone: of options with the same word, one only.
    """

    names: tuple[str, ...]
    dest: str
    kind: str
    text: str
    to: str = ""
    take: Callable[[str], Any] | None = None
    switch: bool = True
    nargs: int | None = None
    alone: str = ""
    put: Callable[[Any], str] = str
    metavar: str | None = None


def _whole(least: int, most: int | None = None) -> Callable[[str], int]:
    upper = "" if most is None else f" to {most}"

    def take(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least or (most is not None and number > most):
            raise ValueError(f"must be a whole number from {least}{upper or ' on'}, not {text!r}")
        return number

    return take


def _number(least: float, most: float) -> Callable[[str], float]:
    upper = " on" if math.isinf(most) else f" to {most:g}"

    def take(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not least <= number <= most or math.isinf(number):
            raise ValueError(f"must be a number from {least:g}{upper}, not {text!r}")
        return number

    return take


def _text(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ValueError(f"must be names of network interfaces with commas between, not {text!r}")
    return names


LOG_LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL")


def _level(text: str) -> str:
    if text not in LOG_LEVELS:
        raise ValueError(f"must be one of {', '.join(LOG_LEVELS)}, not {text!r}")
    return text


def _switch(value: Any) -> str:
    return "1" if value else "0"


def _inverse(value: Any) -> str:
    return "0" if value else "1"


def _first(names: Iterable[str]) -> str:
    return next(iter(names))


def _mebibytes(value: int) -> str:
    return str(value * 1024 * 1024)


def _pair(
    name: str, dest: str, text: str, no: str, to: str, put: Callable[[Any], str] = _switch
) -> list[Flag]:
    """--name, and --no-name, which takes it back: from a file, too."""
    return [
        Flag((f"--{name}",), dest, VARIABLE, text, to, alone=dest, put=put),
        Flag((f"--no-{name}",), dest, VARIABLE, no, to, switch=False, alone=dest, put=put),
    ]


_COUNT, _POSITIVE = _whole(0), _whole(1)
_TWO_LEVELS = "nothing: the choice is Halay's anyway"

FLAGS: list[Flag] = [
    Flag(("-v", "--version"), "version", HERE, "prints the versions"),
    Flag(("-np", "--num-proc"), "num_proc", STARTER, "how many ranks; left out: as many as the "
         "hosts or the allocation have places", "-np", _POSITIVE, metavar="N"),
    Flag(("-cb", "--check-build"), "check_build", HERE, "prints which frameworks are there, and "
         "what the probes say"),
    Flag(("--disable-cache",), "disable_cache", NONE, "no host is tried before the start, so "
         "nothing of it is kept"),
    Flag(("--start-timeout",), "start_timeout", VARIABLE, "how many seconds hvd.init() waits for "
         "all ranks", "START_TIMEOUT", _POSITIVE, metavar="S"),
    Flag(("--network-interfaces",), "nics", VARIABLE, "the interface at which ranks listen for "
         "other hosts: the first, for a rank listens at one", "GLOO_IFACE", _names,
         put=_first, metavar="NAMES"),
    Flag(("--network-interface",), "nics", VARIABLE, "the same; again for more", "GLOO_IFACE",
         _names, put=_first, metavar="NAME"),
    Flag(("--output-filename",), "output_filename", STARTER, "what ranks print goes to "
         "FOLDER/rank.N/stdout and stderr, too", "--output-filename", _text, metavar="FOLDER"),
    Flag(("--verbose",), "verbose", STARTER, "says what is started and how it ended", "-v"),
    Flag(("--config-file",), "config_file", HERE, "options from a YAML file, where the command "
         "line does not say otherwise", take=_text, metavar="FILE"),
    Flag(("-p", "--ssh-port"), "ssh_port", STARTER, "for mpirun and prterun, which reach other "
         "hosts by ssh; srun and jsrun use none", "OMPI_MCA_plm_rsh_args", _whole(1, 65535),
         metavar="PORT"),
    Flag(("-i", "--ssh-identity-file"), "ssh_identity_file", STARTER, "the same",
         "OMPI_MCA_plm_rsh_args", _text, metavar="FILE"),
    Flag(("--fusion-threshold-mb",), "fusion_threshold_mb", VARIABLE, "MiB of the buffers for "
         "small tensors; 0: none", "FUSION_THRESHOLD", _COUNT, put=_mebibytes, metavar="N"),
    Flag(("--cycle-time-ms",), "cycle_time_ms", VARIABLE, "", "CYCLE_TIME", _number(0, math.inf),
         metavar="N"),
    Flag(("--cache-capacity",), "cache_capacity", VARIABLE, "", "CACHE_CAPACITY", _COUNT,
         metavar="N"),
    *_pair("hierarchical-allreduce", "hierarchical_allreduce", "", _TWO_LEVELS,
           "HIERARCHICAL_ALLREDUCE"),
    *_pair("hierarchical-allgather", "hierarchical_allgather", "", _TWO_LEVELS,
           "HIERARCHICAL_ALLGATHER"),
    *_pair("torus-allreduce", "torus_allreduce", "", _TWO_LEVELS, "TORUS_ALLREDUCE"),
    *_pair("autotune", "autotune", "tunes the size of fused groups while a program trains, and "
           "keeps it for the next job", "tunes nothing", "AUTOTUNE"),
    Flag(("--autotune-log-file",), "autotune_log_file", VARIABLE, "what was measured, with "
         "Horovod's columns", "AUTOTUNE_LOG", _text, metavar="FILE"),
    Flag(("--autotune-warmup-samples",), "autotune_warmup_samples", VARIABLE, "samples before "
         "the first that counts", "AUTOTUNE_WARMUP_SAMPLES", _COUNT, metavar="N"),
    Flag(("--autotune-steps-per-sample",), "autotune_steps_per_sample", VARIABLE, "steps of a "
         "sample, up to 128", "AUTOTUNE_STEPS_PER_SAMPLE", _POSITIVE, metavar="N"),
    Flag(("--autotune-bayes-opt-max-samples",), "autotune_bayes_opt_max_samples", VARIABLE, "",
         "AUTOTUNE_BAYES_OPT_MAX_SAMPLES", _COUNT, metavar="N"),
    Flag(("--autotune-gaussian-process-noise",), "autotune_gaussian_process_noise", VARIABLE, "",
         "AUTOTUNE_GAUSSIAN_PROCESS_NOISE", _number(0, 1), metavar="X"),
    Flag(("--min-np", "--min-num-proc"), "min_num_proc", STARTER, "ranks may change, and the job "
         "goes on while there are so many", "--min-np", _POSITIVE, metavar="N"),
    Flag(("--max-np", "--max-num-proc"), "max_num_proc", STARTER, "never more ranks than this",
         "--max-np", _POSITIVE, metavar="N"),
    Flag(("--slots-per-host",), "slots", STARTER, "places on a host of the discovery script that "
         "has no number", "--slots-per-host", _POSITIVE, metavar="N"),
    Flag(("--elastic-timeout",), "elastic_timeout", STARTER, "how many seconds there may be fewer "
         "than --min-np ranks", "--elastic-timeout", _POSITIVE, metavar="S"),
    Flag(("--reset-limit",), "reset_limit", STARTER, "how often the ranks may meet again",
         "--reset-limit", _COUNT, metavar="N"),
    Flag(("--blacklist-cooldown-range",), "cooldown_range", STARTER, "seconds until a host that "
         "has failed is used again, from and to; left out: never", "--blacklist-cooldown-range",
         _number(0.01, 86400), nargs=2),
    Flag(("--timeline-filename",), "timeline_filename", VARIABLE, "a file for the timeline, of "
         "each rank", "TIMELINE", _text, metavar="FILE"),
    *_pair("timeline-mark-cycles", "timeline_mark_cycles", "marks where a round or a programme "
           "begins; with --timeline-filename", "no such marks", "TIMELINE_MARK_CYCLES"),
    Flag(("--no-stall-check",), "no_stall_check", VARIABLE, "no notices of which rank has not "
         "submitted what", "STALL_CHECK_DISABLE", alone="no_stall_check", put=_switch),
    Flag(("--stall-check",), "no_stall_check", VARIABLE, "with such notices, as without the "
         "option", "STALL_CHECK_DISABLE", switch=False, alone="no_stall_check", put=_switch),
    Flag(("--stall-check-warning-time-seconds",), "stall_check_warning_time_seconds", VARIABLE,
         "the seconds before such a notice; not given: 1", "STALL_CHECK_TIME_SECONDS", _COUNT,
         metavar="S"),
    Flag(("--stall-check-shutdown-time-seconds",), "stall_check_shutdown_time_seconds", VARIABLE,
         "how many seconds a call may wait for other ranks; 0: 30 min",
         "STALL_SHUTDOWN_TIME_SECONDS", _COUNT, metavar="S"),
    *_pair("mpi-threads-disable", "mpi_threads_disable", "", "nothing: there are no threads of "
           "MPI", "MPI_THREADS_DISABLE"),
    Flag(("--mpi-args",), "mpi_args", NONE, "mpirun, where it starts the ranks, takes the "
         "variables OMPI_MCA_... and PRTE_MCA_...", take=_text, metavar="WORDS"),
    Flag(("--tcp",), "tcp_flag", STARTER, "no RDMA: HALAY_TRANSPORT=shm+tcp, NCCL_IB_DISABLE=1",
         "HALAY_TRANSPORT"),
    Flag(("--binding-args",), "binding_args", NONE, "halayrun binds ranks by itself (HALAY_BIND); "
         "srun, jsrun and mpirun take their own variables", take=_text, metavar="WORDS"),
    Flag(("--num-nccl-streams",), "num_nccl_streams", VARIABLE, "", "NUM_NCCL_STREAMS", _COUNT,
         metavar="N"),
    Flag(("--thread-affinity",), "thread_affinity", VARIABLE, "", "THREAD_AFFINITY", _COUNT,
         metavar="N"),
    Flag(("--gloo-timeout-seconds",), "gloo_timeout_seconds", VARIABLE, "as --start-timeout, "
         "before which it goes", "GLOO_TIMEOUT_SECONDS", _COUNT, metavar="S"),
    Flag(("--log-level",), "log_level", VARIABLE, "what is printed", "LOG_LEVEL", _level,
         metavar="LEVEL"),
    Flag(("--log-with-timestamp", "--no-log-hide-timestamp"), "log_with_timestamp", VARIABLE, "",
         "LOG_HIDE_TIME", alone="log_with_timestamp", put=_inverse),
    Flag(("--log-without-timestamp", "--log-hide-timestamp"), "log_with_timestamp", VARIABLE,
         "messages have no time", "LOG_HIDE_TIME", switch=False, alone="log_with_timestamp",
         put=_inverse),
    Flag(("-prefix-timestamp", "--prefix-output-with-timestamp"), "prefix_output_with_timestamp",
         STARTER, "begins each line of output with the time and the rank", "--prefix-timestamp"),
    Flag(("-H", "--hosts"), "hosts", STARTER, "where: host:slots with commas between", "-H",
         _text, alone="hosts", metavar="HOSTS"),
    Flag(("-hostfile", "--hostfile"), "hostfile", STARTER, "the same from a file of lines "
         "\"host slots=N\"", "--hostfile", _text, alone="hosts", metavar="FILE"),
    Flag(("--host-discovery-script",), "host_discovery_script", STARTER, "prints a line host:slots "
         "for each host; ranks may change", "--host-discovery-script", _text, alone="hosts",
         metavar="COMMAND"),
    Flag(("--gloo",), "use_gloo", ANYWAY, "Halay stands in for Gloo", alone="controller"),
    Flag(("--mpi",), "use_mpi", VARIABLE, "mpi_built() and mpi_enabled() are True; who starts the "
         "ranks is chosen as without it", "CONTROLLER", alone="controller", put=lambda _: "mpi"),
    Flag(("--jsrun",), "use_jsrun", STARTER, "jsrun starts the ranks, or it is refused",
         "--launcher jsrun", alone="controller"),
]  # fmt: skip


def effect(flag: Flag) -> tuple[str, str]:
    """Its kind in truth, and what it does or why it does not: a variable may have no effect."""
    if flag.kind != VARIABLE:
        return flag.kind, flag.text
    setting = settings.SETTINGS[flag.to]
    if setting.kind != settings.NONE:
        return VARIABLE, flag.text
    if not flag.switch:
        return ANYWAY, flag.text
    return NONE, setting.text


def given(values: Mapping[str, Any]) -> list[tuple[Flag, Any]]:
    """The options that these values, by dest, are of."""
    found: dict[str, tuple[Flag, Any]] = {}
    for flag in FLAGS:
        value = values.get(flag.dest)
        if flag.take is None:
            value = value if value is flag.switch else None
        if value is not None and value != [] and value != set():
            found.setdefault(flag.dest, (flag, value))
    return list(found.values())


def notes(values: Mapping[str, Any]) -> list[str]:
    """A line for each option that was given and has no effect, or not all of it."""
    said = []
    for flag, value in given(values):
        kind, text = effect(flag)
        if kind == NONE:
            said.append(f"{flag.names[-1]} has no effect: {text}")
        elif flag.dest == "nics" and len(value) > 1:
            said.append(
                f"{flag.names[-1]} {','.join(value)}: a rank listens at one, {_first(value)}; "
                "of RDMA ports it uses all that are nearest (HALAY_VERBS)"
            )
    return said


def variables(values: Mapping[str, Any]) -> dict[str, str]:
    """HOROVOD_<name> of what was given, whatever comes of it."""
    return {
        f"HOROVOD_{flag.to}": flag.put(value)
        for flag, value in given(values)
        if flag.kind == VARIABLE
    }


def passed(values: Mapping[str, Any]) -> dict[str, str]:
    """The variables for the ranks: not those that have no effect, which horovodrun has told of."""
    return {
        name: value
        for name, value in variables(values).items()
        if settings.SETTINGS[name[len("HOROVOD_") :]].kind != settings.NONE
    }


def _row(flag: Flag) -> Sequence[str]:
    kind, text = effect(flag)
    where = {STARTER: f"→ {flag.to}", VARIABLE: f"→ HOROVOD_{flag.to}"}.get(kind, kind)
    value = (flag.metavar or "A B") if flag.take else ""
    return ", ".join(flag.names) + (f" {value}" if value else ""), where, text


def table() -> str:
    """The options as a Markdown table."""
    rows = ["| option | under Halay | what |", "|---|---|---|"]
    return "\n".join(rows + [f"| {' | '.join(_row(flag))} |" for flag in FLAGS])
