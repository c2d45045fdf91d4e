#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# halayrun -H on two nodes, which are network namespaces of this machine: Open MPI starts its daemons
# through a stand-in for ssh, which like ssh passes no variable on.
# shellcheck source-path=SCRIPTDIR source=netns_lib.sh disable=SC2016
. "$(dirname "$0")/netns_lib.sh"
# Open MPI 5.0.11 loses a rank's record between two nodes in about one run of eight, as its own PMIx sees it.
mpirun --version 2>/dev/null | grep -q 'Open MPI) 4' || { echo "skipped: no mpirun of Open MPI 4 (Debian: openmpi-bin)"; exit 77; }
# on NODE COMMAND...: with the node's own name.
on() { ip netns exec "$net-$1" unshare --uts sh -c 'hostname "$0" && exec "$@"' "node$1" "${@:2}"; }
{ wire 10.78.0 && on 1 true; } 2>why || { echo "skipped: no network namespaces here: $(tail -1 why)" && exit 77; }

# agent HOST COMMAND: what ssh does, with nothing of the caller's environment.
cat >agent <<END
#!/bin/bash
echo "\$1" >>"$here/reached"
exec ip netns exec "$net-\${1##*.1}" unshare --uts env -i HOME="$HOME" PATH=/usr/sbin:/usr/bin:/sbin:/bin TMPDIR="$here/tmp" \
    sh -c 'hostname "\$0" && eval "\$1"' "node\${1##*.1}" "\${*:2}"
END
chmod +x agent
export OMPI_MCA_plm_rsh_agent=$here/agent OMPI_MCA_btl_tcp_if_include=eth0
export HALAY_DEADLINE=20 HALAY_TEST_WORD="one 'word'"

printf '10.78.0.11 slots=2\n10.78.0.12 slots=2 # the other\n' >hosts
run on 1 timeout 60 "$HALAYRUN" --launcher mpirun -v -np 3 --hostfile hosts -x A=1 sh -c '"$0" info; echo "$(hostname) has $A, $HALAY_TEST_WORD"' "$JOB_CLIENT"
expect 0 "three ranks on two nodes"
says err "^halayrun: --launcher mpirun: .*-H 10.78.0.11:2,10.78.0.12:2"
[ "$(grep -c "^3 ranks on 2 nodes, pmix.* 0@0:node1=10.78.0.11/[0-9]* 1@0:node1=10.78.0.11/[0-9]* 2@1:.*=10.78.0.12/[0-9]* " out)" = 3 ] || fail "not as named"
[ "$(sed -n 's/ |.*//p' out | sort -u | wc -l)" = 1 ] || fail "the ranks see different jobs"
[ "$(grep -c "^node2 has 1, one 'word'$" out)" = 1 ] || fail "variables did not reach the other node"
[ "$(cat reached)" = 10.78.0.12 ] || fail "reached $(cat reached)"
nothing_left
