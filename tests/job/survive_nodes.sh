#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Survivors go on between two nodes, which are network namespaces, of two ranks: a node dies, one rank of another node
# dies, one is stopped, and the wire is cut while they agree: then both halves go on by HALAY_LINK_TIMEOUT.
# shellcheck source-path=SCRIPTDIR source=tcp_lib.sh
. "$(dirname "$0")/tcp_lib.sh"
# shellcheck source-path=SCRIPTDIR source=netns_lib.sh
. "$(dirname "$0")/netns_lib.sh"
unset HALAY_DEADLINE
wire 10.83.0 2>why || { echo "skipped: no network namespaces here: $(tail -1 why)" && exit 77; }

survive() { begin_all timeout -k 5 90 "$JOB_SURVIVE" "$@"; }
go_on() { for r in $1; do ended "$r" 0 "^rank $r agreed after .* goes on with $2; failed:$3[.]"; done; }

survive die 12
await
go_on "0 1" 2 " 2 3"
survive die 3
await
go_on "2 3" 2 " 0 1"
survive die 9
await
go_on "1 2" 2 " 0 3"

HALAY_STOP_TIMEOUT=3 survive stop 8 12
await
go_on "0 1 2" 3 " 3"
ended 3 5 "the others have gone on without this rank"
says err.0 "halay_comm_agree .* has waited for .*rank 3 of 4 on .* is stopped (SIG"

# Who is cut off waits HALAY_LINK_TIMEOUT once or twice, not for each of the six that would coordinate.
ranks=8 first=6
HALAY_LINK_TIMEOUT=4 survive cut 0
for r in 0 1 2 3 4 5 6 7; do until_true grep -q "rank $r is ready" err.$r; done
ip -n "$net-1" link set eth0 down
await
go_on "0 1 2 3 4 5" 6 " 6 7"
go_on "6 7" 2 " 0 1 2 3 4 5"
for r in 6 7; do
    [ "$(sed -n 's/^rank [67] agreed after \([0-9]*\) ms.*/\1/p' err.$r)" -lt 10000 ] || fail "$(cat err.$r)"
done
nothing_left
