# SPDX-License-Identifier: Apache-2.0
"""The package `horovod`: found only when asked for, and what its settings and probes do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import RANKS, SOURCE, environment, halayrun

from halay.horovod import SHIM, flags, identity, probes, settings, surface

pytestmark = pytest.mark.sampled

WHERE = "import horovod; print(horovod.__file__)"


def python(*arguments, timeout=120, **env):
    """Exit status, output, errors."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment(env),
        cwd=SOURCE / "tests",
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def script(tmp_path):
    """script(text): the path of a program."""

    def write(text, name="program.py"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def clean(monkeypatch):
    """No HOROVOD_* variables, nothing said or put yet; and nothing that was put stays behind."""
    for variable in [v for v in os.environ if v.startswith(("HOROVOD_", "HALAY_D", "HALAY_START"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setattr(settings, "_said", set())
    monkeypatch.setattr(settings, "_put", {})
    yield monkeypatch
    for variable in settings._put:
        os.environ.pop(variable, None)


def test_not_there_unless_asked_for():
    code = "import importlib.util as u, halay.horovod; spec = u.find_spec('horovod'); "
    code += "print(spec and spec.origin)"
    status, out, err = python("-c", code)
    assert status == 0, err
    assert "halay" not in out


def test_module_runs_a_script(script):
    path = script("import sys, horovod; print(sys.argv, __name__, horovod.__file__)")
    status, out, err = python("-m", "halay.horovod", path, "-x", "1")
    assert status == 0, err
    assert out.startswith(f"[{path!r}, '-x', '1'] __main__ {SHIM}")


def test_module_runs_a_module_and_its_children_find_it(script, tmp_path):
    script("import subprocess, sys\n"
           f"subprocess.run([sys.executable, '-c', {WHERE!r}])", "outer.py")  # fmt: skip
    env = environment()
    done = subprocess.run(
        [sys.executable, "-m", "halay.horovod", "-m", "outer"],
        env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(SHIM)


def test_module_without_a_program_and_with_a_failing_one(script):
    assert python("-m", "halay.horovod")[0] == 2
    assert python("-m", "halay.horovod", "--nonsense")[0] == 2
    status, _, err = python("-m", "halay.horovod", script("raise SystemExit(7)"))
    assert status == 7, err
    status, _, err = python("-m", "halay.horovod", script("1/0"))
    assert status == 1
    assert "ZeroDivisionError" in err


def test_a_loaded_horovod_is_not_replaced(tmp_path):
    (tmp_path / "horovod.py").write_text("")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import horovod, halay.horovod; "
    status, _, err = python("-c", code + "halay.horovod.install()")
    assert status == 1
    assert "another horovod is loaded already" in err
    assert str(tmp_path) in err


def test_pth_asks_for_it_only_with_the_variable(tmp_path):
    """What a wheel puts into site-packages, read as the interpreter reads it."""
    (tmp_path / "halay-horovod.pth").write_text((SOURCE / "python/halay-horovod.pth").read_text())
    code = f"import site; site.addsitedir({str(tmp_path)!r}); {WHERE}"
    for value, there in (("1", True), ("0", False), ("", False)):
        status, out, err = python("-c", code, HALAY_HOROVOD=value)
        assert (status == 0 and out.startswith(SHIM)) == there, (value, out, err)


def test_settings_are_put_into_halays(clean):
    clean.setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "5")
    clean.setenv("HOROVOD_LOG_LEVEL", "DEBUG")
    clean.setenv("HOROVOD_FUSION_THRESHOLD", "4096")
    assert settings.apply() == []
    assert os.environ["HALAY_DEADLINE"] == "5"
    assert os.environ["HALAY_START_DEADLINE"] == "30"
    assert os.environ["HALAY_FUSION"] == "4096"
    assert os.environ["HALAY_DEBUG"] == "info"
    # A second init() sees what is set then; 0 is Horovod's way to say nothing.
    clean.setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0")
    clean.delenv("HOROVOD_LOG_LEVEL")
    clean.delenv("HOROVOD_FUSION_THRESHOLD")
    assert settings.apply() == []
    assert "HALAY_DEADLINE" not in os.environ
    assert "HALAY_START_DEADLINE" not in os.environ
    assert "HALAY_DEBUG" not in os.environ
    assert "HALAY_FUSION" not in os.environ


def test_settings_for_gpus(clean):
    for name, value, told in (
        ("HIERARCHICAL_ALLREDUCE", "1", "two levels"),
        ("HIERARCHICAL_ALLREDUCE", "0", None),
        ("HIERARCHICAL_ALLGATHER", "1", "two levels"),
        ("TORUS_ALLREDUCE", "1", "NCCL in the node"),
        ("NUM_NCCL_STREAMS", "4", "two channels"),
        ("NUM_NCCL_STREAMS", "1", None),
        ("ENABLE_ASYNC_COMPLETION", "1", "result is there"),
        ("GPU_OPERATIONS", "NCCL", None),
        ("BATCH_D2D_MEMCOPIES", "1", None),
        ("BATCH_D2D_MEMCOPIES", "2", None),
        ("BATCH_D2D_MEMCOPIES", "0", "by one launch"),
        ("BATCH_D2D_MEMCOPIES", "-1", "by one launch"),
        ("BATCH_D2D_MEMCOPIES", "", "by one launch"),
        ("BATCH_D2D_MEMCOPIES", "off", "not understood"),
    ):
        clean.setenv(f"HOROVOD_{name}", value)
        notes = settings.apply()
        assert len(notes) == (told is not None), (name, value, notes)
        assert told is None or (f"HOROVOD_{name}" in notes[0] and told in notes[0]), notes
        clean.delenv(f"HOROVOD_{name}")
    assert settings.apply() == []


@pytest.mark.parametrize(
    ("name", "value", "variable", "found", "told"),
    [
        # Horovod's switches are numbers.
        ("TIMELINE_MARK_CYCLES", "false", "HALAY_TIMELINE_MARK_CYCLES", None, True),
        ("STALL_CHECK_DISABLE", "no", "HALAY_STALL", None, True),
        ("LOG_LEVEL", "debgu", "HALAY_DEBUG", None, True),
        ("LOG_LEVEL", "Fatal", "HALAY_DEBUG", "error", False),
        ("STALL_SHUTDOWN_TIME_SECONDS", "inf", "HALAY_DEADLINE", None, True),
        ("STALL_SHUTDOWN_TIME_SECONDS", "nan", "HALAY_DEADLINE", None, True),
        ("STALL_SHUTDOWN_TIME_SECONDS", "-1", "HALAY_DEADLINE", None, False),
    ],
)
def test_values_that_make_no_sense(clean, name, value, variable, found, told):
    clean.setenv(f"HOROVOD_{name}", value)
    notes = settings.apply()
    assert os.environ.get(variable) == found
    assert [f"HOROVOD_{name}={value} is not understood" in note for note in notes] == [True] * told


def test_stall_settings(clean):
    clean.setenv("HOROVOD_STALL_CHECK_TIME_SECONDS", "2")
    assert settings.apply() == []
    assert os.environ["HALAY_STALL"] == "2"
    clean.setenv("HOROVOD_STALL_CHECK_DISABLE", "1")
    assert settings.apply() == []
    assert os.environ["HALAY_STALL"] == "0"
    clean.setenv("HOROVOD_STALL_CHECK_DISABLE", "0")
    assert settings.apply() == []
    assert os.environ["HALAY_STALL"] == "2"


def test_what_bounds_calls_bounds_no_start(clean):
    clean.setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "60")
    assert settings.apply() == []
    assert "HALAY_START_DEADLINE" not in os.environ
    clean.setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "5")
    clean.setenv("HOROVOD_GLOO_TIMEOUT_SECONDS", "90")
    assert settings.apply() == []
    assert os.environ["HALAY_START_DEADLINE"] == "90"
    clean.setenv("HALAY_START_DEADLINE", "30")
    assert settings.apply() == settings.apply() == []
    assert os.environ["HALAY_START_DEADLINE"] == "30"


def test_timeline_settings(clean):
    clean.setenv("HOROVOD_TIMELINE", "DYNAMIC")
    clean.setenv("HOROVOD_TIMELINE_MARK_CYCLES", "0")
    assert settings.apply() == []
    assert "HALAY_TIMELINE" not in os.environ
    assert "HALAY_TIMELINE_MARK_CYCLES" not in os.environ
    clean.setenv("HOROVOD_TIMELINE", "/x.json")
    clean.setenv("HOROVOD_TIMELINE_MARK_CYCLES", "1")
    assert settings.apply() == []
    assert os.environ["HALAY_TIMELINE"] == "/x.json"
    assert os.environ["HALAY_TIMELINE_MARK_CYCLES"] == "1"


def test_halays_own_setting_goes_first(clean):
    clean.setenv("HALAY_DEADLINE", "7")
    clean.setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "5")
    assert settings.apply() == []
    assert os.environ["HALAY_DEADLINE"] == "7"


def test_settings_without_effect_are_reported_once(clean, capsys):
    for name, value in (("CYCLE_TIME", "5"), ("NOSUCH", "1"), ("XCCL", "/x.json"),
                        ("STALL_SHUTDOWN_TIME_SECONDS", "soon"), ("RANK", "0"),
                        ("FUSION_THRESHOLD", "-1"),
                        ("AUTOTUNE", "0"), ("WITH_PYTORCH", "1"), ("GPU_OPERATIONS", "NCCL"),
                        ("TORUS_ALLREDUCE", "")):  # fmt: skip
        clean.setenv(f"HOROVOD_{name}", value)
    notes = settings.apply()
    assert [note.split()[0] for note in notes] == [
        "HOROVOD_CYCLE_TIME",
        "HOROVOD_FUSION_THRESHOLD=-1",
        "HOROVOD_NOSUCH",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=soon",
        "HOROVOD_XCCL",
    ]
    settings.report(notes)
    settings.report(notes)
    assert len(capsys.readouterr().err.splitlines()) == 5
    clean.setenv("HOROVOD_RANK", "1")
    settings.report([*notes, "another"])
    assert capsys.readouterr().err == ""


def test_probes(clean):
    assert probes.gloo_built() and probes.gloo_enabled()
    assert not probes.mpi_built() and not probes.mpi_enabled()
    with pytest.raises(ValueError, match="MPI is not enabled"):
        probes.mpi_threads_supported()
    assert type(probes.nccl_built()) is int
    clean.setenv("HOROVOD_CONTROLLER", "MPI")
    assert probes.mpi_built() and probes.mpi_enabled() and probes.mpi_threads_supported()
    assert probes.gloo_built() and not probes.gloo_enabled()
    assert set(surface.PROBES) == set(probes.PROBES)


def test_the_tables_are_printed():
    assert probes.table() in (SOURCE / "docs/horovod-table.md").read_text()
    for option, table in (
        ("--options", flags.table()),
        ("--settings", settings.table()),
        ("--probes", probes.table()),
    ):
        assert python("-m", "halay.horovod", option)[:2] == (0, table + "\n")


def test_identity_by_launcher(monkeypatch):
    for variables in identity._LAUNCHERS:
        for variable in filter(None, variables):
            monkeypatch.delenv(variable, raising=False)
    assert identity.guess() == {}
    monkeypatch.setenv("PMIX_RANK", "2")
    assert identity.guess() == {}
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    monkeypatch.setenv("SLURM_LOCALID", "1")
    assert identity.guess() == {"RANK": 2, "SIZE": 4, "LOCAL_RANK": 1}
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "x")
    assert identity.guess()["RANK"] == 2


def test_a_name_that_is_missing_says_so():
    members = surface.fetch("halay.errors", ["HalayError", "nosuch"], "horovod.torch")
    assert surface.missing(members) == ["nosuch"]
    nosuch = members["nosuch"]
    for use in (lambda: nosuch(1), lambda: nosuch.attribute):
        with pytest.raises(NotImplementedError, match=r"horovod\.torch\.nosuch"):
            use()


RANK = """
import os, sys
import horovod, horovod.torch as hvd, torch
from horovod.common.util import gloo_built
assert horovod.__file__.startswith(os.environ["EXPECTED"]), horovod.__file__
known = [os.environ[f"HOROVOD_{n}"] for n in ("RANK", "SIZE", "LOCAL_RANK")]
for _ in range(2):
    hvd.init()
    mine = [hvd.rank(), hvd.size(), hvd.local_rank()]
    assert known == [str(n) for n in mine], (known, mine)
    total = hvd.allreduce(torch.arange(5) + hvd.rank(), op=hvd.Sum, name="x")
    assert total.tolist() == [sum(i + r for r in range(hvd.size())) for i in range(5)]
    assert hvd.is_homogeneous() and os.environ["HOROVOD_CROSS_SIZE"] == "1"
    hvd.barrier()
    hvd.shutdown()
"""


@pytest.mark.parametrize("nranks", RANKS)
def test_a_program_under_halayrun(script, nranks):
    env = {"EXPECTED": SHIM, "HOROVOD_CYCLE_TIME": "3", "HOROVOD_RANK": "9"}
    status, text = halayrun(nranks, ["--horovod", sys.executable, script(RANK)], env=env)
    assert status == 0, text
    assert text.count("HOROVOD_CYCLE_TIME has no effect") == 1, text


def test_halayrun_keeps_the_users_path():
    code = "import os; print(os.environ['PYTHONPATH'].split(':'), os.environ['HALAY_HOROVOD'])"
    mine = ["-x", "PYTHONPATH=/mine"]
    for options in (["--horovod", *mine], [*mine, "--horovod"]):
        status, text = halayrun(1, [*options, sys.executable, "-c", code])
        assert (status, text) == (0, f"{[SHIM, '/mine']} 1\n")
    code = "import os; print(os.getenv('HALAY_HOROVOD'))"
    status, text = halayrun(1, [sys.executable, "-c", code])
    assert (status, text) == (0, "None\n")


def test_halayrun_asks_other_machines_too():
    options = [
        "-H",
        "elsewhere:1",
        "--launcher",
        "mpirun",
        "--horovod",
        "--dry-run",
        "program",
    ]
    status, text = halayrun(1, options)
    if status == 127:
        pytest.skip("no mpirun here")
    assert status == 0, text
    assert "HALAY_HOROVOD=1" in text
    assert SHIM in text
