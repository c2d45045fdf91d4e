# SPDX-License-Identifier: Apache-2.0
"""What Python declares of the C libraries is what the headers declare, and what Python has read."""

import re
import shutil
import subprocess
import sys

import pytest
from conftest import SOURCE

from halay._version import __version__

HEADERS = SOURCE / "include" / "halay"
CDEF = (SOURCE / "python/declarations/halay.h").read_text()


def statements(text: str) -> set[str]:
    """Declarations with their white space normalised."""
    text = re.sub(r"^\s*#.*$|(?s:/\*.*?\*/)", "", text, flags=re.M)
    found, depth, begin = set(), 0, 0
    for at, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if character == ";" and depth == 0:
            one = re.sub(r"\s+", " ", text[begin:at]).strip()
            found.add(re.sub(r"\s*([{}(),=*\[\]])\s*", r"\1", one))
            begin = at + 1
    return found


def preprocessed(header: str) -> str:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.fail("no C compiler to read the headers with")
    return subprocess.run(
        [compiler, "-E", "-P", "-D__attribute__(x)=", str(HEADERS / header)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_every_declaration_stands_in_the_headers():
    ours, theirs = statements(CDEF), statements(preprocessed("training.h"))
    theirs |= statements(preprocessed("local.h")) | statements(preprocessed("boot.h"))
    assert len(ours) > 20
    assert ours - theirs == set()


def test_a_difference_would_be_found():
    theirs = statements(preprocessed("training.h")) | statements(preprocessed("local.h"))
    theirs |= statements(preprocessed("boot.h"))
    wrong = CDEF.replace("uint64_t recorded, lost", "uint64_t lost, recorded")
    wrong = wrong.replace("HALAY_EMISMATCH = -5", "HALAY_EMISMATCH = -15")
    assert len(statements(wrong) - theirs) == 2


def test_constants():
    headers = "".join(path.read_text() for path in sorted(HEADERS.glob("*.h")))
    constants = re.findall(r"^#define (\w+) (\w+)$", CDEF, flags=re.M)
    assert constants
    for name, value in constants:
        assert re.search(rf"^#define {name} {value}\b", headers, flags=re.M), name


def test_python_has_read_the_declarations():
    command = [sys.executable, SOURCE / "scripts/declare", "--check"]
    assert subprocess.run(command).returncode == 0, "run scripts/declare"


def test_one_version():
    header = (HEADERS / "halay.h").read_text()
    parts = [re.search(rf"HALAY_VERSION_{p} (\d+)", header)[1] for p in ("MAJOR", "MINOR", "PATCH")]
    assert ".".join(parts) == __version__
