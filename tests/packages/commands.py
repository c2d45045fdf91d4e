# SPDX-License-Identifier: Apache-2.0
"""commands.py: what the pages tell people to type exists. commands.py --run BUILD PYTHON: and what
stands behind "<!-- run -->" runs, with the tools of BUILD and that Python; with PACKAGES_LONG=1
also what stands behind "<!-- run long -->".

Looked at are README.md, CONTRIBUTING.md and docs/: commands in blocks of code (programs, files of
the tree, options of our tools by their manual pages and of scripts by their text, HALAY_ and
HOROVOD_ variables), and hvd's names in Python. commands.py --selftest: faults are found.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FRAMEWORKS = ("torch", "tensorflow", "keras", "jax", "mxnet")
FOLDERS = "bench common deploy examples scripts slurm tests tools transports python include"
TREE = tuple(f"{folder}/" for folder in FOLDERS.split())
SHELLS = {"sh", "bash", "console", "shell"}
SECONDS = 300  # that the commands of one page may take
# Words that begin a command in a block that is for a shell, and are not ours.
FOREIGN = set(
    re.findall(
        r"\S+",
        """
        [ addr2line alias apt apt-get awk bash bsub cat cc cd chmod chronyc cmake cp
        ctest curl date do docker done echo enroot env export for gcc git grep head
        horovodrun ibv_devices ibv_devinfo if ip jsrun kill kubectl ls make man mkdir
        modprobe module mount mpiexec mpirun mv ninja openssl pip pkg-config podman
        prterun ps pstree py-spy python python3 ray rdma rm salloc sbatch scancel sed sh
        sleep spack spark-submit srun ssh sudo sysctl tail tar tc test timeout torchrun
        ulimit umount unshare valgrind wait which while xargs
        """,
    )
)


class Block(NamedTuple):
    page: str
    line: int
    shell: bool  # it says that it is for a shell; else it may be output
    run: bool
    text: str


def blocks(page: str, text: str, language: str = "") -> Iterator[Block]:
    """The blocks of code, in their order: of a shell or of `language`, and indented ones."""
    lines, number, run = text.split("\n"), 0, False
    marks = ["<!-- run -->", "<!-- run long -->"][: 1 + (os.environ.get("PACKAGES_LONG") == "1")]
    while number < len(lines):
        line, start = lines[number], number + 1
        fence = re.match(r"( *)```(\w*)$", line)
        body = []
        if fence:
            number += 1
            while number < len(lines) and lines[number].strip() != "```":
                body.append(lines[number].removeprefix(fence[1]))
                number += 1
            wanted = {language} if language else SHELLS | {""}
            if fence[2] in wanted:
                yield Block(page, start, fence[2] in SHELLS, run, "\n".join(body))
        elif re.match(r" {4,}\S", line) and (number == 0 or not lines[number - 1].strip()):
            while number < len(lines) and (lines[number].startswith("    ") or not lines[number]):
                body.append(lines[number][4:])
                number += 1
            if not language:
                yield Block(page, start, False, False, "\n".join(body))
            number -= 1
        run = line.strip() in marks if line.strip() else run
        number += 1


@cache
def manual(tool: str) -> dict[str, bool]:
    """Option -> whether a value follows, of a tool of ours, by its manual page."""
    text = (ROOT / f"docs/man/{tool}.1.md").read_text().replace("\\-", "-")
    found = {"--help": False, "--version": False}
    for line in re.findall(r"^(\*\*-.*)$", text, re.M):
        valued = bool(re.search(r"\*\* (?:\[?\*\w|\*\*\w|slots)|\*\* +\*[A-Z]", line))
        found.update(dict.fromkeys(re.findall(r"(?<![\w-])--?[a-z][\w-]*", line), valued))
    return found


@cache
def tools() -> set[str]:
    return {path.name[:-5] for path in (ROOT / "docs/man").glob("*.1.md")}


@cache
def settings() -> set[str]:
    """All HALAY_ and HOROVOD_ names of the tree outside of its pages."""
    found: set[str] = set()
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        if parts[0].startswith((".git", ".venv", "build")) or path.suffix in (".md", ".pyc"):
            continue
        if path != Path(__file__) and path.is_file() and path.stat().st_size < 1 << 20:
            found |= set(
                re.findall(r"\b(?:HALAY|HOROVOD)_[A-Z]\w*", path.read_text("utf-8", "replace"))
            )
    return found


def is_setting(name: str) -> bool:
    """Horovod's are known by the table that turns them into ours, where they have no prefix."""
    table = (ROOT / "python/halay/horovod/settings.py").read_text()
    return name in settings() or f'"{name.removeprefix("HOROVOD_")}"' in table


@cache
def beside(path: Path) -> str:
    """The text of a script and of the files beside it that it may import."""
    return "".join(
        p.read_text("utf-8", "replace")
        for p in path.parent.iterdir()
        if p.is_file() and (p == path or p.suffix in (".py", ".sh"))
    )


def simple(text: str) -> Iterator[list[str]]:
    """The simple commands of a line of shell, as words."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";|&<>()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    for word in lexer:
        if set(word) <= set(";|&()"):
            yield words
            words = []
        else:
            words.append(word)
    yield words


def script_faults(words: list[str]) -> Iterator[str]:
    """Of a file of the tree and its arguments."""
    path = ROOT / words[0]
    if re.search(r"[A-Z*{]{4}|[*{]", words[0]):
        return  # stands for several
    if not path.exists():
        yield f"there is no {words[0]}"
    elif path.is_file():
        for number, word in enumerate(words[1:], 1):
            if (
                word.rsplit("/", 1)[-1] in tools()
                or word.startswith(("python", *TREE))
                or word == "--"
            ):
                yield from command_faults(words[number:])
                return
            option = word.split("=")[0]
            if re.match(r"--[a-z]", word) and option not in beside(path):
                yield f"{words[0]} has no option {option}"


def tool_faults(tool: str, words: list[str]) -> Iterator[str]:
    options, number = manual(tool), 0
    while number < len(words):
        word = words[number]
        option = word.split("=")[0]
        if re.match(r"--?[a-z]", word):
            if option not in options:
                yield f"{tool} has no option {option}"
            number += options.get(option, False) and "=" not in word
        elif tool == "halayrun":
            yield from command_faults(words[number:])
            return
        number += 1


def python_faults(words: list[str]) -> Iterator[str]:
    if words[:1] == ["-m"] and words[1:2] and words[1].split(".")[0] == "halay":
        path = ROOT / "python" / words[1].replace(".", "/")
        if not (path.is_dir() or path.with_suffix(".py").exists()):
            yield f"there is no module {words[1]}"
    elif words and words[0].startswith(TREE):
        yield from script_faults(words)


def command_faults(words: list[str], shell: bool = False) -> Iterator[str]:
    """Of a simple command. shell: its program has to be one that is known."""
    while words and re.match(r"\w+=", words[0]):
        name = words[0].split("=")[0]
        if name.startswith(("HALAY_", "HOROVOD_")) and not is_setting(name):
            yield f"there is no setting {name}"
        words = words[1:]
    if not words:
        return
    program = words[0].rsplit("/", 1)[-1]
    if program in tools():
        yield from tool_faults(program, words[1:])
    elif words[0].startswith(TREE):
        yield from script_faults(words)
    elif re.fullmatch(r"python3?|\$?PYTHON", program):
        yield from python_faults(words[1:])
    elif (
        shell
        and program not in FOREIGN
        and not words[0].startswith((".", "$", "build", "venv", ">", "<", "}"))
    ):
        yield f"{program} is neither a program of ours nor one that pages use"
    else:
        for number, word in enumerate(words[1:], 1):
            last = word.rsplit("/", 1)[-1]
            if " " in word:
                yield from line_faults(word, False)
            elif last in tools() or re.fullmatch(r"python3?", last) or word.startswith(TREE):
                yield from command_faults(words[number:])
                return
            elif re.match(r"(HALAY|HOROVOD)_\w+=", word):
                yield from command_faults([word])


def line_faults(line: str, shell: bool) -> Iterator[str]:
    inner = re.findall(r"\$\(([^()]*)\)", line)
    line = re.sub(r"\$\([^()]*\)", "X", line)
    for command in inner:
        yield from line_faults(command, shell)
    try:
        for words in simple(line):
            yield from command_faults(words, shell)
    except ValueError as failure:  # a quote that does not end here: not a command, or not one line
        if shell:
            yield f"{failure}: {line}"


def shell_faults(block: Block) -> Iterator[str]:
    text = re.sub(r"\\\n\s*", " ", block.text)
    for line in text.split("\n"):
        prompt = re.match(r"\s*(?:\w*[$#] )?(.*)", line)
        line = re.sub(r"(^|\s)#\s.*", "", prompt[1]) if prompt else line
        first = re.sub(r"^(?:\w+=\S* )*", "", line).split(" ")[0]
        known = first.rsplit("/", 1)[-1]
        ours = known in tools() or first.startswith(TREE)
        if (
            block.shell
            or ours
            or (known in FOREIGN and known not in ("if", "for", "[", "do", "done"))
        ):
            yield from line_faults(line, block.shell)


@cache
def surface() -> set[str]:
    """What `hvd.` may be followed by, under any framework."""
    import griffe  # the site's environment has it; --run has no need

    halay = griffe.load("halay", search_paths=[ROOT / "python"], resolve_aliases=True)
    found = set()
    for name in FRAMEWORKS:
        module = halay[name]
        found |= {str(getattr(e, "name", e)) for e in module.exports or []}
        found |= {path.stem for path in (ROOT / "python/halay" / name).iterdir()}
    return found


def python_names(page: str, text: str) -> Iterator[str]:
    code = "\n".join(block.text for block in blocks(page, text, "python"))
    code += "\n".join(re.findall(r"`([^`\n]+)`", text))
    for name in sorted(set(re.findall(r"\bhvd\.(\w+)", code)) - surface()):
        yield f"{page}: there is no hvd.{name}"


def pages() -> dict[str, str]:
    paths = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs/man").glob("*.md")),
    ]
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


def prose_faults(page: str, text: str) -> Iterator[str]:
    """Of commands in `code` of a line, and of the settings that a page names."""
    for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text):
        first = re.sub(r"^(?:[A-Z]\w*=\S* )*", "", code).split(" ")[0]
        if first.rsplit("/", 1)[-1] in tools() or first in (
            "srun",
            "mpirun",
            "prterun",
            "torchrun",
            "python",
        ):
            yield from (f"{page}: {fault} (`{code}`)" for fault in line_faults(code, False))
    named = set(re.findall(r"\b(?:HALAY|HOROVOD)_[A-Z]\w*[A-Z]\b", text))
    yield from (f"{page}: there is no {n}" for n in sorted(named) if not is_setting(n))


def check(texts: dict[str, str]) -> list[str]:
    wrong: list[str] = []
    for page, text in texts.items():
        wrong += prose_faults(page, text)
        for block in blocks(page, text):
            wrong += [f"{page}:{block.line}: {fault}" for fault in shell_faults(block)]
        wrong += python_names(page, text)
    return wrong


def run(texts: dict[str, str], build: Path, python: Path) -> list[str]:
    """Runs the blocks of each page in a folder of its own, which looks like the tree."""
    wrong: list[str] = []
    count = 0
    environment = {
        **os.environ,
        "PATH": f"{build}/bin:{python.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "python"),
        "HALAY_LIBRARY": str(build / "lib/libhalay.so.0"),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    for page, text in texts.items():
        scripts = [block.text for block in blocks(page, text) if block.run]
        if not scripts:
            continue
        count += len(scripts)
        with tempfile.TemporaryDirectory() as folder:
            for path in ROOT.iterdir():
                if not path.name.startswith((".", "build")):
                    Path(folder, path.name).symlink_to(path)
            Path(folder, "build").symlink_to(build)
            script = "set -euo pipefail\n" + "\n".join(scripts)
            done = subprocess.run(
                ["timeout", "-k", "5", str(SECONDS), "bash", "-c", script],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        if done.returncode:
            wrong.append(f"{page}: status {done.returncode} of\n{script}\n{done.stdout[-3000:]}")
    print(f"commands.py: {count} blocks were run")
    return wrong if count else ["no page has a block that is run"]


FAULTS = (
    "halayrun --nmp 4 python x.py",
    "halayrun -np 2 halay-bench allreduce --maxx 4",
    "scripts/nothing",
    "srun -N2 halay-doctor --pictures p.png",
    "HALAY_NOTHING=1 halay-info",
    "python examples/none.py",
    "python examples/torch_digits.py --epoch-count 1",
    "python -m halay.nothing",
    "halay-nothing",
    "sh -c 'halayrun -np 2 halay-bench barrier --second 1'",
    "mpirun -np 2 python bench/none",
)


def selftest() -> list[str]:
    missed = [line for line in FAULTS if not check({"x.md": f"```sh\n{line}\n```\n"})]
    missed += [] if check({"x.md": "```python\nhvd.nothing()\n```\n"}) else ["hvd.nothing"]
    missed += [] if check({"x.md": "Set HALAY_NOTHING."}) else ["a setting"]
    line = "HALAY_DEBUG=info halayrun -np 2 python examples/torch_digits.py --epochs 1 | tail -1"
    right = f"```sh\n{line}\n```\n"
    found = [*blocks("x.md", "<!-- run -->\n" + right)]
    return missed + check({"x.md": right}) + ([] if found[0].run else ["a block that is to be run"])


def main() -> int:
    if sys.argv[1:2] == ["--selftest"]:
        wrong = selftest()
    elif sys.argv[1:2] == ["--run"]:
        wrong = run(pages(), Path(sys.argv[2]).resolve(), Path(sys.argv[3]).absolute())
    else:
        wrong = check(pages())
    print(*wrong, f"commands.py: {len(wrong)} complaints", sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
