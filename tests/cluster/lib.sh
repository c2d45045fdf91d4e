# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the cluster tests share. A test starts a test-bed of its own in a second, works in $here, which
# all nodes see as they see source and build folder, and ends the test-bed however it ends itself.
# Needs $BUILD and $CLUSTER_RANK.
set -u
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
source_folder=$(cd "$folder/../.." && pwd -P)
build=$(cd "${BUILD:?the build folder}" && pwd -P) || exit 1
rank=$build/bin/${CLUSTER_RANK##*/}
python=${PYTHON:-$source_folder/.venv/bin/python}
# shellcheck disable=SC2034
mark=9$RANDOM$RANDOM # `sleep 1000.$mark` is a process that this test can find
here=$(mktemp -d /tmp/hly.XXXXXX) || exit 1 # short: Unix sockets lie below it
chmod 755 "$here"
bed=none guard=none
cd "$here" || exit 1

# What this test may have been started from is not what it tests.
for variable in $(compgen -e | grep -E '^(SLURM|SBATCH|SALLOC|SRUN|PMIX?|PRTE|OMPI|JSM|HALAY|UCX)_'); do
    unset "$variable"
done
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT
export HALAY_TESTBED=$here/bed HALAY_CALIBRATION=off

leave() {
    local job
    for job in $(jobs -p); do kill -KILL "$job" 2>/dev/null; done
    [ $bed = none ] || "$folder/$bed" down >/dev/null 2>&1
    [ $guard = none ] || kill "$guard" 2>/dev/null
    cd / && rm -rf --one-file-system "$here"
}
trap leave EXIT
trap 'exit 143' TERM INT HUP

fail() {
    echo "FAILED: $*" >&2
    for f in out err out.*; do [ -f "$f" ] && head -c 3000 "$f" | sed "s/^/  $f: /" >&2; done
    exit 1
}
skip() { echo "skipped: $*" && exit 77; }

# A kill -9 of the test leaves no test-bed either: this process outlives it and is no child of it.
watch() {
    rm -f guard # of a test-bed before
    # shellcheck disable=SC2016 # expands there
    (setsid bash -c 'echo $$ >"$3/guard"; while kill -0 "$1" 2>/dev/null; do sleep 0.5; done
        "$2" down; rm -rf --one-file-system "$3"' sh $$ "$folder/$bed" "$here" </dev/null >/dev/null 2>&1 &)
    until_true test -s guard
    guard=$(cat guard)
}

# start slurm-cluster|veth-nodes ARGUMENTS... of its `up`
start() {
    local why dir shares=()
    bed=$1
    shift
    why=$("$folder/$bed" check) || { bed=none && skip "$why"; }
    for dir in "$source_folder" "$build" "$here" "$(dirname "$(dirname "$python")")"; do
        case $dir/ in /dev/shm/*) bed=none && skip "$dir is under /dev/shm, which every node has of its own" ;; esac
        [ ! -d "$dir" ] || shares+=(--share "$dir")
    done
    watch
    "$folder/$bed" up "$@" "${shares[@]}" >out 2>&1 ||
        fail "$bed up: exit status $?"
    on 1 test -x "$rank" || fail "the nodes do not see $rank"
}
start_slurm() { start slurm-cluster --nodes "$@"; }
start_nodes() { start veth-nodes "$@"; }

slurm() { "$folder/slurm-cluster" "$@"; }
veth() { "$folder/veth-nodes" "$@"; }
login() { slurm run -- "$@"; }
# on NODE COMMAND...
on() {
    if [ "$bed" = slurm-cluster ]; then slurm node "$1" -- "${@:2}"; else veth exec "$1" -- "${@:2}"; fi
}

# Runs a command; its output is in out and err, its status in $status, its time in $ms.
run() {
    local start
    start=$(date +%s%3N)
    "$@" >out 2>err </dev/null
    status=$?
    ms=$(($(date +%s%3N) - start))
}
expect() { [ "$status" = "$1" ] || fail "exit status $status, not $1: ${*:2}"; }
says() { grep -q -- "$2" "$1" || fail "$1 does not say: $2"; }
within() { [ "$ms" -le "$1" ] || fail "took $ms ms, more than $1"; }
lines() { # TEXT FILE -> how many lines have it
    grep -c -- "$1" "$2"
}
counts() { # FILE NUMBER TEXT
    [ "$(lines "$3" "$1")" = "$2" ] || fail "$1 does not say $2 times: $3"
}

# ranks ARGUMENTS...: of srun, with its time-out in seconds in $limit
limit=40
ranks() { run login timeout -k 5 "$limit" srun --mpi=pmix "$@"; }

# batch ARGUMENTS...: of sbatch. Waits for the job (sbatch -W looks every ten seconds only); $status is
# the script's, its output is that of the job.
batch() {
    local id state end=$((SECONDS + 150))
    id=$(login sbatch --parsable "$@") || fail "sbatch $*: exit status $?"
    while sleep 0.1; do
        state=$(login scontrol -o show job "$id") || fail "scontrol show job $id: exit status $?"
        case $state in *JobState=RUNNING* | *JobState=PENDING* | *JobState=COMPLETING*)
            [ $SECONDS -lt $end ] && continue
            fail "sbatch $*: not ended after 150 s: $(login scontrol -o show step "$id") $state"
            ;;
        esac
        status=${state#* ExitCode=}
        status=${status%%:*}
        return
    done
}

# The python that has what the example needs.
has_torch() {
    export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$source_folder/python OMP_NUM_THREADS=1
    export HALAY_LIBRARY=$build/lib/libhalay.so.0
    "$python" -c 'import importlib.util as u, sys # to import torch takes seconds
missing = [name for name in ("torch", "sklearn", "cffi") if not u.find_spec(name)]
sys.exit(f"no {missing}" if missing else 0)' 2>err
}
need_torch() { has_torch || skip "$python has not all that the example needs: $(tail -1 err)"; }

# Waits, at most 10 s, until a command succeeds.
until_true() {
    local tries=${TRIES:-200}
    while [ $((tries--)) -gt 0 ]; do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.05
    done
    fail "never so: $*"
}

lives() { [ -e "/proc/$1" ] && [[ $(ps -o stat= -p "$1") != Z* ]]; } # a zombie does not

# On nodes 1 to $1: no process of a job, no file in /dev/shm or, but for what belongs to the node, /tmp.
clean_node() {
    # shellcheck disable=SC2016 # expands there
    on "$1" bash -c '! pgrep -a "cluster_rank|job_lives|python|startup_|halay" && [ -z "$(ls -A /dev/shm)" ]'
}
nothing_left() {
    local i
    for ((i = 1; i <= $1; i++)); do
        until_true clean_node "$i"
    done
}
