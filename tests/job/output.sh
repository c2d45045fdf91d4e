#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Standard input, output and environment of the ranks.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2012,SC2015,SC2016,SC2086,SC2217
. "$(dirname "$0")/lib.sh"
# Rank 0 reads what halayrun is given, the others read nothing.
run "$HALAYRUN" -np 3 -l cat <<<"for rank 0"
expect 0 stdin
[ "$(cat out)" = "[0] for rank 0" ] || fail "standard input"

run "$HALAYRUN" -np 2 -l bash -c 'echo a; echo b >&2; printf "half a line"; exit 0'
expect 0 prefix
[ "$(sort out)" = "[0] a
[0] half a line
[1] a
[1] half a line" ] || fail "prefixed output"
[ "$(sort err)" = "[0] b
[1] b" ] || fail "prefixed errors"

# Much output, long lines, no newline at the end: not a byte is lost, lines are not mixed.
run "$HALAYRUN" -np 4 -l bash -c 'for i in $(seq 2000); do echo "$PMIX_RANK line $i"; done
    head -c 100000 /dev/zero | tr "\0" "$PMIX_RANK"'
expect 0 volume
for r in 0 1 2 3; do
    grep "^\[$r\] $r line" out | diff -q - <(seq -f "[$r] $r line %.0f" 2000) || fail "lines of rank $r"
done
for r in 0 1 2 3; do # a long line is cut into several
    [ "$(grep -v line out | grep "^\[$r\]" | sed 's/^....//' | tr -cd $r | wc -c)" = 100000 ] ||
        fail "long line of rank $r"
done
[ "$(tail -c 1 out | od -An -c | tr -d ' ')" = '\n' ] || fail "no newline at the end"

# Kept in files as it is, and shown; with the time; one that cannot be written costs nobody anything else.
run "$HALAYRUN" --num-proc 11 --output-filename kept bash -c 'echo "out $PMIX_RANK"; printf "err" >&2'
expect 0 "kept"
[ "$(ls kept | head -2 | tr '\n' ' ')$(ls kept | wc -l)" = "rank.00 rank.01 11" ] || fail "the folders are $(ls kept)"
for r in 00 07 10; do
    [ "$(cat kept/rank.$r/stdout)" = "out $((10#$r))" ] && [ "$(cat kept/rank.$r/stderr)" = err ] || fail "what rank $r printed is not kept"
done
[ "$(sort out)" = "$(seq -f 'out %.0f' 0 10 | sort)" ] || fail "what is kept is not shown"
run "$HALAYRUN" -np 1 --output-filename kept bash -c 'echo again' # the same folder
[ "$(cat kept/rank.0/stdout)" = again ] || fail "not kept again"
run "$HALAYRUN" -np 1 --output-filename 'in/the,run/of 12:00/' bash -c 'echo deep'
[ "$(cat 'in/the,run/of 12:00/rank.0/stdout')" = deep ] || fail "the folder's own folders are not made"
run "$HALAYRUN" -np 2 --prefix-timestamp bash -c 'echo a'
[ "$(sed -E 's/^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2} //' out | sort)" = "[0] a
[1] a" ] || fail "lines with the time"
rm -r kept && mkdir -p kept/rank.0 && ln -s /dev/full kept/rank.0/stdout
run "$HALAYRUN" -np 1 --output-filename kept bash -c 'echo a; sleep 0.1; echo b'
expect 0 "a full disk"
[ "$(cat out)" = "a
b" ] || fail "a full disk costs what is shown"
says err "what rank 0 prints is not kept from here on, .*: No space left"
[ "$(wc -l <err)" = 1 ] || fail "a full disk is not one line"

# --whole-lines: lines that are written in pieces do not mix; of one rank not a byte changes; a part of a
# line that nothing follows is passed on; a full disk is said, and the job goes on.
run "$HALAYRUN" -np 3 --whole-lines perl -e '$| = 1; for my $i (1 .. 500) { print for "r", $ENV{PMIX_RANK}, " line ", $i, "\n" }'
expect 0 "lines in pieces"
for r in 0 1 2; do
    grep "^r$r" out | diff -q - <(seq -f "r$r line %.0f" 500) || fail "lines in pieces of rank $r"
done
[ "$(wc -l <out)" = 1500 ] || fail "lines in pieces mix"
head -c 300000 /dev/urandom >bytes
"$HALAYRUN" -np 1 --whole-lines cat bytes | cmp - bytes || fail "bytes of one rank"
mkfifo half
"$HALAYRUN" -np 1 --whole-lines bash -c "printf 'how many? '; exec sleep 1000.$mark" >half 2>err </dev/null &
IFS= read -r -t 60 -n 10 part <half || true
[ "$part" = "how many? " ] || fail "half a line is not passed on"
kill -TERM $!
wait $!
status=$?
expect 143 "half a line"
"$HALAYRUN" -np 2 --whole-lines bash -c 'echo a; echo b; exit 0' >/dev/full 2>err </dev/null
status=$?
expect 1 "a full disk behind --whole-lines" # as of a program that cannot write
says err "what the ranks print is not all written: No space left"
[ "$(wc -l <err)" = 1 ] || fail "a full disk is not one line"

"$HALAYRUN" -np 2 -l bash -c 'echo a' >/dev/full 2>err </dev/null
status=$?
expect 1 "a full disk behind -l"
says err "what the ranks print is not all written: No space left"
"$HALAYRUN" -np 2 -l bash -c 'echo a; exit 3' >/dev/full 2>err </dev/null
status=$?
expect 3 "a full disk, and a rank that fails"

# The reader goes away: the job ends, as a program would.
"$HALAYRUN" -np 2 -l bash -c "while :; do echo y; sleep 0.01; done" 2>err </dev/null | head -1 >out
status=${PIPESTATUS[0]}
expect 141 "reader gone"
# The reader stops reading: signals still work.
mkfifo slow
sleep 1000.$mark <slow &
reader=$!
"$HALAYRUN" -np 2 -l yes >slow 2>err </dev/null &
sleep 0.5
start=$(date +%s%3N)
kill -TERM $!
wait $!
status=$?
ms=$(($(date +%s%3N) - start))
kill $reader
wait $reader 2>/dev/null
expect 143 "reader stopped"
within 2500

# Ranks have no descriptors of halayrun's, also if it was started without standard ones.
list='set -- /proc/$$/fd/*; echo "${@##*/}" >fds.$PMIX_RANK'
bash -c "$list"
"$HALAYRUN" -np 2 -l bash -c "$list" <&- >&- 2>&-
status=$?
expect 0 "closed descriptors"
cmp fds. fds.0 && cmp fds. fds.1 || fail "descriptors: $(cat fds.), of ranks: $(cat fds.0), $(cat fds.1)"

run "$HALAYRUN" -np 2 -x A=1 --env B='x y' -x A=2 bash -c 'echo $A-$B-${HALAY_JOB%%;[!r]*}'
[ "$(sort -u out)" = "2-x y-launcher=halayrun;ranks=2" ] || fail "environment"
run env PMIX_NAMESPACE=other PMIX_RANK=77 PMIX_SERVER_URI2=nowhere "$HALAYRUN" -np 2 "$JOB_CLIENT" info
expect 0 "started within another PMIx job"
nothing_left
