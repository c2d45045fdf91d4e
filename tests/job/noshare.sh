#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that can share no memory, or little of it: each is a node of its own, or its rings are smaller; a
# warning says so once and the job goes on.
# shellcheck source-path=SCRIPTDIR source=tcp_lib.sh disable=SC2016
. "$(dirname "$0")/tcp_lib.sh"
export HALAY_START_DEADLINE=20
"$DENY" memfd_create /bin/true || { echo "skipped: no seccomp filter can be set here" && exit 77; }
bench=("$BENCH" allreduce --min 8 --max 65536 --seconds 0.001)

# job TEXT RANKS WARNINGS COMMAND...: it ends well, says where it ran, and warns so many times
job() {
    run "$HALAYRUN" -np "$2" "${@:4}"
    expect 0 "${*:4}"
    says out "$2 ranks on $1"
    ! grep -v yes out | grep -q ' no$' || fail "a wrong sum"
    [ "$(grep -cE 'warning|is a node of its own' err)" = "$3" ] || fail "not $3 warnings"
    nothing_left
}
for call in memfd_create pidfd_open; do
    job "3 nodes, transport tcp" 3 1 "$DENY" $call "${bench[@]}"
    says err "^halayrun: rank 0 .* is a node of its own, and so are 2 more: it can share no memory: $call is refused"
done
job "1 node, transport shm" 2 0 "$DENY" process_vm_readv "${bench[@]}"
job "2 nodes, transport shm+tcp" 3 1 \
    sh -c '[ "$PMIX_RANK" = 1 ] && set -- "$DENY" memfd_create "$@"; exec "$@"' sh "${bench[@]}"
says err "^halayrun: rank 1 .* is a node of its own: it can share no memory: memfd_create is refused"
job "2 nodes, transport tcp" 3 1 \
    sh -c '[ "$PMIX_RANK" = 0 ] && set -- "$DENY" memfd_create "$@"; exec "$@"' sh "${bench[@]}"

# Files of at most so many KiB.
job "1 node, transport shm" 2 0 bash -c 'ulimit -f 1024 && exec "$@"' sh "${bench[@]}"
job "1 node, transport shm" 2 1 bash -c 'ulimit -f 100 && exec "$@"' sh "${bench[@]}"
says err "rings of 65536 bytes instead of .*: the limit on file size"
job "2 nodes, transport tcp" 2 1 bash -c 'ulimit -f 32 && exec "$@"' sh "${bench[@]}"
says err "the limit on file size (ulimit -f) is 32768 bytes"

# Namespaces of their own of processes and System V, as containers have; the network's is apart.sh's.
if unshare --pid --ipc --fork true 2>/dev/null; then
    job "1 node, transport shm" 2 0 unshare --pid --ipc --fork "${bench[@]}"
fi

# The other bootstrap: torchrun's variables.
begin a 0 2 "${bench[@]}"
begin b 1 2 "$DENY" memfd_create "${bench[@]}"
await
ended a 0 "rank 1 .* is a node of its own: it can share no memory: memfd_create is refused"
ended b 0
says out.a "2 ranks on 2 nodes, transport tcp"
