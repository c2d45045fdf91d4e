#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Address space and descriptors run out, for one rank alone and for two, over shm and tcp: it works, or every rank
# ends with an error that says something, by the start deadline and the calls' own; and nothing is left. The same on a
# full disk, with a full /dev/shm: what is to be written there is missed aloud, and jobs that need neither are well.
# shellcheck source-path=SCRIPTDIR source=tcp_lib.sh
. "$(dirname "$0")/tcp_lib.sh"
export HALAY_START_DEADLINE=3 HALAY_DEADLINE=3

limited() { # LIMIT... ; the ranks are in pids
    local begun name
    begun=$(date +%s%3N)
    await
    ms=$(($(date +%s%3N) - begun))
    within 40000 # under load; alone 7 s at most
    for name in "${!was[@]}"; do
        ! grep 'Too many open files' "err.$name" | grep -v 'ulimit -n' || fail "ulimit $*: rank $name gives no remedy"
        case ${was[$name]} in
        0) ;;
        1 | 127) [ -s "err.$name" ] || fail "ulimit $*: rank $name says nothing" ;; # 127: the loader
        *) cat "err.$name" >err && fail "ulimit $*: rank $name ended with ${was[$name]}" ;;
        esac
    done
}

for limit in "-f 10" "-v 60000" "-n 6" "-n 12" "-n 16" "-n 20"; do
    begin 0 0 1 sh -c "ulimit $limit; exec \"\$@\"" sh "$JOB_RANK"
    limited "$limit"
    for transport in shm tcp; do
        for r in 0 1; do begin $r $r 2 HALAY_TRANSPORT=$transport sh -c "ulimit $limit; exec \"\$@\"" sh "$JOB_RANK"; done
        limited "$limit"
    done
done
[ "${was[0]} ${was[1]}" = "0 0" ] || fail "20 descriptors are too few"

# shellcheck disable=SC2016
full() { # COMMAND..., with its output in disk/out where OUT is set
    mkdir -p disk
    run unshare -rm bash -c 'mount -t tmpfs -o size=64k none disk && mount -t tmpfs -o size=4k none /dev/shm || exit 99
        head -c 65536 /dev/zero >disk/filler
        head -c 4096 /dev/zero >/dev/shm/filler
        if [ "${OUT:-}" ]; then "$@" >disk/out; else "$@"; fi
        status=$?
        for at in disk /dev/shm; do find $at -type f ! -name filler -size +0 -exec echo left {} +; done
        exit $status' - "$@"
    ! grep -E '^left|signal|SIGBUS' out err || fail "on a full disk, $*"
}
if unshare -rm true 2>/dev/null; then
    for transport in shm tcp; do
        export HALAY_TRANSPORT=$transport
        full env TMPDIR="$PWD/disk" "$HALAYRUN" -np 2 "$JOB_RANK" briefly
        expect 0 "$transport, on a full disk"
        full "$HALAYRUN" -np 2 "$BENCH" allreduce --max 4 --csv disk/table
        [ "$status" = 1 ] || fail "$transport: the table is lost, and the status is $status"
        says err "halay-bench: cannot write disk/table: No space left on device"
        OUT=disk full "$HALAYRUN" -np 2 "$BENCH" allreduce --max 4
        [ "$status" = 1 ] || fail "$transport: the output is lost, and the status is $status"
        says err "halay-bench: cannot write the table: No space left on device"
    done
    # shellcheck disable=SC2016
    full bash -c '"$HALAYRUN" -np 2 "$JOB_RANK" kill 2>disk/err' # the log is lost, and not waited for
    [ "$status" = 137 ] || fail "without a log the status is $status"
fi
# Of the launcher itself: descriptors, and a TMPDIR that is too long for a socket.
for limit in 10 24; do
    run bash -c "ulimit -n $limit; exec \"\$@\"" - "$HALAYRUN" -np 4 "$JOB_RANK" briefly
    [ "$status" != 0 ] || fail "$limit descriptors are enough"
    says err "halayrun: .*ulimit -n"
done
# The size of files: no signal ends halayrun or a rank that writes to none, and the ranks' own disposition stays.
for limit in 0 1 10; do
    for transport in shm+tcp tcp; do
        HALAY_TRANSPORT=$transport bash -c "ulimit -f $limit; exec \"\$@\"" - "$HALAYRUN" -np 2 "$JOB_RANK" briefly 2>&1 | cat >out
        status=${PIPESTATUS[0]}
        expect 0 "ulimit -f $limit, $transport"
    done
done
run grep -E 'Sig(Ign|Blk)' /proc/self/status
mv out own
run "$HALAYRUN" -np 1 grep -E 'Sig(Ign|Blk)' /proc/self/status
cmp own out || fail "a rank has other signals than halayrun was started with"
long=$PWD/$(printf 'd%.0s' {1..90})
mkdir "$long"
run env TMPDIR="$long" "$HALAYRUN" -np 2 "$JOB_RANK" briefly
expect 0 "a long TMPDIR"
nothing_left
