#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A job whose cgroup has too little memory: it ends by an error or by the kernel's kill, which halayrun tells as
# such, never by SIGBUS, and nothing is left.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016
. "$(dirname "$0")/lib.sh"
skip() { echo "skipped: $*" && exit 77; }
[ "$(id -u)" = 0 ] || skip "only root can make a cgroup"
if [ -w /sys/fs/cgroup/memory/cgroup.procs ]; then
    top=/sys/fs/cgroup/memory limit=memory.limit_in_bytes most=memory.max_usage_in_bytes
else
    top=/sys/fs/cgroup limit=memory.max most=memory.peak
    grep -qw memory $top/cgroup.subtree_control 2>/dev/null || skip "no memory controller for a cgroup of its own"
fi
cg=$top/halay-test-$$
mkdir $cg 2>why || skip "no cgroup can be made here: $(tail -1 why)"
trap 'until rmdir $cg; do sleep 0.1; done 2>/dev/null; rm -rf "$here"' EXIT
[ ! -e $cg/memory.swap.max ] || echo 0 >$cg/memory.swap.max
job=("$BENCH" allreduce --min 8 --max 65536 --factor 64 --seconds 0.001)
within_cgroup='echo $$ >'$cg'/cgroup.procs && exec "$@"'

run "$HALAYRUN" -np 4 sh -c "$within_cgroup" sh "${job[@]}"
expect 0 "without a limit"
[ -r $cg/$most ] || skip "this kernel does not say how much memory a cgroup has used ($most)"
peak=$(cat $cg/$most)

too_little=0
for eighths in 6 4 1; do
    echo $((peak * eighths / 8)) 2>why >$cg/$limit || skip "no limit can be set: $(tail -1 why)"
    run "$HALAYRUN" -np 4 sh -c "$within_cgroup" sh "${job[@]}"
    [ $status != 0 ] || says out "yes$"
    ! grep -E 'SIGBUS|SIGSEGV|signal 7|signal 11' out err || fail "$eighths eighths of the memory"
    case $status in
    0) ;;
    137)
        says err "^halayrun: rank [0-9]* (pid .*) was killed by signal 9 (SIGKILL), and the kernel has killed when memory ran out"
        ;;
    *) says err "memory" ;;
    esac
    [ $status = 0 ] || too_little=1
    within 10000
    nothing_left
done
[ $too_little = 1 ] || fail "an eighth of the memory was enough"

# All of the job, halayrun too: whoever is killed, the others do not stay.
echo $((peak / 2)) >$cg/$limit
run sh -c "$within_cgroup" sh "$HALAYRUN" -np 4 "${job[@]}"
[ $status != 0 ] || fail "half of the memory was enough"
until_true sh -c "! grep -q . $cg/cgroup.procs"
! grep -E 'SIGBUS|SIGSEGV' out err || fail "halayrun in the cgroup"
empty() { [ -z "$(ls -A "$TMPDIR")" ] || { "$HALAYRUN" -np 1 true; false; }; }
until_true empty
nothing_left
