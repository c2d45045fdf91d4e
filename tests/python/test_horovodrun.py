# SPDX-License-Identifier: Apache-2.0
"""horovodrun's command line: every option does what it says, or a line says why it does not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import HALAYRUN, SOURCE, environment

from halay.horovod import command, config, flags, launch, settings

# The options of horovodrun 0.28.1, by where their values go.
HOROVODRUN = {
    "autotune": "--autotune --no-autotune",
    "autotune_bayes_opt_max_samples": "--autotune-bayes-opt-max-samples",
    "autotune_gaussian_process_noise": "--autotune-gaussian-process-noise",
    "autotune_log_file": "--autotune-log-file",
    "autotune_steps_per_sample": "--autotune-steps-per-sample",
    "autotune_warmup_samples": "--autotune-warmup-samples",
    "binding_args": "--binding-args",
    "cache_capacity": "--cache-capacity",
    "check_build": "-cb --check-build",
    "config_file": "--config-file",
    "cooldown_range": "--blacklist-cooldown-range",
    "cycle_time_ms": "--cycle-time-ms",
    "disable_cache": "--disable-cache",
    "elastic_timeout": "--elastic-timeout",
    "fusion_threshold_mb": "--fusion-threshold-mb",
    "gloo_timeout_seconds": "--gloo-timeout-seconds",
    "hierarchical_allgather": "--hierarchical-allgather --no-hierarchical-allgather",
    "hierarchical_allreduce": "--hierarchical-allreduce --no-hierarchical-allreduce",
    "host_discovery_script": "--host-discovery-script",
    "hostfile": "-hostfile --hostfile",
    "hosts": "-H --hosts",
    "log_level": "--log-level",
    "log_with_timestamp": "--log-with-timestamp --log-without-timestamp --log-hide-timestamp "
    "--no-log-hide-timestamp",
    "max_num_proc": "--max-np --max-num-proc",
    "min_num_proc": "--min-np --min-num-proc",
    "mpi_args": "--mpi-args",
    "mpi_threads_disable": "--mpi-threads-disable --no-mpi-threads-disable",
    "nics": "--network-interfaces --network-interface",
    "no_stall_check": "--no-stall-check --stall-check",
    "num_nccl_streams": "--num-nccl-streams",
    "num_proc": "-np --num-proc",
    "output_filename": "--output-filename",
    "prefix_output_with_timestamp": "-prefix-timestamp --prefix-output-with-timestamp",
    "reset_limit": "--reset-limit",
    "slots": "--slots-per-host",
    "ssh_identity_file": "-i --ssh-identity-file",
    "ssh_port": "-p --ssh-port",
    "stall_check_shutdown_time_seconds": "--stall-check-shutdown-time-seconds",
    "stall_check_warning_time_seconds": "--stall-check-warning-time-seconds",
    "start_timeout": "--start-timeout",
    "tcp_flag": "--tcp",
    "thread_affinity": "--thread-affinity",
    "timeline_filename": "--timeline-filename",
    "timeline_mark_cycles": "--timeline-mark-cycles --no-timeline-mark-cycles",
    "torus_allreduce": "--torus-allreduce --no-torus-allreduce",
    "use_gloo": "--gloo",
    "use_jsrun": "--jsrun",
    "use_mpi": "--mpi",
    "verbose": "--verbose",
    "version": "-v --version",
}
# The variables that its library, its launcher and its installation read.
VARIABLES = [
    "ADASUM_MPI_CHUNK_SIZE",
    "AUTOTUNE",
    "AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
    "AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
    "AUTOTUNE_LOG",
    "AUTOTUNE_STEPS_PER_SAMPLE",
    "AUTOTUNE_WARMUP_SAMPLES",
    "BATCH_D2D_MEMCOPIES",
    "CACHE_CAPACITY",
    "CCL_CACHE",
    "CONTROLLER",
    "CPU_OPERATIONS",
    "CROSS_RANK",
    "CROSS_SIZE",
    "CYCLE_TIME",
    "DISABLE_GROUP_FUSION",
    "DISABLE_NVTX_RANGES",
    "DYNAMIC_PROCESS_SETS",
    "ELASTIC",
    "ELASTIC_TIMEOUT",
    "ENABLE_ASYNC_COMPLETION",
    "ENABLE_XLA_OPS",
    "FUSION_THRESHOLD",
    "GLOO_IFACE",
    "GLOO_RENDEZVOUS_ADDR",
    "GLOO_RENDEZVOUS_PORT",
    "GLOO_TIMEOUT_SECONDS",
    "HIERARCHICAL_ALLGATHER",
    "HIERARCHICAL_ALLREDUCE",
    "HOSTNAME",
    "LOCAL_RANK",
    "LOCAL_SIZE",
    "LOG_HIDE_TIME",
    "LOG_LEVEL",
    "MPI_THREADS_DISABLE",
    "NUM_NCCL_STREAMS",
    "RANK",
    "SECRET_KEY",
    "SIZE",
    "STALL_CHECK_DISABLE",
    "STALL_CHECK_TIME_SECONDS",
    "STALL_SHUTDOWN_TIME_SECONDS",
    "START_TIMEOUT",
    "THREAD_AFFINITY",
    "TIMELINE",
    "TIMELINE_MARK_CYCLES",
    "TORUS_ALLREDUCE",
    "SPARK_START_TIMEOUT",
    "SPARK_PYTHONPATH",
    "SPARK_WORK_DIR",
    "SPARK_USE_LOCAL_RANK_GPU_INDEX",
    "WITH_TENSORFLOW",
    "WITH_PYTORCH",
    "WITH_MXNET",
    "WITH_MPI",
    "WITH_GLOO",
    "WITHOUT_TENSORFLOW",
    "WITHOUT_PYTORCH",
    "WITHOUT_MXNET",
    "WITHOUT_MPI",
    "WITHOUT_GLOO",
    "GPU",
    "GPU_OPERATIONS",
    "GPU_ALLREDUCE",
    "GPU_ALLGATHER",
    "GPU_BROADCAST",
    "GPU_ALLTOALL",
    "GPU_REDUCESCATTER",
    "ALLOW_MIXED_GPU_IMPL",
    "CUDA_HOME",
    "ROCM_HOME",
    "NCCL_HOME",
    "NCCL_INCLUDE",
    "NCCL_LIB",
    "NCCL_LINK",
    "BUILD_CUDA_CC_LIST",
    "BUILD_ARCH_FLAGS",
    "CMAKE",
    "DEBUG",
]

SAMPLES = {
    "autotune_gaussian_process_noise": "0.5", "log_level": "INFO", "hosts": "localhost:2",
    "cooldown_range": "1 2.5", "min_num_proc": "2", "nics": "eth7", "hostfile": "hosts",
}  # fmt: skip
FILE = """
controller: mpi
params:
  fusion_threshold_mb: 32
  cycle_time_ms: 2.5
  cache_capacity: 2048
  hierarchical_allreduce: true
  hierarchical_allgather: false
  torus_allreduce:
autotune: {enabled: true, log_file: tune.csv, warmup_samples: 5, steps_per_sample: 20,
           bayes_opt_max_samples: 50, gaussian_process_noise: 0.9}
timeline:
  filename: trace.json
  mark_cycles: true
stall_check:
  enabled: false
  warning_time_seconds: 120
  shutdown_time_seconds: 240
library_options:
  mpi_threads_disable: true
  num_nccl_streams: 2
  thread_affinity: 1
  gloo_timeout_seconds: 60
logging:
  level: INFO
  hide_timestamp: true
"""


@pytest.fixture(autouse=True)
def built(monkeypatch):
    monkeypatch.setenv("HALAYRUN", str(HALAYRUN))
    for name in [n for n in os.environ if n.startswith(("HOROVOD_", "OMPI_MCA_", "PRTE_MCA_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def becomes(monkeypatch):
    """becomes(words): what halayrun is told, and the environment; instead of becoming it."""
    calls = []
    monkeypatch.setattr("os.execve", lambda path, words, env: calls.append((path, words, env)))
    monkeypatch.setattr(command, "lines", list)

    def start(text):
        command.main(text.split())
        path, words, env = calls.pop()
        assert path == words[0] == str(HALAYRUN)
        return " ".join(words[1:]), env

    return start


@pytest.fixture
def refused(capsys):
    """refused(words): the one line that is said, without the name."""

    def start(text):
        assert command.main(text.split()) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and err.startswith("horovodrun: "), (out, err)
        return err[len("horovodrun: ") :]

    return start


def test_every_option_is_there():
    actions = command.parser()._option_string_actions
    found = {}
    for name, action in actions.items():
        found.setdefault(action.dest, set()).add(name)
    del found["help"]
    assert found == {dest: set(names.split()) for dest, names in HOROVODRUN.items()}


def test_every_variable_is_known():
    assert [name for name in VARIABLES if settings.find(name) is None] == []
    assert set(settings.SETTINGS) - set(VARIABLES) == {"TEST_GPU"}


@pytest.mark.parametrize("flag", flags.FLAGS, ids=lambda flag: flag.names[0])
def test_every_option_has_its_effect_or_its_line(flag, becomes, capsys):
    kind, text = flags.effect(flag)
    assert text and "|" not in text
    if kind == flags.HERE:
        return  # each has a test of its own below
    plain = becomes("-np 2 p")
    assert capsys.readouterr().err == ""
    for name in flag.names:
        value = SAMPLES.get(flag.dest, "7") if flag.take else ""
        first = "" if flag.dest == "num_proc" else "-np 2"
        words, env = becomes(f"{first} {name} {value} p")
        said = capsys.readouterr().err
        changed = (words, env) != plain
        assert changed == (kind in (flags.STARTER, flags.VARIABLE)), (name, words)
        assert said.count("\n") == (kind == flags.NONE), said
        if kind == flags.NONE:
            assert said == f"horovodrun: {flag.names[-1]} has no effect: {text}\n"
        if kind == flags.VARIABLE:
            assert f"HOROVOD_{flag.to}" in env
        if kind == flags.STARTER and flag.to.startswith("-"):
            assert f" {flag.to} " in f" {words} "


def test_values_reach_the_ranks(becomes, capsys):
    words, env = becomes(
        "-np 4 --fusion-threshold-mb 10 --no-stall-check --log-level DEBUG --start-timeout 40 "
        "--stall-check-shutdown-time-seconds 9 --timeline-filename t.json --network-interfaces "
        "eth0,eth1 --network-interface eth1 --mpi python train.py --verbose"
    )
    assert words == "--horovod -np 4 python train.py --verbose"
    assert {name: value for name, value in env.items() if name.startswith("HOROVOD_")} == {
        "HOROVOD_FUSION_THRESHOLD": "10485760",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_LOG_LEVEL": "DEBUG",
        "HOROVOD_START_TIMEOUT": "40",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "9",
        "HOROVOD_TIMELINE": "t.json",
        "HOROVOD_GLOO_IFACE": "eth0",
        "HOROVOD_CONTROLLER": "mpi",
    }
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "eth0,eth1: a rank listens at one, eth0" in err


def test_other_hosts_and_how_they_are_reached(becomes, monkeypatch):
    words, env = becomes("-np 4 -H a:2,b:2 -p 2222 -i key --tcp p")
    assert words == "-H a:2,b:2 --horovod -np 4 p"
    assert env["OMPI_MCA_plm_rsh_args"] == env["PRTE_MCA_plm_ssh_args"] == "-p 2222 -i key"
    assert env["HALAY_TRANSPORT"] == "shm+tcp" and env["NCCL_IB_DISABLE"] == "1"
    monkeypatch.setenv("OMPI_MCA_plm_rsh_args", "-q")
    assert becomes("-H a:2,b:2 -p 22 p")[1]["OMPI_MCA_plm_rsh_args"] == "-q"
    assert becomes("--hostfile f -np 2 p")[0] == "--hostfile f --horovod -np 2 p"
    assert becomes("--jsrun p")[0] == "--launcher jsrun --horovod p"


@pytest.mark.parametrize("terminals", [(), (1,), (1, 2)])
def test_lines_are_kept_apart_but_on_a_terminal(becomes, monkeypatch, terminals):
    monkeypatch.setattr(command, "lines", launch.lines)
    monkeypatch.setattr(launch.os, "isatty", lambda fd: fd in terminals)
    monkeypatch.setattr(launch.sys, "stdout", sys.__stdout__)
    monkeypatch.setattr(launch.sys, "stderr", sys.__stderr__)
    words = becomes("-np 2 p")[0]
    assert words == ("" if len(terminals) == 2 else "--whole-lines ") + "--horovod -np 2 p"


def test_elastic_jobs(becomes, refused):
    words = becomes("-np 2 --min-np 1 --max-np 4 --host-discovery-script ./d --slots-per-host 3 p")
    assert words[0] == (
        "--launcher local --horovod -np 2 --min-np 1 --max-np 4 --host-discovery-script ./d "
        "--slots-per-host 3 --blacklist hosts p"
    )
    named = becomes("-np 2 --min-np 2 -H localhost:2,127.0.0.1:2 p")[0]
    assert named == (
        "--launcher local -H localhost:2,127.0.0.1:2 --horovod -np 2 --min-np 2 --max-np 4 "
        "--blacklist hosts p"
    )
    assert "agents bring them: slurm/elastic.sbatch" in refused("-np 2 --min-np 1 -H a:1,b:1 p")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("-np x p", "-np/--num-proc: must be a whole number from 1 on, not 'x'"),
        ("-np 0 p", "from 1 on, not '0'"),
        ("-np 2", "say what to run"),
        ("-np 2 --", "say what to run"),
        ("--nonsense p", "there is no option --nonsense: see horovodrun --help"),
        ("--fusion-treshold-mb=3 p", "option --fusion-treshold-mb=3: did you mean --fusion-thre"),
        ("--host a:1 p", "--host could match --hosts, --hostfile, --host-discovery-script"),
        ("-np 2 --mpi --gloo p", "--gloo: not allowed with argument --mpi"),
        ("-H a:1 --hostfile f p", "not allowed with argument -H"),
        ("--autotune --no-autotune p", "not allowed with argument --autotune"),
        ("--log-level loud p", "one of TRACE, DEBUG, INFO, WARNING, ERROR, FATAL, not 'loud'"),
        ("--fusion-threshold-mb -1 p", "from 0 on, not '-1'"),
        ("--fusion-threshold-mb 1.5 p", "whole number"),
        ("--cycle-time-ms nan p", "a number from 0 on, not 'nan'"),
        ("--cycle-time-ms inf p", "not 'inf'"),
        ("--autotune-gaussian-process-noise 1.1 p", "from 0 to 1, not '1.1'"),
        ("--ssh-port 70000 p", "from 1 to 65535"),
        ("--network-interfaces eth0,,eth1 p", "names of network interfaces"),
        ("--blacklist-cooldown-range 3 2 p", "3 2: the first is the shorter"),
        ("--blacklist-cooldown-range 3 p", "must be a number from 0.01 to 86400, not 'p'"),
        ("-np 2 --min-np 3 p", "--min-np 3 is more than -np 2"),
        ("-np 4 --max-np 3 p", "--max-np 3 is less"),
        ("--config-file /nowhere/c.yaml p", "/nowhere/c.yaml: No such file"),
        ("--start-timeout p", "must be a whole number"),
    ],
)
def test_what_makes_no_sense_is_one_line(words, text, refused):
    assert text in refused(words)


def test_options_cut_short(becomes):
    """As Horovod's own parser takes them."""
    words, env = becomes("-n 2 --fusion-threshold 3 p --fusion 4")
    assert words == "--horovod -np 2 p --fusion 4"
    assert env["HOROVOD_FUSION_THRESHOLD"] == str(3 << 20)


def test_a_file_of_settings(tmp_path, becomes, capsys):
    path = tmp_path / "c.yaml"
    path.write_text(FILE)
    found = command.parse_args(["--config-file", str(path), "--cycle-time-ms", "20", "p"])
    assert found.cycle_time_ms == 20  # the command line goes before the file, wherever it stands
    assert found.use_mpi and not found.use_gloo
    assert (found.fusion_threshold_mb, found.cache_capacity) == (32, 2048)
    assert (found.hierarchical_allreduce, found.hierarchical_allgather) == (True, False)
    assert found.torus_allreduce is None
    assert found.no_stall_check is True and found.log_with_timestamp is False
    assert found.autotune_log_file == "tune.csv" and found.autotune_gaussian_process_noise == 0.9
    _, env = becomes(f"--config-file {path} --gloo --stall-check -np 1 p")
    assert {name: value for name, value in env.items() if name.startswith("HOROVOD_")} == {
        "HOROVOD_FUSION_THRESHOLD": str(32 << 20),
        "HOROVOD_TIMELINE": "trace.json",
        "HOROVOD_TIMELINE_MARK_CYCLES": "1",
        "HOROVOD_STALL_CHECK_DISABLE": "0",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "120",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "240",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "60",
        "HOROVOD_LOG_LEVEL": "INFO",
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_LOG": "tune.csv",
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "5",
        "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "20",
    }
    assert "--autotune-bayes-opt-max-samples has no effect" in capsys.readouterr().err
    known = {key.dest for keys in config.SECTIONS.values() for key in keys.values()}
    assert known < set(HOROVODRUN)
    for text in (b"", b"\xef\xbb\xbf# as editors on Windows write it\r\nparams: {}\r\n"):
        path.write_bytes(text)
        assert becomes(f"--config-file {path} -np 1 p")[0] == "--horovod -np 1 p"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("parms: {}", "parms is no setting of horovodrun: did you mean params?"),
        ("params: {fusion_treshold_mb: 1}", "params.fusion_treshold_mb is no setting of "
         "horovodrun: did you mean fusion_threshold_mb?"),
        ("zzz: 1", "there are controller, params, autotune, timeline"),
        ("params: 3", "params must have keys of its own, not 3"),
        ("params: {fusion_threshold_mb: lots}", "params.fusion_threshold_mb must be a whole"),
        ("params: {cache_capacity: [1]}", "must be one number or text, not [1]"),
        ("params: {cache_capacity: true}", "must be one number or text, not True"),
        ("params: {torus_allreduce: 1}", "params.torus_allreduce must be true or false, not 1"),
        ("stall_check: {enabled: maybe}", "must be true or false, not 'maybe'"),
        ("logging: {level: loud}", "logging.level must be one of TRACE"),
        ("controller: tcp", "controller must be gloo or mpi, not 'tcp'"),
        ("params: {cache_capacity: 1, cache_capacity: 2}", "c.yaml:1: this is no YAML: cache_cap"),
        ("params: {}\nparams: {}", "c.yaml:2: this is no YAML: params is there twice"),
        ("!!map [a]", "this is no YAML: expected a mapping"),
        ("params: " + "[" * 100000, "c.yaml: this is nested too deeply"),
        ("params: [" + 6 * "[1,2,3,4,5,6,7,8]," + "]", "...], "),
        ("- a", "there are no settings in it, but list"),
        ("params: {\n  a: [", "c.yaml:2: this is no YAML"),
        ("a: \x01", "c.yaml: this is no YAML"),
    ],
)  # fmt: skip
def test_a_file_that_makes_no_sense_is_one_line(tmp_path, text, said, refused):
    pytest.importorskip("yaml")
    path = tmp_path / "c.yaml"
    path.write_text(text)
    line = refused(f"--config-file {path} -np 1 p")
    assert str(path) in line and said in line, line


def test_a_file_without_pyyaml(tmp_path, monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert "needs PyYAML, which is not installed: pip install" in refused("--config-file c p")


def test_check_build_and_version(capsys):
    assert command.main(["--check-build"]) == command.main(["-np", "2", "-cb"]) == 0
    out = capsys.readouterr().out
    assert "\n    [X] PyTorch\n" in out and "\n    [X] Gloo\n" in out and "\n    [ ] MPI\n" in out
    for name in ("-v", "--version"):
        with pytest.raises(SystemExit) as caught:
            command.main([name])
        assert not caught.value.code
        assert capsys.readouterr().out.startswith("0.28.1 (Halay ")


def test_no_halayrun(monkeypatch, capsys):
    monkeypatch.setenv("HALAYRUN", "/nowhere/halayrun")
    assert command.main(["-np", "1", "p"]) == 127
    assert capsys.readouterr().err.count("\n") == 1


def test_in_earnest(tmp_path):
    """Its status is the rank's; a home that cannot be written and a proxy are nothing to it."""
    script = 'echo "$HOROVOD_LOG_LEVEL"; exit 7'
    words = f"-m halay.horovod --run -np 2 --output-filename {tmp_path}/o --log-level ERROR sh -c"
    env = environment({
        "HALAYRUN": str(HALAYRUN), "HOME": "/nowhere", "http_proxy": "http://nowhere.invalid:1",
        "https_proxy": "http://nowhere.invalid:1", "ALL_PROXY": "http://nowhere.invalid:1",
    })  # fmt: skip
    done = subprocess.run([sys.executable, *words.split(), script], env=env, text=True,
                          capture_output=True, timeout=60)  # fmt: skip
    assert done.returncode == 7, done.stderr
    assert (tmp_path / "o/rank.0/stdout").read_text() in ("ERROR\n", "")  # the other ended first
    assert "ERROR\n" in done.stdout


def test_the_page_has_the_tables():
    page = (SOURCE / "docs/horovodrun.md").read_text()
    assert flags.table() in page and settings.table() in page
    assert launch.ELASTIC.keys() <= HOROVODRUN.keys() | {"blacklist"}
