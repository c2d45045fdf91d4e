#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# srun --mpi=pmix on one to four nodes: all collectives, on ranks in blocks, unevenly, dealt out and
# anyhow. Every rank knows where it is; the job knows the same as Slurm.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
start_slurm 4 --cpus 8
export HALAY_STALL=20 # where processors are few ranks wait for longer than a second, and that is said

said() { sed -n "$1" out | sort -u | wc -l; }

# job RANKS NODES ARGUMENTS...: where Slurm has put them is where they say they are.
job() {
    local n=$1 nodes=$2 r host at
    declare -A size=() before=()
    shift 2
    # shellcheck disable=SC2016 # expands there
    ranks "$@" bash -c 'echo "slurm $SLURM_PROCID $SLURMD_NODENAME"; exec "$0" collectives' "$rank"
    expect 0 "srun $*"
    [ ! -s err ] || fail "srun $*: not silent"
    sort -V out >sorted
    [ "$(lines "^rank " sorted)" = "$n" ] || fail "not $n ranks"
    [ "$(awk '/^slurm/ { print $3 }' sorted | sort -u | wc -l)" = "$nodes" ] || fail "Slurm took other than $nodes nodes"
    while read -r _ _ host; do size[$host]=$((${size[$host]:-0} + 1)); done < <(grep "^slurm " sorted)
    while read -r _ r host; do
        at="local ${before[$host]:-0} of ${size[$host]}"
        says sorted "^rank $r of $n on $host: node [0-9]* of $nodes, $at, pmix (slurm),"
        before[$host]=$((${before[$host]:-0} + 1))
    done < <(grep "^slurm " sorted)
    [ "$(said 's/^rank .* on \([^ ]*\): node \([0-9]*\) .*/\1 \2/p')" = "$nodes" ] || fail "a node has two numbers"
    [ "$(said 's/^rank .*: node \([0-9]*\) .*/\1/p')" = "$nodes" ] || fail "two nodes have one number"
    echo "srun $*:"
    grep "^rank " sorted
}

job 4 1 -N1 -n4
job 2 2 -N2 -n2
job 8 4 -N4 -n8 --ntasks-per-node=2
job 8 4 -N4 -n8
job 7 3 -N3 -n7 -m cyclic # uneven in any case
job 7 3 -N3 -n7 -m plane=2
printf '%s\n' n3 n1 n2 n1 n3 n3 >hosts
export SLURM_HOSTFILE=$here/hosts
job 6 3 -N3 -n6 -m arbitrary
[ "$(awk '/^slurm/ { print $3 }' sorted | xargs)" = "n3 n1 n2 n1 n3 n3" ] || fail "not the places that were asked for"
# halayrun hands srun such a file, which has no name.
unset SLURM_HOSTFILE
# shellcheck disable=SC2016 # expands there
run login timeout -k 5 60 salloc -N3 -n6 "$build/bin/halayrun" -H n3:2,n1:1,n2:3 --output-filename "$here/kept" \
    sh -c 'echo "$SLURM_PROCID $(hostname)"'
expect 0 "halayrun in an allocation, with hosts"
[ "$(cat "$here"/kept/rank.?/stdout | xargs)" = "0 n3 1 n3 2 n1 3 n2 4 n2 5 n2" ] || fail "not halayrun's places: $(cat "$here"/kept/rank.?/stdout)"
nothing_left 4
