#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks of a launcher with PMI-1 on two nodes, which are network namespaces of this machine. Skipped where those cannot
# be made.
# shellcheck source-path=SCRIPTDIR source=netns_lib.sh disable=SC2154
. "$(dirname "$0")/pmi_lib.sh"
. "$source_folder/tests/job/netns_lib.sh"
wire 10.79.0 2>why || { echo "skipped: no network namespaces here: $(tail -1 why)" && exit 77; }

# As rank 0 tells its address, no variable names an interface.
pmi 5 nodes="$net-1,$net-2" -- env JOB_BOOT=pmi "$JOB_CLIENT" info
expect 0 "5 ranks on two nodes"
h=$(hostname)
places=
for r in {0..4}; do places+=" $r@$((r % 2)):$h=10.79.0.1$((r % 2 + 1))/[1-9][0-9]*"; done
says out "^5 ranks on 2 nodes, pmi, .*$places | rank 0 local 0 of 3 node 0$"
says out "| rank 3 local 1 of 2 node 1$"
[ "$(sed 's/ |.*//' out | sort -u | wc -l)" = 1 ] || fail "the ranks see different jobs"
pmi 4 nodes="$net-1,$net-2" -- "$JOB_RANK" briefly
expect 0 "calls over two nodes"
says out "^rank 3 of 4, pmi, "
# The node of rank 1 is cut off before it looks for rank 0: it says where it looked.
ip -n "$net-2" link set eth0 down
HALAY_START_DEADLINE=3 pmi 2 nodes="$net-1,$net-2" -- "$JOB_RANK" briefly
[ "$status" != 0 ] || fail "a job over a wire that is down"
within 8000
says err "no rendezvous of rank 0 at '10.79.0.11'\|1 of the 2 ranks did not come"
nothing_left
