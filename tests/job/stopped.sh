#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A rank is stopped in the middle of long messages: the others are told by the deadline. STOPPED_UCX=1: over UCX
# too, whose own TCP (1.13) may crash a survivor after a forced end: docs/status.md, Limits.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
export HALAY_DEADLINE=3 HALAY_DEBUG=info
severed=0
stopped() { # ranks, bytes
    run timeout 40 "$HALAYRUN" -np "$1" "$JOB_STOPPED" $(($2 << 20))
    expect 4 "$HALAY_TRANSPORT, $1 ranks, $2 MiB"
    [ "$(grep -c '^rank [02] was told after' err)" = $(($1 - 1)) ] || fail "not all of the others were told"
    nothing_left
    grep -q 'rank 1 is lost: it did not answer in time' err || return 0
    says err "the other communicator was told at once"
    severed=$((severed + 1))
}
for transport in tcp shm ${STOPPED_UCX:+ucx}; do
    export HALAY_TRANSPORT=$transport
    [ -e "$PLUGINS/halay-transport-$transport.so" ] || { echo "without $transport" && continue; }
    stopped 2 64
done
export HALAY_TRANSPORT=tcp
stopped 2 8
stopped 3 8
# Bytes land when it is stopped, in nearly all of these.
tries=5
while [ $severed = 0 ] && [ $((tries--)) -gt 0 ]; do stopped 2 64; done
[ $severed -gt 0 ] || fail "rank 1 was never stopped while its bytes landed"
exit 0
