# SPDX-License-Identifier: Apache-2.0
"""What bindings/tensorflow declares is what TensorFlow declares; one library for all versions."""

import re
import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest
from conftest import SOURCE, halayrun
from test_cdef import statements

BINDING = SOURCE / "bindings" / "tensorflow"
HEADERS = ["c_api.h", "kernels.h", "ops.h", "tf_datatype.h", "tf_status.h", "tf_tensor.h"]

STRUCTS = ["DimensionHandle", "OpDefinitionBuilder", "ShapeHandle", "ShapeInferenceContext"]


def include_folder():
    for name in ("tensorflow", "tensorflow-cpu"):
        for path in metadata.files(name) if name in _installed() else []:
            if path.match("tensorflow/include/tensorflow/c/kernels.h"):
                return Path(path.locate()).parents[2]
    pytest.fail("no headers in the installed TensorFlow")


def _installed():
    return {one.metadata["Name"] for one in metadata.distributions()}


def abi(text):
    """The functions, and the values of the constants."""
    body = re.search(r"#define HALAY_TF_FUNCTIONS\(X\)(.*?)\n\n", text, re.S)[1].replace("\\", "")
    functions = re.findall(r"X\(([^,]+), (\w+),\s*(\((?:[^()]|\n)*\))\)", body)
    constants = re.findall(r"^    (TF_\w+) = (\d+)", text, flags=re.M)
    return functions, constants


def program(text):
    functions, constants = abi(text)
    assert len(functions) == body_entries(text) > 40 and len(constants) > 20
    types = re.findall(r"^typedef [^{}]*\(\*tf_\w+_t\).*?;", text, flags=re.M)
    # ops.h is C++ in this: it leaves "struct" out.
    lines = [f"typedef struct TF_{name} TF_{name};" for name in STRUCTS]
    lines += [f"#include <tensorflow/c/{header}>" for header in HEADERS]
    lines += types
    lines += [
        f"{result} (*check_{name}){parameters} = TF_{name};"
        for result, name, parameters in functions
    ]
    lines += [f'_Static_assert({name} == {value}, "{name}");' for name, value in constants]
    lines += [
        "struct view { const char *data; size_t len; };",
        '_Static_assert(sizeof(TF_StringView) == sizeof(struct view), "TF_StringView");',
        '_Static_assert(offsetof(TF_StringView, len) == offsetof(struct view, len), "len");',
    ]
    return "\n".join(lines) + "\n"


def body_entries(text):
    return len(re.findall(r"^    X\(", text, flags=re.M))


def compiled(text):
    compiler = shutil.which("gcc") or shutil.which("cc")
    command = [compiler, "-std=gnu11", "-fsyntax-only", "-Werror=incompatible-pointer-types"]
    command += ["-isystem", str(include_folder()), "-x", "c", "-"]
    return subprocess.run(command, input=program(text), text=True, capture_output=True)


def test_abi_is_that_of_the_wheel():
    done = compiled((BINDING / "abi.h").read_text())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "ours, wrong",
    [
        ("GetIterId, (TF_OpKernelContext *)", "GetIterId, (TF_Tensor *)"),
        ("int, NumDims", "int64_t, NumDims"),
        ("TF_HALF = 19", "TF_HALF = 18"),
    ],
)
def test_a_difference_would_be_found(ours, wrong):
    text = (BINDING / "abi.h").read_text()
    assert ours in text
    said = compiled(text.replace(ours, wrong)).stderr
    assert len(re.findall(r"\berror: ", said)) == 1, said


def test_python_declares_what_the_binding_does():
    declared = (SOURCE / "python/declarations/tensorflow.h").read_text()
    command = ["gcc", "-E", "-P", "-D__attribute__(x)=", "-I", str(SOURCE / "include")]
    header = subprocess.run(
        [*command, str(BINDING / "binding.h")], check=True, capture_output=True, text=True
    ).stdout
    ours = statements(declared)
    assert len(ours) == 7
    assert ours - statements(header) == set()
    wrong = declared.replace("int rank, size,", "int size, rank,")
    assert len(statements(wrong) - statements(header)) == 1


def test_functions_are_moved(tmp_path):
    """Each is called once and ends once; what is none is left as it is."""
    here = SOURCE / "tests" / "python" / "frameworks" / "done_moves.cc"
    flags = ["-O1", "-fsanitize=address,undefined", "-I", str(BINDING)]
    done, program = tmp_path / "done.o", tmp_path / "moves"
    subprocess.run(["gcc", *flags, "-c", str(BINDING / "done.c"), "-o", str(done)], check=True)
    subprocess.run(["g++", *flags, str(here), str(done), "-o", str(program)], check=True)
    ran = subprocess.run([str(program)], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "good\n"), ran.stderr


def _any(python):
    """The same library under the TensorFlow of this Python."""
    command = [str(python), str(SOURCE / "tests/python/frameworks/tensorflow_any.py")]
    status, text = halayrun(2, command, timeout=300, env={"TF_CPP_MIN_LOG_LEVEL": "2"})
    assert status == 0 and ": good;" in text, text


def test_this_version():
    _any(sys.executable)


@pytest.mark.long
@pytest.mark.parametrize("version", ["2.13.1", "2.16.2"])
def test_older_versions(tmp_path, version):
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    install = [str(python), "-m", "pip", "install", "-q", f"tensorflow-cpu=={version}", "cffi"]
    subprocess.run(install, check=True, timeout=900)
    _any(python)
