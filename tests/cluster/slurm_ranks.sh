#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# srun --mpi=pmix on one to four nodes: all collectives, on ranks in blocks, unevenly, dealt out and
# anyhow. Every rank knows where it is; the job knows the same as Slurm.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
start_slurm 4 --cpus 8

said() { sed -n "$1" out | sort -u | wc -l; }

# placed HOST...: of ranks 0, 1, ...: what the ranks say of themselves
placed() {
    local n=$# r=0 host nodes local_size i before
    local hosts=("$@")
    nodes=$(printf '%s\n' "$@" | sort -u | wc -l)
    [ "$(lines "^rank " out)" = "$n" ] || fail "not $n ranks"
    for host in "${hosts[@]}"; do
        local_size=0 before=0
        for ((i = 0; i < n; i++)); do
            [ "${hosts[i]}" != "$host" ] || local_size=$((local_size + 1))
            if [ "${hosts[i]}" = "$host" ] && [ $i -lt $r ]; then before=$((before + 1)); fi
        done
        says out "^rank $r of $n on $host: node [0-9]* of $nodes, local $before of $local_size, pmix (slurm),"
        r=$((r + 1))
    done
    # Two nodes never have one number, nor one node two.
    [ "$(said 's/^rank .* on \([^ ]*\): node \([0-9]*\) .*/\1 \2/p')" = "$nodes" ] || fail "a node has two numbers"
    [ "$(said 's/^rank .*: node \([0-9]*\) .*/\1/p')" = "$nodes" ] || fail "two nodes have one number"
    sort -V out
}
# job HOSTS ARGUMENTS...
job() {
    local places
    read -r -a places <<<"$1"
    shift
    ranks "$@" "$rank" collectives
    expect 0 "srun $*"
    [ ! -s err ] || fail "srun $*: not silent"
    placed "${places[@]}"
}

job "n1 n1 n1 n1" -N1 -n4
need_several_nodes
job "n1 n2" -N2 -n2
job "n1 n1 n2 n2 n3 n3 n4 n4" -N4 -n8 --ntasks-per-node=2
job "n1 n1 n1 n2 n2 n2 n3" -N3 -n7 -m plane=3
job "n1 n2 n3 n1 n2 n3 n1" -N3 -n7 -m cyclic
printf '%s\n' n3 n1 n2 n1 n3 n3 >hosts
SLURM_HOSTFILE=$here/hosts job "n3 n1 n2 n1 n3 n3" -N3 -n6 -m arbitrary
nothing_left 4
