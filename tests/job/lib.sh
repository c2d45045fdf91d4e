# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the job tests share. Needs $HALAYRUN and $JOB_CLIENT; a test runs in a folder of its own, which
# is also TMPDIR, so that whatever a job leaves behind is seen.
set -u
# A run in the background ignores SIGINT, as do all that it starts; a shell cannot undo that for itself.
[ "${SIGNALS_ARE_SET:-}" ] || SIGNALS_ARE_SET=1 exec env --default-signal=INT,QUIT,HUP bash "$0" "$@"
unset SIGNALS_ARE_SET
here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT
export TMPDIR="$here/tmp"
mkdir "$TMPDIR"
cd "$here" || exit 1
# shellcheck source-path=SCRIPTDIR source=other_build.sh
. "$(dirname "${BASH_SOURCE[0]}")/other_build.sh"
mark=9$RANDOM$RANDOM # `sleep 1000.$mark` is a process that this test can find

fail() {
    echo "FAILED: $*" >&2
    for f in out err; do [ -f $f ] && head -c 2000 $f | sed "s/^/  $f: /" >&2; done
    ! declare -F say_all >/dev/null || say_all # of a test that has more
    pkill -KILL -fx "sleep 1000[.]$mark"
    exit 1
}

# Runs a command; its output is in out and err, its status in $status, its time in $ms.
run() {
    local start
    start=$(date +%s%3N)
    "$@" >out 2>err
    status=$?
    ms=$(($(date +%s%3N) - start))
}

expect() { [ "$status" = "$1" ] || fail "exit status $status, not $1: ${*:2}"; }
says() { grep -q -- "$2" "$1" || fail "$1 does not say: $2"; }
within() { [ "$ms" -le "$1" ] || fail "took $ms ms, more than $1"; }

# Before a program that is begun beside the test writes these files: until_true finds no line of an earlier one.
empty() { local file && for file; do : >"$file"; done; }

# Waits, at most 5 s (TRIES times 0.02 s), until a command succeeds.
until_true() {
    local tries=${TRIES:-250}
    while [ $((tries--)) -gt 0 ]; do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.02
    done
    fail "never so: $*"
}

sleepers() { pgrep -fx "sleep 1000[.]$mark" | wc -l; }
sleeping() { [ "$(sleepers)" = "$1" ]; }

nothing_left() {
    [ "$(sleepers)" = 0 ] || fail "processes left: $(pgrep -afx "sleep 1000[.]$mark")"
    [ -z "$(ls -A "$TMPDIR")" ] || fail "left in TMPDIR: $(ls "$TMPDIR")"
    ! find /dev/shm -newer "$TMPDIR/.." -user "$(id -u)" 2>/dev/null | grep -iE 'halay|pmix' || fail "left in /dev/shm"
}
