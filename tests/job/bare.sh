#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Where things lack that a machine has: a user without a name or a home, no /dev, /proc or /sys, small limits,
# a full disk, an old kernel. The job runs, or one line says why it cannot.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016
. "$(dirname "$0")/lib.sh"
unshare -m true 2>why || { echo "skipped: no mount namespaces here: $(tail -1 why)" && exit 77; }
chmod 755 "$here" && chmod 1777 "$TMPDIR"
# Where another user may go.
mkdir -p bin lib/halay && cp "$HALAYRUN" "$JOB_RANK" bin && cp "$BUILD"/lib/libhalay.so.0 lib && cp "$BUILD"/lib/halay/*.so lib/halay
export LD_LIBRARY_PATH=$here/lib
HALAYRUN=$here/bin/halayrun JOB_RANK=$here/bin/job_rank

# without FILES COMMAND...: with none of these, each a folder that a file system is mounted at.
without() { unshare -m bash -c 'for at in $1; do mount -t tmpfs -o ro none "$at" || exit; done; exec "${@:2}"' bash "$@"; }
# one_line STATUS TEXT COMMAND...
one_line() {
    run "${@:3}"
    expect "$1" "${*:3}"
    [ "$(wc -l <err)" = 1 ] || fail "not one line"
    says err "$2"
}
two_ranks() {
    expect 0 "$1"
    [ "$(grep -c '^rank [01] of 2' out)" = 2 ] || fail "not two ranks: $1"
}

# ------------------------------------------------------------------ users
for user in 65534 543210; do # the second one is in no list of users
    for home in HOME=/nowhere HOME=/root --unset=HOME; do
        run setpriv --reuid $user --regid $user --clear-groups env "$home" "$HALAYRUN" -np 2 "$JOB_RANK"
        two_ranks "user $user, $home"
    done
done

# ------------------------------------------------------------------ file systems
run without "/dev/shm /sys /etc" "$HALAYRUN" -np 2 "$JOB_RANK"
two_ranks "without /dev/shm, /sys and /etc"
one_line 125 "no plug-in for the ranks to meet at: .* (is /proc mounted?)$" without /proc "$HALAYRUN" -np 2 "$JOB_RANK"
one_line 125 "cannot open /dev/null: .*: a container needs a /dev$" without /dev "$HALAYRUN" -np 2 "$JOB_RANK"
run without /sys "$DOCTOR" --brief
expect 0 "halay-doctor without /sys"
says out "^note  *net.interface *unknown: /sys is not mounted$"
run env HALAY_PLUGIN_DIR= "$HALAYRUN" -np 2 "$JOB_RANK"
two_ranks "HALAY_PLUGIN_DIR is empty"
one_line 125 "/nowhere/halay-launch-meet.so: .* (is HALAY_PLUGIN_DIR right?)$" env HALAY_PLUGIN_DIR=/nowhere "$HALAYRUN" -np 2 "$JOB_RANK"

if unshare -n true 2>/dev/null; then
    run unshare -n sh -c 'ip link set lo up && ip address del 127.0.0.1/8 dev lo && exec "$@"' sh "$HALAYRUN" -np 2 "$JOB_RANK"
    two_ranks "a loopback that speaks IPv6 only"
fi

# ------------------------------------------------------------------ limits
one_line 125 "the limit on the stack is 64 KiB, and 512 are needed at least: raise it (ulimit -s)$" \
    bash -c 'ulimit -s 64 && exec "$@"' bash "$HALAYRUN" -np 2 "$JOB_RANK"
one_line 125 "cannot start a process: .*: raise the limit on processes (ulimit -u)$" \
    setpriv --reuid 543210 --regid 543210 --clear-groups bash -c 'ulimit -u 1 && exec "$@"' bash "$HALAYRUN" -np 2 "$JOB_RANK"
one_line 125 "cannot lock .*: Permission denied (a umask such as 022 leaves the owner in)$" \
    setpriv --reuid 543210 --regid 543210 --clear-groups bash -c 'umask 777 && exec "$@"' bash "$HALAYRUN" -np 2 "$JOB_RANK"

# ------------------------------------------------------------------ a full disk
for command in "$HALAYRUN --help" "$HALAYRUN --version" "$HALAYRUN -H a:2 --launcher mpirun --dry-run p" "$DOCTOR" "$DOCTOR --help" "$INFO" "$INFO --version" \
    "$PROVE --ranks 2" "$REPLAY --help"; do
    # shellcheck disable=SC2086
    bash -c 'exec "$@" >/dev/full' bash $command 2>err && fail "$command: a full disk is nothing to it"
    name=${command%% *}
    says err "^${name##*/}: cannot write to standard output: No space left on device"
done
bash -c 'exec "$@" >/dev/full' bash "$HALAYRUN" -l -np 2 "$JOB_RANK" 2>err
[ $? = 1 ] || fail "a full disk ends the job, or is nothing to it"
! grep -q exited err || fail "a full disk ends a rank"
says err "^halayrun: what the ranks print is not all written: No space left on device$"

# ------------------------------------------------------------------ an old kernel
"$DENY" memfd_create /bin/true || exit 77
run setarch --uname-2.6 "$HALAYRUN" -np 2 "$DENY" pidfd_open "$JOB_RANK"
expect 0 "an old kernel"
says err "can share no memory: pidfd_open is refused: .* (Linux 5.3 or newer is needed)$"
nothing_left
