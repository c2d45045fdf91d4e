#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# halayrun gives ranks equal shares of the processors that it may use itself, where they divide.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2015,SC2016
. "$(dirname "$0")/lib.sh"
unset HALAY_BIND
have=$(nproc)
cat >tell.sh <<'SH'
case $HALAY_JOB in *";processors="*) cpus=${HALAY_JOB#*;processors=} cpus=${cpus%%;*} ;; esac
sed -n "s/^Cpus_allowed_list:[[:space:]]*/$PMIX_RANK of ${cpus:-none}: /p" /proc/self/status
SH
# Numbers, one a line, from "0-2,5".
numbers() { tr , '\n' <<<"$1" | while IFS=- read -r a b; do seq "$a" "${b:-$a}"; done; }
mine=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)

bound() { # file, ranks, processors: equal shares of all of them
    local all="" rank share least most
    least=$(($3 / $2)) most=$((($3 + $2 - 1) / $2))
    for rank in $(seq 0 $(($2 - 1))); do
        share=$(sed -n "s/^$rank of $3: //p" "$1")
        [ -n "$share" ] || fail "rank $rank of $2 says nothing of $3 processors: $(cat "$1")"
        n=$(numbers "$share" | wc -l)
        # of cores with two threads each, one share may have a whole core more than another
        [ "$n" -ge $((least - 1)) ] && [ "$n" -le $((most + 1)) ] && [ "$n" -ge 1 ] || fail "rank $rank of $2 has $share"
        all="$all,$share"
    done
    [ "$(numbers "${all#,}" | sort -n)" = "$(numbers "$4" | sort -n)" ] || fail "$2 ranks have ${all#,}, not each of $4 once"
}
free() { # ranks, processors: each may use all of them
    [ "$(sort -u out | wc -l)" = "$1" ] && [ "$(grep -c " of none: $2\$" out)" = "$1" ] || fail "bound, not free: $(cat out)"
}

for n in 2 3; do
    run "$HALAYRUN" -np $n sh tell.sh
    expect 0 "$n ranks"
    if [ "$have" -ge $n ]; then bound out $n "$have" "$mine"; else free $n "$mine"; fi
done
run "$HALAYRUN" -np $((have + 1)) sh tell.sh
free $((have + 1)) "$mine"
threads() { # expected, ranks, options: OpenMP's threads of each rank
    local n=$2 expected=$1
    run "$HALAYRUN" -np "$n" "${@:3}" sh -c 'echo "threads ${OMP_NUM_THREADS:-as many}"'
    [ "$(grep -cx "threads $expected" out)" = "$n" ] || fail "$n ranks $*: $(cat out)"
}
unset OMP_NUM_THREADS
threads 1 $((have + 1))
threads 3 $((have + 1)) -x OMP_NUM_THREADS=3
threads "as many" $((have + 1)) --bind none
threads "as many" "$have"
OMP_NUM_THREADS=2 threads 2 $((have + 1))
run "$HALAYRUN" -np 1 sh tell.sh
free 1 "$mine"
run "$HALAYRUN" --bind none -np 2 sh tell.sh
free 2 "$mine"
run env HALAY_BIND=none "$HALAYRUN" -np 2 sh tell.sh
free 2 "$mine"
run env "HALAY_JOB=processors=77" "$HALAYRUN" --bind none -np 2 sh tell.sh
free 2 "$mine"
one=$(numbers "$mine" | tail -1)
run taskset -c "$one" "$HALAYRUN" -np 2 sh tell.sh
free 2 "$one"
run "$HALAYRUN" --bind core -np 2 true
expect 2 --bind
says err "^halayrun: --bind must be auto or none, not 'core'"
run env HALAY_BIND=yes "$HALAYRUN" -np 2 true
expect 2 HALAY_BIND
says err "^halayrun: HALAY_BIND must be auto or none, not 'yes'"
[ "$have" -ge 2 ] || { nothing_left && echo "skipped: shares, on one processor" && exit 0; }

run env HALAY_BIND=none "$HALAYRUN" --bind auto -np 2 sh tell.sh
bound out 2 "$have" "$mine"
two=$(numbers "$mine" | head -2 | paste -sd,)
run taskset -c "$two" "$HALAYRUN" -np 2 sh tell.sh
bound out 2 2 "$two"
# Twice as many ranks: each processor in turn. With one rank more it does not come out even.
run "$HALAYRUN" -np $((2 * have)) sh tell.sh
sort -n out >all
for half in 0 1; do
    awk -v n="$have" -v half=$half '$1 >= half * n && $1 < (half + 1) * n { $1 -= half * n; print }' all >part
    [ "$(wc -l <part)" = "$have" ] || fail "$((2 * have)) ranks: $(cat out)"
    bound part "$have" "$have" "$mine"
    [ $half = 0 ] && cp part first_half
done
cmp -s part first_half || fail "not in turn: $(cat out)"
run "$HALAYRUN" -np $((2 * have + 1)) sh tell.sh
free $((2 * have + 1)) "$mine"
# A rank is free to use others.
run "$HALAYRUN" -np 2 taskset -c "$one" sh tell.sh
[ "$(grep -c " of $have: $one\$" out)" = 2 ] || fail "taskset in a rank: $(cat out)"

# Two jobs at once have all processors each, so that neither is squeezed into a part of them.
(trap - EXIT; "$HALAYRUN" -np 2 sh -c 'sh tell.sh; : >here.$PMIX_RANK; until [ -e go ]; do sleep 0.02; done' >first 2>err) &
until_true test -e here.0 -a -e here.1
run "$HALAYRUN" -np 2 sh tell.sh
: >go
wait
bound first 2 "$have" "$mine"
bound out 2 "$have" "$mine"

# Ranks that are bound are not more than the processors, also behind a shell: they spin, and do not yield.
run env HALAY_DEBUG=info "$HALAYRUN" -np 2 sh -c '"$JOB_RANK"; exit $?'
expect 0 "behind a shell"
says out "rank 0 of 2, meet (halayrun), shm"
says err "rank 1 on .*: it may use processors [0-9,-]*; the ranks of its node share $have\$"
run env HALAY_DEBUG=info "$HALAYRUN" -np $((2 * have)) "$JOB_RANK"
expect 0 "two ranks on each processor"
says err "it may use processors [0-9]*; the ranks of its node share $have\$"
nothing_left
