# SPDX-License-Identifier: Apache-2.0
"""horovodrun: its whole command line, over halayrun (flags.py says what each option does)."""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from .. import __version__
from . import RELEASE, config, flags, probes
from .launch import Arguments, environment, find_halayrun, is_elastic, launch, lines, words_of

NAME = "horovodrun"
_FRAMEWORKS = {
    "TensorFlow": "tensorflow",
    "PyTorch": "torch",
    "MXNet": "mxnet",
    "JAX": "jax",
}
_GIVEN_ONCE = ("use_gloo", "use_mpi", "use_jsrun", "verbose", "disable_cache", "tcp_flag",
               "prefix_output_with_timestamp", "check_build")  # fmt: skip


class _Parser(argparse.ArgumentParser):
    """What is wrong is one line."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {NAME} --help")


def _typed(take: Callable[[str], Any]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return take(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


class _Append(argparse.Action):
    """Of lists, each name once."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        old = getattr(namespace, self.dest) or []
        setattr(namespace, self.dest, list(dict.fromkeys([*old, *values])))


def _add(group: Any, flag: flags.Flag) -> None:
    help_text = flags.effect(flag)[1].replace("%", "%%")
    if flag.take is None:
        group.add_argument(*flag.names, dest=flag.dest, action="store_const", const=flag.switch,
                           default=None, help=help_text)  # fmt: skip
        return
    more: dict[str, Any] = {} if flag.nargs is None else {"nargs": flag.nargs}
    if flag.dest == "nics":
        more["action"] = _Append
    group.add_argument(*flag.names, dest=flag.dest, type=_typed(flag.take), default=None,
                       metavar=flag.metavar or ("A", "B"), help=help_text, **more)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """A parser of all of horovodrun's options, none of which has a default."""
    made = _Parser(
        prog=NAME,
        usage=f"{NAME} -np N [options] program [arguments...]",
        description="Starts the ranks of a program: here, or by srun, jsrun, prterun or mpirun.",
    )
    alone: dict[str, Any] = {}
    for flag in flags.FLAGS:
        if flag.dest == "version":
            version = f"{RELEASE} (Halay {__version__})"
            made.add_argument(*flag.names, action="version", version=version, help=flag.text)
            continue
        if flag.alone and flag.alone not in alone:
            alone[flag.alone] = made.add_mutually_exclusive_group()
        _add(alone.get(flag.alone, made), flag)
    made.add_argument("command", nargs=argparse.REMAINDER, help="the program and its arguments")
    return made


def _together(found: argparse.Namespace) -> None:
    """ValueError where options contradict each other."""
    ranks, least, most = found.num_proc, found.min_num_proc, found.max_num_proc
    if least is not None and ranks is not None and least > ranks:
        raise ValueError(f"--min-np {least} is more than -np {ranks}")
    if most is not None and max(ranks or 0, least or 0) > most:
        raise ValueError(f"--max-np {most} is less than -np or --min-np")
    if found.cooldown_range and found.cooldown_range[0] > found.cooldown_range[1]:
        first, last = found.cooldown_range
        raise ValueError(f"--blacklist-cooldown-range {first:g} {last:g}: the first is the shorter")


def _add_file(found: argparse.Namespace) -> None:
    """What the command line says goes before the file."""
    said = config.read(found.config_file)
    if any((found.use_gloo, found.use_mpi, found.use_jsrun)):
        said = {dest: value for dest, value in said.items() if not dest.startswith("use_")}
    for dest, value in said.items():
        if getattr(found, dest) is None:
            setattr(found, dest, value)


def _unknown(option: str) -> ValueError:
    names = [name for flag in flags.FLAGS for name in flag.names]
    near = difflib.get_close_matches(option.partition("=")[0], names, 1)
    remedy = f"did you mean {near[0]}?" if near else f"see {NAME} --help"
    return ValueError(f"there is no option {option}: {remedy}")


def parse_args(words: Sequence[str] | None = None) -> argparse.Namespace:
    """What horovodrun's own returns. words: those of this process if left out.

    ValueError: an option, or the --config-file, makes no sense.
    """
    found, unknown = parser().parse_known_args(words)
    if unknown:
        raise _unknown(unknown[0])
    if found.command == ["--"]:
        found.command = []
    if found.config_file is not None:
        _add_file(found)
    _together(found)
    for dest in _GIVEN_ONCE:
        setattr(found, dest, bool(getattr(found, dest)))
    found.run_func = found.executable = None
    return found


def check_build() -> str:
    """What horovodrun --check-build prints: as Horovod's, for programs that read it."""

    def rows(marks: dict[str, bool]) -> str:
        return "\n".join(f"    [{'X' if there else ' '}] {name}" for name, there in marks.items())

    found = {name: bool(importlib.util.find_spec(m)) for name, m in _FRAMEWORKS.items()}
    mpi, gloo = probes.mpi_built(), probes.gloo_built()
    operations = {"NCCL": bool(probes.nccl_built()), "DDL": probes.ddl_built(),
                  "CCL": probes.ccl_built(), "MPI": mpi, "Gloo": gloo}  # fmt: skip
    return (
        f"Horovod v{RELEASE}, by Halay {__version__}:\n\n"
        f"Available Frameworks:\n{rows(found)}\n\n"
        f"Available Controllers:\n{rows({'MPI': mpi, 'Gloo': gloo})}\n\n"
        f"Available Tensor Operations:\n{rows(operations)}\n\n"
        "Halay stands in for Gloo, and moves GPU memory itself, by NCCL too where it is there"
    )


def _places(hosts: str) -> int:
    """Of "host[:slots],..."; what is none is halayrun's to refuse."""
    slots = [host.partition(":")[2] or "1" for host in hosts.split(",")]
    return sum(int(number) for number in slots if number.isdecimal())


def arguments_of(found: Any) -> Arguments:
    """For launch(): what parse_args() has read, and horovodrun's own way with hosts that fail."""
    arguments = Arguments()
    arguments.__dict__.update(vars(found))
    if is_elastic(arguments):
        arguments.blacklist = "hosts"
        if arguments.hosts and found.max_num_proc is None:  # then all places are used
            most = max(_places(arguments.hosts), found.num_proc or 1)
            arguments.__dict__["max_num_proc"] = most
    return arguments


def run_elastic(found: Any) -> list[Any] | None:
    """Runs what parse_args() has read, as a job whose ranks come and go."""
    arguments = arguments_of(found)
    if not is_elastic(arguments):
        raise ValueError("an elastic job needs --min-np, --max-np or --host-discovery-script")
    return launch(arguments)


def main(words: Sequence[str] | None = None) -> int:
    """The status where nothing was started; else this process becomes halayrun."""
    try:
        found = parse_args(words)
        if found.check_build:
            print(check_build(), flush=True)
            return 0
        if not found.command:
            raise ValueError(f"say what to run: {NAME} -np N program [arguments...]")
        arguments = arguments_of(found)
        command = [find_halayrun(), *lines(), *words_of(arguments), *found.command]
        env = environment(arguments)
        for note in flags.notes(vars(found)):
            print(f"{NAME}: {note}", file=sys.stderr)
        sys.stderr.flush()
        os.execve(command[0], command, env)
    except (ValueError, NotImplementedError) as error:
        print(f"{NAME}: {error}", file=sys.stderr, flush=True)
        return 2
    except OSError as error:
        print(f"{NAME}: {error}", file=sys.stderr, flush=True)
        return 127 if isinstance(error, FileNotFoundError) else 126
