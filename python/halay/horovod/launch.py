# SPDX-License-Identifier: Apache-2.0
"""horovod.run(): a function on each rank of a job, and what each returned.

The function goes to the ranks through a file, what they return comes back through one file each,
in a folder that is gone afterwards: a temporary one, or one in the current directory, which the
hosts share, where others than this machine are named.
"""

from __future__ import annotations

import codecs
import os
import pickle
import reprlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Callable, NoReturn

from .. import _programs
from . import SHIM, flags, identity

try:
    import cloudpickle as _pickler  # type: ignore[import-untyped,unused-ignore]
except ImportError:
    _pickler = pickle

# Options of a job whose ranks come and go, and halayrun's options of the same meaning.
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
_SEEN_S = 60  # what another host has written is seen here by then, on the file systems of centres
_CHUNK = 65536
_END_S = 5  # for ranks, which halayrun has told; then it is to kill them, and then it is killed


def dumps(value: object) -> bytes:
    """A pickle: by cloudpickle if it is there, which takes functions of a script too."""
    return bytes(_pickler.dumps(value))


def _check_call(function: Any, both_controllers: bool, both_places: bool) -> None:
    """ValueError: run()'s arguments make no sense. A function of a notebook or a script is nobody's
    module's: only cloudpickle takes it along."""
    if not callable(function):
        raise ValueError(f"horovod.run() runs a function, not {reprlib.repr(function)}")
    if both_controllers:
        raise ValueError("use_gloo and use_mpi exclude each other")
    if both_places:
        raise ValueError("hosts and hostfile exclude each other")
    where = getattr(function, "__module__", None)
    inner = "<locals>" in getattr(function, "__qualname__", "")
    if _pickler is pickle and (where == "__main__" or inner):
        raise ValueError(
            f"horovod.run({getattr(function, '__name__', function)}) needs cloudpickle for a "
            "function of a notebook, a script or another function: pip install cloudpickle, or "
            "put it into a module"
        )


def _taken(given: dict[str, Any]) -> dict[str, Any]:
    """Numbers and texts as horovodrun takes them. ValueError: one makes no sense."""
    made = dict(given)
    for flag in flags.FLAGS:
        value = given.get(flag.dest)
        if value is None or flag.take is None or isinstance(value, (list, tuple, set)):
            continue
        try:
            made[flag.dest] = flag.take(str(value))
        except ValueError as error:
            raise ValueError(f"{flag.dest} {error}") from None
    for name in ("hosts", "hostfile", "output_filename", "host_discovery_script"):
        if isinstance(given[name], (list, tuple, set)):
            raise ValueError(f"{name} must be a text, not {reprlib.repr(given[name])}")
    cooldown = given["cooldown_range"]
    if cooldown is not None and (not isinstance(cooldown, (list, tuple)) or len(cooldown) != 2):
        raise ValueError(f"cooldown_range must be two numbers of seconds, not {cooldown!r}")
    return made


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
            "halayrun is not on PATH: add its folder, or set HALAYRUN to its full path"
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


def _elsewhere(arguments: Any) -> bool:
    """Whether ranks may run on other machines."""
    if arguments.hosts is not None:
        return not _here(arguments.hosts)
    return arguments.hostfile is not None


def _where(arguments: Any, elastic: bool) -> list[str]:
    """Of halayrun's command line: who starts the ranks, and on which hosts."""
    words = []
    if elastic and arguments.hosts is not None and not _here(arguments.hosts):
        raise NotImplementedError(
            f"-H {arguments.hosts}: ranks that come and go are started on this machine only; on "
            "other hosts agents bring them: slurm/elastic.sbatch, deploy/lsf/elastic.lsf, or "
            "halayrun --agents"
        )
    if arguments.use_jsrun:
        words += ["--launcher", "jsrun"]
    elif elastic or (arguments.run_func is not None and not _elsewhere(arguments)):
        words += ["--launcher", "local"]
    if arguments.hosts is not None:
        words += ["-H", arguments.hosts]
    elif arguments.hostfile is not None:
        words += ["--hostfile", arguments.hostfile]
    return words


def words_of(arguments: Any) -> list[str]:
    """What halayrun is told, except for the program."""
    elastic = is_elastic(arguments)
    nranks, least = arguments.num_proc, arguments.min_num_proc
    if nranks is None:
        nranks = least or (1 if arguments.run_func is not None else None)
    if nranks is not None and (nranks < 1 or (least is not None and not 1 <= least <= nranks)):
        raise ValueError(f"num_proc must be at least 1 and min_num_proc, not {nranks}")
    words = [*_where(arguments, elastic), "--horovod"]
    if nranks is not None:
        words += ["-np", str(nranks)]
    words += _elastic_words(arguments)
    if arguments.output_filename is not None:
        words += ["--output-filename", str(arguments.output_filename)]
    if arguments.prefix_output_with_timestamp:
        words += ["--prefix-timestamp"]
    return [*words, "-v"] if arguments.verbose else words


def _ssh(arguments: Any) -> str:
    words = []
    if arguments.ssh_port is not None:
        words += ["-p", str(arguments.ssh_port)]
    if arguments.ssh_identity_file is not None:
        words += ["-i", str(arguments.ssh_identity_file)]
    return " ".join(words)


def environment(arguments: Any) -> dict[str, str]:
    """Of halayrun, and of the ranks with it. What is set for the launchers already is left."""
    env = identity.without(dict(os.environ))
    env.update(flags.passed(vars(arguments)))
    env.update(arguments.env or {})
    if _ssh(arguments):
        env.setdefault("OMPI_MCA_plm_rsh_args", _ssh(arguments))
        env.setdefault("PRTE_MCA_plm_ssh_args", _ssh(arguments))
    if arguments.tcp_flag:
        env.setdefault("HALAY_TRANSPORT", "shm+tcp")
        env["NCCL_IB_DISABLE"] = "1"
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


def _replaced() -> dict[str, Any]:
    """Of "stdout" and "stderr" those that are none of the system's, as in a notebook."""
    found = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    return {
        name: to
        for name, to in found.items()
        if to is not getattr(sys, f"__{name}__") and to is not None
    }


def lines() -> list[str]:
    """Of halayrun's command line: lines of different ranks do not mix where they go to a file or a
    program. To a terminal ranks write themselves: they see that it is one, as progress bars do."""
    return [] if os.isatty(1) and os.isatty(2) and not _replaced() else ["--whole-lines"]


def _copy(source: IO[bytes], to: Any) -> None:
    """What comes, at once: halayrun passes on whole lines, and a part of one that nothing follows.
    Where it cannot be written the rest is read all the same, or the ranks would wait."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while data := os.read(source.fileno(), _CHUNK):
        try:
            to.write(decoder.decode(data))
            to.flush()
        except Exception:
            continue


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Its status. Where the program is interrupted meanwhile, as a notebook is, the job ends."""
    try:
        return process.wait()
    except BaseException:
        for end in (process.terminate, process.terminate, process.kill):  # two signals: at once
            end()
            try:
                process.wait(_END_S)
                break
            except subprocess.TimeoutExpired:
                pass
        raise


def _run(words: Sequence[str], env: Mapping[str, str], **more: Any) -> int:
    """Its status. In a notebook, whose output is none of the system's, it is copied there."""
    shown = _replaced()
    more.update(dict.fromkeys(shown, subprocess.PIPE))
    if len(shown) == 2 and shown["stdout"] is shown["stderr"]:
        more["stderr"] = subprocess.STDOUT
        del shown["stderr"]
    process = subprocess.Popen(words, env=dict(env), **more)
    threads = [
        threading.Thread(target=_copy, args=(getattr(process, name), to), daemon=True)
        for name, to in shown.items()
    ]
    for thread in threads:
        thread.start()
    try:
        return _wait(process)
    finally:
        for thread in threads:
            thread.join(_END_S)


def _start(command: Sequence[str], env: Mapping[str, str], **more: Any) -> tuple[int, str]:
    """Runs halayrun: its exit status, and the last it has said itself, without its own name."""
    notes = os.memfd_create("halayrun")
    try:
        words = [command[0], "--notes-fd", str(notes), *lines(), *command[1:]]
        status = _run(words, env, pass_fds=[notes], **more)
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


def _wait_for_all(folder: Path, nranks: int, elsewhere: bool) -> None:
    """RuntimeError if a rank has ended well and left no result."""
    until = time.monotonic() + (_SEEN_S if elsewhere else 0)
    while True:
        there = {path.stem for path in folder.glob("*.result")}
        absent = [str(rank) for rank in range(nranks) if str(rank) not in there]
        if not absent:
            return
        if time.monotonic() >= until:
            raise RuntimeError(
                f"rank {', '.join(absent)} has ended with status 0 before the function returned"
            )
        time.sleep(0.1)


def _results(folder: Path, status: int, notes: str, arguments: Any) -> list[Any]:
    """By rank. In an elastic job one that has failed has been replaced, if halayrun is content."""
    elastic = is_elastic(arguments)
    if status != 0 or (not elastic and any(folder.glob("*.error"))):
        _failed(folder, status, notes)
    if not elastic:
        _wait_for_all(folder, arguments.num_proc, _elsewhere(arguments))
    paths = sorted(folder.glob("*.result"), key=lambda path: int(path.stem))
    return [pickle.loads(path.read_bytes()) for path in paths]


def _make_folder(elsewhere: bool) -> tempfile.TemporaryDirectory[str]:
    try:
        if elsewhere:
            return tempfile.TemporaryDirectory(prefix=".halay-run-", dir=os.getcwd())
        return tempfile.TemporaryDirectory(prefix="halay-run-")
    except OSError as error:
        remedy = (
            "call it in a folder that its hosts share and that can be written"
            if elsewhere
            else "set TMPDIR to a folder that can be written"
        )
        raise OSError(f"horovod.run() cannot make a folder: {error}; {remedy}") from None


def launch(arguments: Any) -> list[Any] | None:
    """Runs arguments.run_func on arguments.num_proc ranks, or arguments.command."""
    if arguments.run_func is None and not arguments.command:
        raise ValueError("there is neither a function nor a command to run")
    command = [find_halayrun(), *words_of(arguments)]
    env = environment(arguments)
    for note in flags.notes(vars(arguments)):
        print(f"halay: {note}", file=sys.stderr, flush=True)
    if arguments.run_func is None:
        status, notes = _start([*command, *arguments.command], env)
        if status != 0:
            _failed(Path(os.devnull), status, notes)
        return None
    python = arguments.executable or sys.executable
    if arguments.num_proc is None:
        arguments.num_proc = arguments.min_num_proc or 1
    with _make_folder(_elsewhere(arguments)) as name:
        folder = Path(name)
        (folder / FUNCTION).write_bytes(dumps(arguments.run_func))
        command += [python, "-m", "halay.horovod.task", name]
        status, notes = _start(command, env, stdin=subprocess.DEVNULL)
        return _results(folder, status, notes, arguments)


def _old(old: Any, name: str, new: Any) -> Any:
    if old is None:
        return new
    warnings.warn(f"{name} is the old spelling", DeprecationWarning, stacklevel=3)
    return old


def _nics(*given: Any) -> list[str] | None:
    """The interfaces: of one name, of several with commas between, or of a list."""
    names = [
        part
        for nics in given
        for part in (nics.split(",") if isinstance(nics, str) else nics or ())
    ]
    return [name for name in names if name] or None


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
    """Runs func(*args, **kwargs) on num_proc ranks: what each returned, by rank.

    They run on this machine; with hosts or a hostfile where these say, started by what halayrun
    finds (srun, jsrun, prterun, mpirun), and the hosts share the current directory. func has to
    call hvd.init() itself. Needs cloudpickle for functions that are no module's own. A rank that
    raises ends the job, and its traceback is in the RuntimeError, behind halayrun's reason for the
    end (--reset-limit, too few ranks for --elastic-timeout, ...). min_num_proc, max_num_proc or a
    discovery script make the job elastic: then such a rank is started again, and the results are
    those of the ranks that there are at the end. What has no effect is printed in one line.
    ValueError: arguments that make no sense; OSError: no folder for the results.
    """
    _check_call(func, bool(use_gloo and use_mpi), hosts is not None and hostfile is not None)
    given = {
        "num_proc": _old(np, "np", num_proc),
        "run_func": _Call(func, tuple(args), dict(kwargs or {})),
        "min_num_proc": _old(min_np, "min_np", min_num_proc),
        "max_num_proc": _old(max_np, "max_np", max_num_proc),
        "slots": slots,
        "reset_limit": reset_limit,
        "cooldown_range": cooldown_range,
        "hosts": hosts,
        "hostfile": hostfile,
        "host_discovery_script": host_discovery_script,
        "start_timeout": start_timeout,
        "ssh_port": ssh_port,
        "ssh_identity_file": ssh_identity_file,
        "disable_cache": disable_cache,
        "output_filename": output_filename,
        "verbose": verbose,
        "use_mpi": use_mpi or None,
        "mpi_args": mpi_args,
        "nics": _nics(network_interface, network_interfaces),
        "executable": executable,
    }
    arguments = Arguments()
    arguments.__dict__.update(_taken(given))
    results = launch(arguments)
    assert results is not None
    return results
