#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A head and an agent on two nodes, which are network namespaces: ranks meet and compute over TCP, the wire is cut, and
# comes back.
# shellcheck source-path=SCRIPTDIR source=agents_lib.sh
. "$(dirname "$0")/agents_lib.sh"
# shellcheck source-path=SCRIPTDIR source=netns_lib.sh
. "$(dirname "$0")/netns_lib.sh"
wire 10.84.0 2>why || { echo "skipped: no network namespaces here: $(tail -1 why)" && exit 77; }
trap 'kill "${pid[@]}" 2>/dev/null; wait; for i in 1 2; do ip netns del $net-$i; done 2>/dev/null; rm -rf "$here"' EXIT
listen=0
on() { at=(ip netns exec "$net-$1"); }

on 1 && job --agents 1 -np 2 -l "$JOB_RANK" briefly
[ "${where%:*}" = "$network.11" ] || fail "agents are to come to $where"
on 2 && agent 1 -np 2 -l "$JOB_RANK" briefly
ended 0 head
ended 0 1
for r in 0 1; do grep -q "^\[$r\] rank $r of 4, .*tcp" head.out || fail "rank $r"; done
for r in 2 3; do grep -q "^\[$r\] rank $r of 4, .*tcp" 1.out || fail "rank $r"; done

# A rank there dies; the wire is cut: the others go on, and the agent ends what it has; another one brings them back.
export HALAY_LINK_TIMEOUT=2
E=("$JOB_ELASTIC" "$endless")
on 1 && job --agents 1 --min-np 1 "${cool[@]}" -np 1 "${E[@]}"
on 2 && agent 1 -np 2 "${E[@]}" kill:1:2
told head "process 1 (pid .*) was killed by signal 9 (SIGKILL); started again"
world 3 2
ip -n "$net-2" link set eth0 down
start=$(date +%s%3N)
ended 125 1 "the head of the job at $where is lost: .*: the processes here are ended"
ms=$(($(date +%s%3N) - start))
within 8000
told head "lost the agent on .*: its connection ended"
world 1
ip -n "$net-2" link set eth0 up
on 2 && agent 2 -np 2 "${E[@]}"
world 3 3
touch over
for name in head 2; do ended 0 $name; done
[ "$(cat head.out 2.out | grep -c '^ended after')" = 3 ] || fail "not 3 ranks come to the end"
nothing_left
