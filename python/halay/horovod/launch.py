# SPDX-License-Identifier: Apache-2.0
"""horovod.run(): a function on each rank of a job on this machine, and what each returned.

The function goes to the ranks through a file, what they return comes back through one file each,
in a folder that is gone afterwards.
"""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, NoReturn

from .. import _programs
from . import SHIM, identity

try:
    import cloudpickle as _pickler  # type: ignore[import-untyped,unused-ignore]
except ImportError:
    _pickler = pickle

# Of a job whose ranks come and go, and halayrun's options of the same meaning.
ELASTIC = {
    "min_num_proc": "--min-np",
    "max_num_proc": "--max-np",
    "host_discovery_script": "--host-discovery-script",
    "slots": "--slots-per-host",
    "elastic_timeout": "--elastic-timeout",
    "reset_limit": "--reset-limit",
    "cooldown_range": "--blacklist-cooldown-range",
    "blacklist": "--blacklist",  # horovodrun's own costs the host
}
FUNCTION = "function"
# An error carries the last lines of halayrun's own: how processes ended, and why the job did.
_NAME, _NOTES, _NOTES_BYTES = "halayrun: ", 4, 16384
_PLACES, _FIRST = "where the ranks were:", "the first error was that of"


def dumps(value: object) -> bytes:
    """A pickle: by cloudpickle if it is there, which takes functions of a script too."""
    return bytes(_pickler.dumps(value))


class Arguments:
    """What launch() is told: attributes, all with defaults."""

    def __init__(self) -> None:
        self.num_proc: int | None = None
        self.run_func: Callable[[], Any] | None = None
        self.command: Sequence[str] | None = None
        self.executable: str | None = None
        self.hosts: str | None = None
        self.blacklist: str | None = None
        self.verbose: Any = None
        self.env: Mapping[str, str] | None = None

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def find_halayrun() -> str:
    """The launcher: HALAYRUN, next to the package, in the source tree's build folder, on PATH."""
    chosen = os.environ.get("HALAYRUN")
    if chosen:
        return chosen
    found = _programs.find("halayrun") or shutil.which("halayrun")
    if found is None:
        raise FileNotFoundError(
            "horovod.run() needs halayrun, which is not on PATH: add its folder, or set HALAYRUN "
            "to its full path"
        )
    return found


def _here(hosts: str) -> bool:
    names = [entry.split(":")[0] for entry in hosts.split(",")]
    own = {"localhost", socket.gethostname(), socket.getfqdn()}
    return all(name in own or name.startswith("127.") for name in names)


def is_elastic(arguments: Any) -> bool:
    """Whether its ranks may change."""
    return any(getattr(arguments, name) is not None for name in [*ELASTIC][:3])


def _elastic_words(arguments: Any) -> list[str]:
    """Of halayrun's command line."""
    words: list[str] = []
    for name, option in ELASTIC.items():
        value = getattr(arguments, name)
        if value is not None:
            several = value if isinstance(value, (list, tuple)) else [value]
            words += [option, *map(str, several)]
    return words


def _words(arguments: Any) -> list[str]:
    """What halayrun is told, but for the program."""
    if arguments.hostfile is not None:
        raise NotImplementedError(
            "horovod.run(hostfile=...) is not there in Halay: it runs on this machine only; for "
            "several start the script with halayrun --hostfile or srun"
        )
    if arguments.hosts is not None and not _here(arguments.hosts):
        raise NotImplementedError(
            f"horovod.run(hosts={arguments.hosts!r}): it runs on this machine only; for several "
            "start the script with halayrun -H or srun"
        )
    elastic = is_elastic(arguments)
    nranks, least = arguments.num_proc, arguments.min_num_proc
    if nranks is None:
        nranks = least or 1
    if nranks < 1 or (least is not None and not 1 <= least <= nranks):
        raise ValueError(f"num_proc must be at least 1 and min_num_proc, not {nranks}")
    words = ["--launcher", "local", "--horovod", "-np", str(nranks)]
    if elastic and arguments.hosts is not None:
        words += ["-H", arguments.hosts]
    words += _elastic_words(arguments)
    return [*words, "-v"] if arguments.verbose else words


def _environment(arguments: Arguments) -> dict[str, str]:
    env = identity.without(dict(os.environ))
    env.update(arguments.env or {})
    package = str(Path(__file__).resolve().parents[2])
    paths = [SHIM, *env.get("PYTHONPATH", "").split(os.pathsep), *sys.path, package]
    env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path for path in paths if path))
    return env


def _reason(notes: str) -> str:
    """Without where each rank was."""
    said = ("\n" + notes.rstrip()).split("\n" + _NAME)[1:]
    places = [i for i, note in enumerate(said) if note.startswith(_PLACES)] or [len(said)]
    last = [note for note in said[places[0] :] if note.startswith(_FIRST)]
    return "\n".join(said[: places[0]][-_NOTES:] + last)


def _start(command: Sequence[str], env: Mapping[str, str], **more: Any) -> tuple[int, str]:
    """Runs halayrun: its exit status, and the last it has said itself, without its own name."""
    notes = os.memfd_create("halayrun")
    try:
        words = [command[0], "--notes-fd", str(notes), *command[1:]]
        status = subprocess.run(words, env=env, pass_fds=[notes], **more).returncode
        said = os.pread(notes, _NOTES_BYTES, max(0, os.fstat(notes).st_size - _NOTES_BYTES))
    finally:
        os.close(notes)
    return status, _reason(said.decode(errors="replace"))


def _failed(folder: Path, status: int, notes: str) -> NoReturn:
    """RuntimeError with halayrun's reason, and the traceback of the rank that failed first."""
    failed = sorted(folder.glob("*.error"), key=lambda path: path.stat().st_mtime_ns)
    ranks = ", ".join(path.stem for path in failed)
    first = f"\n{failed[0].read_text()}" if failed else ""
    raise RuntimeError(
        "Horovod detected that one or more processes exited with non-zero status: halayrun "
        f"ended with {status}{': ' if notes else ''}{notes}"
        f"{f'; of rank {ranks}, the first:' if failed else ''}{first}"
    )


def _results(folder: Path, status: int, notes: str, elastic: bool) -> list[Any]:
    """By rank. In an elastic job one that has failed has been replaced, if halayrun is content."""
    if status != 0 or (not elastic and any(folder.glob("*.error"))):
        _failed(folder, status, notes)
    paths = sorted(folder.glob("*.result"), key=lambda path: int(path.stem))
    return [pickle.loads(path.read_bytes()) for path in paths]


def launch(arguments: Any) -> list[Any] | None:
    """Runs arguments.run_func on arguments.num_proc ranks, or arguments.command."""
    command = [find_halayrun(), *_words(arguments)]
    env = _environment(arguments)
    if arguments.run_func is None:
        status, notes = _start([*command, *arguments.command], env)
        if status != 0:
            _failed(Path(os.devnull), status, notes)
        return None
    python = arguments.executable or sys.executable
    with tempfile.TemporaryDirectory(prefix="halay-run-") as name:
        folder = Path(name)
        (folder / FUNCTION).write_bytes(dumps(arguments.run_func))
        command += [python, "-m", "halay.horovod.task", name]
        status, notes = _start(command, env, stdin=subprocess.DEVNULL)
        return _results(folder, status, notes, is_elastic(arguments))


def _old(old: Any, name: str, new: Any) -> Any:
    if old is None:
        return new
    warnings.warn(f"{name} is the old spelling", DeprecationWarning, stacklevel=3)
    return old


class _Call:
    """func(*args, **kwargs), as something that pickle takes too."""

    def __init__(self, func: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs

    def __call__(self) -> Any:
        return self.func(*self.args, **self.kwargs)


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Any = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: Any = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: Sequence[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """Runs func(*args, **kwargs) on num_proc ranks of this machine: what each returned, by rank.

    func has to call hvd.init() itself. Needs cloudpickle for functions that are no module's own.
    A rank that raises ends the job, and its traceback is in the RuntimeError, behind halayrun's
    reason for the end (--reset-limit, too few ranks for --elastic-timeout, ...). min_num_proc,
    max_num_proc or a discovery script make the job elastic: then such a rank is started again, and
    the results are those of the ranks that there are at the end. What concerns other machines is
    refused; what concerns MPI, ssh and the like is ignored.
    """
    if use_gloo and use_mpi:
        raise ValueError("use_gloo and use_mpi exclude each other")
    if hosts is not None and hostfile is not None:
        raise ValueError("hosts and hostfile exclude each other")
    if output_filename is not None:
        raise NotImplementedError("horovod.run(output_filename=...) is not there in Halay yet")
    arguments = Arguments()
    arguments.num_proc = _old(np, "np", num_proc)
    arguments.run_func = _Call(func, tuple(args), dict(kwargs or {}))
    arguments.hosts, arguments.executable, arguments.verbose = hosts, executable, verbose
    given = {
        "min_num_proc": _old(min_np, "min_np", min_num_proc),
        "max_num_proc": _old(max_np, "max_np", max_num_proc),
        "slots": slots,
        "reset_limit": reset_limit,
        "cooldown_range": cooldown_range,
        "hostfile": hostfile,
        "host_discovery_script": host_discovery_script,
    }
    for name, value in given.items():
        setattr(arguments, name, value)
    if use_mpi:
        arguments.env = {"HOROVOD_CONTROLLER": "mpi"}
    results = launch(arguments)
    assert results is not None
    return results
