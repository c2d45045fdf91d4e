# SPDX-License-Identifier: Apache-2.0
"""Which C library is loaded, and what is said if there is none."""

import ast
import ctypes.util
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from conftest import SOURCE, environment, run

LIBRARY = Path(os.environ["HALAY_LIBRARY"])
SHOW = "import halay._core as c; print(c.library_path)"


def python(code, package, library=None):
    env = environment()
    env["PYTHONPATH"] = str(package)
    env.pop("HALAY_LIBRARY")
    if library is not None:
        env["HALAY_LIBRARY"] = str(library)
    return run([sys.executable, "-c", code], 60, env)


@pytest.fixture
def tree(tmp_path):
    """A copy of python/ as it stands in a source tree."""
    copied = shutil.copytree(
        SOURCE / "python" / "halay",
        tmp_path / "python" / "halay",
        ignore=shutil.ignore_patterns("__pycache__", "lib"),
    )
    return copied.parent


def put(folder):
    folder.mkdir(parents=True)
    (folder / "libhalay.so.0").symlink_to(LIBRARY)
    return folder / "libhalay.so.0"


def test_variable_comes_first_and_alone(tree):
    put(tree / "halay" / "lib")
    assert python(SHOW, tree, LIBRARY) == (0, f"{LIBRARY}\n")
    status, text = python(SHOW, tree, "/nowhere/libhalay.so.0")
    assert status != 0
    assert "ImportError" in text and "/nowhere/libhalay.so.0: no such file" in text
    assert str(tree) not in text.split("ImportError")[1]


def test_package_before_build_tree(tree):
    built = put(tree.parent / "build" / "lib")
    assert python(SHOW, tree) == (0, f"{built}\n")
    packaged = put(tree / "halay" / "lib")
    assert python(SHOW, tree) == (0, f"{packaged}\n")


def test_missing_library_says_where_it_looked(tree):
    if ctypes.util.find_library("halay"):
        pytest.skip("libhalay is installed on this system, so it is found")
    status, text = python("import halay.torch", tree)
    assert status != 0
    message = text.split("ImportError: ")[1]
    assert f"{tree}/halay/lib/libhalay.so.0: no such file" in message
    assert f"{tree.parent}/build/lib/libhalay.so.0: no such file" in message
    assert "HALAY_LIBRARY" in message and "cmake" in message


def test_file_that_is_no_library(tree, tmp_path):
    wrong = tmp_path / "libhalay.so.0"
    wrong.write_text("not a library")
    status, text = python(SHOW, tree, wrong)
    assert status != 0
    assert "ImportError" in text and str(wrong) in text


def test_library_of_something_else(tree):
    status, text = python(SHOW, tree, "libc.so.6")
    assert status != 0
    assert "symbol 'halay_version' not found in library 'libc.so.6'" in text
    assert text.endswith(
        "HALAY_LIBRARY names it: unset it, or set it to the full path of a libhalay.so.0.\n"
    )


def test_package_in_an_archive(tree):
    archive = shutil.make_archive(str(tree / "halay"), "zip", tree, "halay")
    status, text = python(SHOW, Path(archive), None)
    assert status != 0
    assert text.endswith("No library can be loaded out of an archive: install the wheel by pip.\n")


def test_old_python_is_told(tree):
    """3.6 reads the first module; what comes after it is for newer ones."""
    ast.parse((SOURCE / "python/halay/__init__.py").read_text(), feature_version=(3, 6))
    status, text = python("import sys; sys.version_info = (3, 8, 1); import halay.arrays", tree)
    assert status != 0
    assert text.endswith(
        f"Halay needs Python 3.9 or newer, and {sys.executable} is Python 3.8: start another one\n"
    )


def test_other_release_is_refused(tree):
    (tree / "halay" / "_version.py").write_text('__version__ = "7.0.0"\n')
    status, text = python(SHOW, tree, LIBRARY)
    assert status != 0
    assert "the Python package is 7.0.0" in text


def test_package_itself_needs_neither_library_nor_torch(tree):
    code = "import sys, halay; print(halay.__version__, 'torch' in sys.modules)"
    status, text = python(code, tree, "/nowhere")
    assert (status, text.split()[1]) == (0, "False")


def test_commands_of_an_installed_package(tree):
    """Each one becomes the program: of the package before the build tree, never one on PATH."""
    code = "import sys, halay._programs as p; sys.argv = ['x', 'a', 'b c']; p.halay_info()"
    status, text = python(code, tree)
    assert status == 1
    assert text.startswith(f"halay-info: it is neither in {tree}/halay/bin nor in ")
    assert f"{tree.parent}/build/bin: build there (cmake " in text
    for folder in (tree.parent / "build" / "bin", tree / "halay" / "bin"):
        folder.mkdir(parents=True)
        program = folder / "halay-info"
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" {folder} "$@"\nexit 7\n')
        program.chmod(0o755)
        assert python(code, tree) == (7, f"{folder}\na\nb c\n")


def test_commands_that_may_not_be_run(tree):
    program = tree / "halay" / "bin" / "halay-info"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    code = "import halay._programs as p; p.halay_info()"
    status, text = python(code, tree)
    assert status == 1
    assert text.startswith(f"halay-info: {program} may not be run: install the wheel by pip")


def test_commands_end_by_sigpipe_again(tree):
    """Python ignores some signals, and what it becomes would, too: so the ranks of halayrun."""
    program = tree / "halay" / "bin" / "halay-info"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ngrep SigIgn /proc/self/status\n")
    program.chmod(0o755)
    status, text = python("import halay._programs as p; p.halay_info()", tree)
    assert (status, int(text.split()[1], 16)) == (0, 0)


@pytest.mark.sampled
@pytest.mark.parametrize("library", ["lib", "lib64", "lib/x86_64-linux-gnu"])
def test_commands_of_an_installed_prefix(tree, tmp_path, library):
    """A module file's PYTHONPATH comes before a wheel's package, whose commands these are."""
    prefix = tmp_path / "prefix"
    package = prefix / library / "halay" / "python"
    package.mkdir(parents=True)
    shutil.copytree(tree / "halay", package / "halay")
    program = prefix / "bin" / "halayrun"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho $0 of the prefix\n")
    program.chmod(0o755)
    status, text = python("import halay._programs as p; p.halayrun()", package)
    assert (status, text) == (0, f"{program} of the prefix\n")


def test_a_folder_below_the_root(tree):
    """pip install --target /opt: there are few folders above the package."""
    code = """
import pathlib
real = pathlib.Path.resolve
pathlib.Path.resolve = lambda self, **kw: pathlib.Path("/opt", *real(self).parts[-2:])
import halay._programs, halay._core
"""
    status, text = python(code, tree)
    assert status != 0
    assert "/opt/halay/lib/libhalay.so.0: no such file" in text


def test_version_is_the_headers():
    text = (SOURCE / "include/halay/halay.h").read_text()
    number = ".".join(re.findall(r"#define HALAY_VERSION_\w+ (\d+)", text))
    assert python("import halay; print(halay.__version__)", SOURCE / "python") == (0, f"{number}\n")
