#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Rows that halay-bench calibrate has kept: found without a setting, used where all ranks have the same,
# and otherwise the table's, with one line; never an error. And what calibrate writes.
# shellcheck source-path=SCRIPTDIR source=tcp_lib.sh disable=SC2016
. "$(dirname "$0")/tcp_lib.sh"
unset HALAY_CALIBRATION XDG_CACHE_HOME HALAY_SELECTION HALAY_ALGORITHM HALAY_TRANSPORT
export HOME=$here/home
bench=("$BENCH" allreduce --min 1K --max 1K --iterations 3 --warmup 0)
head="# kept by halay-bench calibrate of Halay $("$BENCH" allreduce --max 4 --iterations 1 | sed -n 's/^# Halay \([^:]*\):.*/\1/p'):"
where=(one oversubscribed single) # which one it is here depends on the processors

# rows FILE HEAD ALGORITHM: 1 KiB between 2 or 3 ranks
rows() {
    mkdir -p "$(dirname "$1")"
    {
        echo "$2 rows"
        for n in 2 3; do printf "allreduce $n-$n/1 1K-1K %s $3\n" "${where[@]}"; done
    } >"$1.new"
    mv "$1.new" "$1"
}
# job N [VARIABLE=VALUE...]: an explained allreduce
job() { run env HALAY_EXPLAIN=1 "${@:2}" "$HALAYRUN" -np "$1" "${bench[@]}" && expect 0 "$*"; }
kept() { says err "chosen: double_tree: line [234567] of what halay-bench calibrate has kept: [23] ranks on 1 node, 1024 to 1024 bytes"; }
built_in() {
    says err "chosen: .* of the table"
    ! grep -q "has kept" err || fail "not the table's: $*"
}
lines() { [ "$(grep -c "halay warning.*calibration" err)" = "$1" ] || fail "not $1 lines"; }
quiet() { ! grep -q calibration err || fail "says something"; }

job 2 && built_in nothing && quiet
job 2 HALAY_DEBUG=info
file=$(sed -n 's/.*no calibration: there is no \([^;]*\);.*/\1/p' err | head -n1)
case $file in "$HOME"/.cache/halay/calibration-????????.rows) ;; *) fail "looked for in '$file'" ;; esac
[ ! -e "$HOME" ] || fail "looking makes folders"

rows "$file" "$head" double_tree
for n in 2 3; do job $n && kept && quiet; done
job 2 HALAY_DEBUG=info && says err "rank [01] on .*algorithms by the calibration $file"
job 4 && built_in "4 ranks"
job 2 HALAY_CALIBRATION=off && built_in off && quiet
job 2 HALAY_CALIBRATION="${file%/*}" HOME=/nowhere && kept
job 2 HALAY_CALIBRATION="$here" && built_in "another folder" && quiet
job 2 HALAY_TRANSPORT=tcp && built_in "another transport" && quiet
job 2 HALAY_ALGORITHM=barrier=dissemination && built_in "an algorithm" && quiet
job 2 HALAY_SELECTION="$file" && kept
echo "allreduce - - any circulant" >own.rows
job 2 HALAY_SELECTION=own.rows && says err "chosen: circulant: line 1 of HALAY_SELECTION"
job 2 HOME= && built_in "no home" && quiet
# By variables and by PMIx, too.
for rank in 0 1; do begin $rank $rank 2 HALAY_EXPLAIN=1 "${bench[@]}"; done
await
for rank in 0 1; do ended $rank 0; done
cp err.0 err && kept
if command -v mpirun >/dev/null; then
    run env HALAY_EXPLAIN=1 mpirun --allow-run-as-root --oversubscribe -np 2 "${bench[@]}"
    expect 0 mpirun && kept
    run env HALAY_EXPLAIN=1 mpirun --allow-run-as-root --oversubscribe -np 2 bash -c '
        [ $PMIX_RANK = 1 ] && export HOME=/nowhere; exec "$@"' - "${bench[@]}"
    expect 0 mpirun && built_in "mpirun, one rank has none" && lines 1
fi
# What is wrong with it is said once, and the table's rows are used.
wrong() { for n in 2 3; do job $n && built_in "$*" && lines 1 && says err "$*"; done; }
rows "$file" "# kept by halay-bench calibrate of Halay 0.0.1:" double_tree
wrong "was made by Halay 0.0.1, and this is Halay .*: it is not used; halay-bench calibrate makes it anew"
rows "$file" "$head" teleport
wrong "calibration is not used: $file, line 2: allreduce has no algorithm 'teleport'"
rows "$file" "$head" double_tree && chmod g+w "$file"
wrong "may be written by others"
chmod g-w "$file"
{ echo "$head rows" && yes "allreduce - - any ring" | head -n 1000000; } >"$file"
wrong "is too long"
{ echo "$head rows" && yes "#" | head -n 1000; } >"$file"
wrong "has more than 1000 lines"
head -c 100000 /dev/urandom >"$file"
wrong "was made by something else"
# Homes that differ: no rank alone decides.
rows "$file" "$head" double_tree
other=${file/home/other}
apart() { # LINES [VARIABLE=VALUE...]: rank 2 has the other home
    run env HALAY_EXPLAIN=1 "${@:2}" "$HALAYRUN" -np 3 bash -c '
        [[ "$HALAY_JOB;" = *";slot=2;"* ]] && export HOME='"$here/other"'; exec "$@"' - "${bench[@]}"
    expect 0 "$*"
    lines "$1"
}
apart 1 && built_in "one has none" && says err "rank 0 on .*calibration $file is not used: not all ranks have it"
rows "$other" "$head" double_tree
apart 0 && kept
rows "$other" "$head" circulant
apart 1 && built_in "one has another" && says err "not all ranks have it"
rows "$other" "# kept by halay-bench calibrate of Halay 0.0.1:" double_tree
apart 1 && built_in "one's is stale"
rm "$other" && mv "$file" "$other"
apart 0 && built_in "the first has none"
apart 0 HALAY_DEBUG=info && says err "rank 2 on .*calibration $other is not used: not all ranks have it"
# Replaced while jobs start: each has the one, the other or none, and all of its ranks the same.
rows "$file" "$head" double_tree
(while [ ! -e stop ]; do for a in ring circulant double_tree; do rows "$file" "$head" $a; done; done) &
writer=$!
for _ in 1 2 3 4 5 6; do
    job 3
    grep -q "chosen: [a-z_]*: \(line .* has kept\|row .* of the table\)" err || fail "neither kept nor the table's"
done
touch stop
wait $writer
nothing_left
# ---- what calibrate writes
rm -rf "$HOME"
run "$HALAYRUN" -np 2 "$BENCH" calibrate --seconds 3
expect 0 calibrate
says out "^collective  *bytes  *default"
says out "^allreduce  *16  *[a-z_]*  *[0-9.]* "
says out "^$file: [0-9]* rows\? for 2 ranks on 1 node"
[ "$(stat -c %a "${file%/*}") $(stat -c %a "$file") $(find "${file%/*}" -mindepth 1 | wc -l)" = "700 644 1" ] || fail "not mine alone: $(ls -lA "${file%/*}")"
cp "$file" two
says two "^$head rows as of HALAY_SELECTION"
says two "^# measured 2-2/1 [a-z]*: "
# More ranks are added; the same again takes the place of the old.
run "$HALAYRUN" -np 3 "$BENCH" calibrate --seconds 0.1
expect 0 "calibrate, 3 ranks"
[ "$(grep -c "^# measured 2-2/1 " "$file") $(grep -c "^# measured 3-3/1 .*not all sizes" "$file")" = "1 1" ] || fail "not both: $(cat "$file")"
diff <(grep -v "^# kept\|^# proc" two) <(sed -n '/^# measured 2/,/^# measured 3/p' "$file" | sed '$d') || fail "the rows of 2 ranks have changed"
run "$HALAYRUN" -np 2 "$BENCH" calibrate --seconds 0.1
expect 0 "calibrate again"
[ "$(grep -c "^# measured 2-2/1 .*not all sizes" "$file") $(grep -c "^# measured" "$file")" = "1 2" ] || fail "not replaced: $(cat "$file")"
for n in 2 3; do job $n HALAY_DEBUG=info && says err "algorithms by the calibration $file"; done
run "$INFO"
expect 0 halay-info
says out "^  $file$"
# Over one of another version; and where nothing can be written.
rows "$file" "# kept by halay-bench calibrate of Halay 0.0.1:" double_tree
run "$HALAYRUN" -np 2 "$BENCH" calibrate --seconds 0.1
expect 0 "over a stale one"
! grep -q "0.0.1\|double_tree$" "$file" || fail "what is stale stays: $(cat "$file")"
cannot() { # VARIABLE=VALUE TEXT
    run env "$1" "$HALAYRUN" -np 2 "$BENCH" calibrate --seconds 0.1
    expect 1 "$1"
    [ "$(wc -l <err)" -le 2 ] || fail "more than a line"
    says err "the rows are not kept: $2"
    says out "^# measured 2-2/1"
}
cannot HALAY_CALIBRATION=off "HALAY_CALIBRATION is off"
cannot HALAY_CALIBRATION="$here/two/folder" ".*Not a directory; HALAY_CALIBRATION=DIR names another folder"
cannot HOME=/proc/self ".*; HALAY_CALIBRATION=DIR names another folder"
cannot HOME= "there is no home directory"
nothing_left
