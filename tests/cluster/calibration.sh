#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A network whose cost the table's rows do not know, 100 Mbit/s: what halay-bench calibrate keeps is
# within 5 % of the best of all algorithms: it is beaten only if 8 of 9 pairs say so, as halay-bench
# itself decides; and where the table's is the best nothing is kept. And
# nodes whose homes differ. The times are CLUSTER_LONG=1's, for a machine that does nothing else.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
start_nodes 4
export HALAY_DEADLINE=100
unset HALAY_CALIBRATION XDG_CACHE_HOME
bench=$build/bin/halay-bench port=29400

# job COMMAND...: a rank on each node, whose home is of its number where $homes says so
job() {
    local i pids=()
    port=$((port + 1))
    for i in 0 1 2 3; do
        on $((i + 1)) timeout -k 5 200 env HOME="$here/home${homes:+$i}" RANK=$i WORLD_SIZE=4 LOCAL_RANK=0 \
            LOCAL_WORLD_SIZE=1 GROUP_RANK=$i MASTER_ADDR=10.78.0.1 MASTER_PORT=$port "$@" >out.$i 2>err.$i </dev/null &
        pids+=($!)
    done
    status=0
    for i in 0 1 2 3; do wait "${pids[i]}" || status=$?; done
    cat out.? >out
    cat err.? >err
    expect 0 "$*"
}
homes=yes
job "$bench" calibrate --seconds 0.1
file=$(sed -n 's/\(.*\.rows\): [0-9]* rows\? for 4 ranks on 4 nodes$/\1/p' out)
case $file in "$here"/home0/.cache/halay/*) ;; *) fail "kept in '$file'" ;; esac
sed -i '/^broadcast /d' "$file" # what so short a measurement may have kept stands before
echo "broadcast 4-4/4 - apart knomial" >>"$file"
explained=(env HALAY_EXPLAIN=1 "$bench" broadcast --min 1K --max 1K --iterations 1 --warmup 0)
job "${explained[@]}"
counts err 1 "halay warning .*calibration $file is not used: not all ranks have it"
says err "chosen: binomial: row [0-9]* of the table"
for i in 1 2 3; do mkdir -p "home$i/.cache/halay" && cp "$file" "home$i/.cache/halay"; done
job "${explained[@]}"
counts err 0 "halay warning .*calibration"
says err "chosen: knomial: line [0-9]* of what halay-bench calibrate has kept: 4 ranks on 4 nodes"
rm "${file/home0/home3}" && touch "${file/home0/home3}"
job "${explained[@]}"
counts err 1 "halay warning .*calibration"
nothing_left 4
[ "${CLUSTER_LONG:-}" = 1 ] || exit 0

homes=
for i in 1 2 3 4; do veth shape $i 100mbit 16kb 100ms >/dev/null; done
job "$bench" calibrate --seconds 60
cat out.0
file=$(sed -n 's/\(.*\.rows\): [0-9]* rows\? for 4 ranks on 4 nodes$/\1/p' out.0)
cat "$file"
# timed COLLECTIVE BYTES [VARIABLE=VALUE...]: the median of 9, in us
timed() {
    job env "${@:3}" "$bench" "$1" --min "$2" --max "$2" --iterations 9 --warmup 1
    awk -v b="$2" '$1 == b { print $5 }' out.0
}
close() { # COLLECTIVE BYTES: the kept one, against the best of all
    local kept best='' least='' now a chosen lost=0 ratios=()
    for a in $("$build/bin/halay-info" explain "$1" "$2" --ranks 4 --nodes 4 | awk '/refused|predicted|chosen|bound|bytes|between|calibration/ { next } { sub(/^\*/, ""); print $1 }'); do
        now=$(timed "$1" "$2" HALAY_ALGORITHM="$1=$a") || exit 1
        echo "$1 $2 $a $now"
        if [ -z "$least" ] || awk "BEGIN { exit !($now < $least) }"; then least=$now best=$a; fi
    done
    job env HALAY_EXPLAIN=1 HALAY_CALIBRATION="${file%/*}" "$bench" "$1" --min "$2" --max "$2" --iterations 1 --warmup 0
    chosen=$(sed -n 's/.*chosen: \([a-z_]*\): .*/\1/p' err | head -n 1)
    echo "$1 of $2 bytes: kept $chosen, best $best"
    [ "$chosen" != "$best" ] || return 0
    for a in 1 2 3 4 5 6 7 8 9; do
        kept=$(timed "$1" "$2" HALAY_CALIBRATION="${file%/*}") || exit 1
        now=$(timed "$1" "$2" HALAY_ALGORITHM="$1=$best") || exit 1
        ratios+=("$(awk "BEGIN { print $kept / $now }")")
        if awk "BEGIN { exit !($kept > 1.05 * $now) }"; then lost=$((lost + 1)); fi
    done
    echo "$1 of $2 bytes: kept takes so many times what $best takes: ${ratios[*]}"
    [ $lost -lt 8 ] || fail "$1 of $2 bytes: $lost of 9 times more than 1.05 of the best"
}
close broadcast 262144
close broadcast 1048576
close allreduce 262144
