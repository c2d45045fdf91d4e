# SPDX-License-Identifier: Apache-2.0
"""horovodrun's command line, as far as it means something here: python -m halay.horovod --run.

What has to do with ssh, MPI, Gloo, network interfaces or Horovod's cycle is taken and does nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from .launch import Arguments, is_elastic, launch

# Options that are variables for the ranks, which the table of settings explains.
_VARIABLES = {
    "--timeline-filename": "HOROVOD_TIMELINE",
    "--stall-check-warning-time-seconds": "HOROVOD_STALL_CHECK_TIME_SECONDS",
    "--stall-check-shutdown-time-seconds": "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
    "--gloo-timeout-seconds": "HOROVOD_GLOO_TIMEOUT_SECONDS",
    "--start-timeout": "HOROVOD_GLOO_TIMEOUT_SECONDS",
    "--log-level": "HOROVOD_LOG_LEVEL",
}
_FLAG_VARIABLES = {
    "--timeline-mark-cycles": "HOROVOD_TIMELINE_MARK_CYCLES",
    "--no-stall-check": "HOROVOD_STALL_CHECK_DISABLE",
}
_IDLE = ("--ssh-port", "--ssh-identity-file", "--network-interface", "--network-interfaces",
         "--mpi-args", "--fusion-threshold-mb", "--cycle-time-ms", "--cache-capacity",
         "--num-nccl-streams", "--thread-affinity", "--binding-args")  # fmt: skip
_IDLE_FLAGS = ("--gloo", "--mpi", "--jsrun", "--tcp", "--disable-cache", "--log-with-timestamp",
               "--log-without-timestamp", "--stall-check", "--no-timeline-mark-cycles",
               "--autotune", "--no-autotune")  # fmt: skip


def _dest(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m halay.horovod --run", allow_abbrev=False)
    add = parser.add_argument
    add("-np", "--num-proc", dest="num_proc", type=int, help="how many ranks")
    add("-H", "--hosts", dest="hosts", help="names of this machine, with :slots")
    add("-hostfile", "--hostfile", dest="hostfile")
    add("--verbose", action="store_true")
    add("--min-np", "--min-num-proc", dest="min_num_proc", type=int,
        help="go on as long as there are so many ranks")  # fmt: skip
    add("--max-np", "--max-num-proc", dest="max_num_proc", type=int, help="never more ranks")
    add("--host-discovery-script", help="prints a line host:slots for each host")
    add("--slots-per-host", dest="slots", type=int, help="of hosts without a number")
    add("--elastic-timeout", type=int, help="seconds to wait for --min-np ranks")
    add("--reset-limit", type=int, help="how often the ranks may meet again")
    add("--blacklist-cooldown-range", dest="cooldown_range", type=float, nargs=2,
        metavar=("SHORTEST", "LONGEST"), help="seconds until a place is used again")  # fmt: skip
    for option in _VARIABLES:
        add(option)
    for option in _FLAG_VARIABLES:
        add(option, action="store_true")
    for option in _IDLE:
        add(option, help=argparse.SUPPRESS)
    for option in _IDLE_FLAGS:
        add(option, action="store_true", help=argparse.SUPPRESS)
    add("command", nargs=argparse.REMAINDER, help="the program and its arguments")
    return parser


def parse_args(words: Sequence[str] | None = None) -> argparse.Namespace:
    """What horovodrun's own returns; words: those of this process if left out."""
    parser = _parser()
    found = parser.parse_args(words)
    if not found.command:
        parser.error("say what to run")
    found.run_func = found.executable = None
    found.env = {v: getattr(found, _dest(o)) for o, v in _VARIABLES.items()}
    found.env.update({v: "1" for o, v in _FLAG_VARIABLES.items() if getattr(found, _dest(o))})
    found.env = {variable: value for variable, value in found.env.items() if value is not None}
    return found


def _places(hosts: str) -> int:
    """Of "host[:slots],..."; what is none is halayrun's to refuse."""
    slots = [host.partition(":")[2] or "1" for host in hosts.split(",")]
    return sum(int(number) for number in slots if number.isdecimal())


def _arguments(found: Any) -> Arguments:
    words = dict(vars(found))
    arguments = Arguments()
    arguments.__dict__.update(words)
    if is_elastic(arguments):
        arguments.blacklist = "hosts"
        if words["hosts"] and words["max_num_proc"] is None:  # then all places are used
            most = max(_places(words["hosts"]), words["num_proc"] or 1)
            arguments.__dict__["max_num_proc"] = most
    return arguments


def run_elastic(found: Any) -> list[Any] | None:
    """Runs what parse_args() has read, as a job whose ranks come and go."""
    arguments = _arguments(found)
    if not is_elastic(arguments):
        raise ValueError("an elastic job needs --min-np, --max-np or --host-discovery-script")
    return launch(arguments)


def main(words: Sequence[str]) -> int:
    """The exit status."""
    try:
        launch(_arguments(parse_args(words)))
    except (ValueError, NotImplementedError, OSError) as error:
        print(f"halay: {error}", file=sys.stderr)
        return os.EX_USAGE
    except RuntimeError:
        return 1  # halayrun has said why
    return 0
