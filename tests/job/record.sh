#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Flight records: of four ranks one does not come to a call, is killed, is stopped, or never comes to
# halay_init(). While the job hangs halay-info ps names it, and halay-replay does afterwards.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
export HALAY_DEADLINE=${DEADLINE:-20}
mkdir records

ps_says() { "$INFO" ps "$job" >seen 2>&1; grep -qE -- "$1" seen; }

# HOW, what ps says of the culprit, or "".
hang() {
    "$HALAYRUN" -np 4 --record records --timeout 6 "$JOB_RECORD" "$1" >out 2>err &
    job=$!
    until_true ps_says "$2" || { cat seen >&2; fail "$1: ps does not name rank 2"; }
    until_true ps_says 'rank 0 .*in call 20, allreduce of 64 float32.*waits in step' || fail "$1: ps on rank 0"
    "$REPLAY" "$job" >live 2>&1 || fail "$1: replay of the running job"
    wait "$job"
    status=$?
    expect 124 "$1"
}

# What is said afterwards, of the files and by halayrun.
after() {
    "$REPLAY" --draw picture.svg records/halay-record.* >replay 2>&1 || { cat replay >&2; fail "replay of the files"; }
    python3 -c 'import xml.etree.ElementTree as e, sys; sys.exit(not e.parse("picture.svg").getroot().findall("{*}path"))' ||
        fail "no arrow in the picture"
    grep -q '#c0392b.*rank 2 on ' picture.svg || fail "rank 2 is not marked in the picture"
    says replay "$1"
    says replay "it was the cause"
    says err "halayrun: where the ranks were:"
    says err "$1"
    [ "${2:-}" != lacking ] || lacking
    rm -f records/*
}

# Whose record is missing is named for that, and not to blame.
lacking() {
    rm -f records/halay-record.*.3
    "$REPLAY" records/halay-record.* >replay 2>&1 || fail "replay of three files"
    says replay "no record of rank 3 is here: nothing is known of it"
    says replay "  rank 2 has not made the call: "
    ! grep -qE "^ *rank 3 (has|is|does|cannot)" replay || { cat replay >&2; fail "rank 3 is blamed"; }
    rm -f records/halay-record.*.2
    "$REPLAY" records/halay-record.* >replay 2>&1 || fail "replay of two files"
    says replay "no record of ranks 2-3 is here: nothing is known of them"
    says replay "(all 4 ranks): no rank is seen that would keep it from its end"
    says replay "what keeps them is a rank of which no record is here, or under way"
}

hang late '^    rank 2 has not made the call: in the program'
says live "it was the cause"
says err '^halayrun:   from job_record'
after "rank 2 has not made the call: in the program's code" lacking
hang stopped '^    rank 2 has not made the call: stopped, in the program'
after "rank 2 has not made the call: was stopped, in the program's code"

hang receive '^    rank 2 has not made the call: in the program'
grep -qE 'rank 3 .*in call 0, receive of 10 float32 from rank 2 for' seen || { cat seen >&2; fail "ps on a receive"; }
says seen 'message 0 from rank 2 to rank 3:'
rm -f records/*

hang message '^    rank 2 has not made the call: in the program'
grep -qE 'rank 3 .*in recv\(source 2, tag 99, 40 bytes\) for [0-9.]* s; waits for rank 2$' seen || { cat seen >&2; fail "ps on a message"; }
says live "rank 3 waits for rank 2 to send a message: that is in the program's code"
says err "rank 3 .*in recv(source 2, tag 99, 40 bytes)"
rm -f records/*

# The survivors are told at once, so there is nothing to see meanwhile.
run "$HALAYRUN" -np 4 --record records "$JOB_RECORD" killed
expect 137
after "rank 2 has not made the call: killed by signal 9, in the program's code"

# A full disk leaves nothing, and is said once; so is a folder that is none.
full() { unshare -rm bash -c 'mount -t tmpfs -o size=32k none records && "$@"; status=$?; ls records; exit $status' - "$@"; }
if unshare -rm true 2>why; then
    run full "$HALAYRUN" -np 4 --record records "$JOB_RECORD" killed
    expect 137
    [ -s out ] && fail "left on a full disk"
    [ "$(grep -c 'flight record.* could not be written to' err)" = 1 ] || fail "a full disk is not said once"
    says err 'halayrun: the flight records of 4 ranks could not be written .*: No space left on device. Make room'
else
    echo "no full disk: $(cat why)"
fi
HALAY_RECORD=records/none run "$HALAYRUN" -np 2 "$BENCH" barrier --iterations 3
expect 0
[ "$(grep -c "HALAY_RECORD: 'records/none' is no folder" err)" = 1 ] || fail "a bad folder under halayrun"
HALAY_RECORD=records/none run "$BENCH" barrier --iterations 3
expect 0
[ "$(grep -c "HALAY_RECORD: no flight record can be written to 'records/none': No such file" err)" = 1 ] || fail "a bad folder"

# Nobody is in a call.
"$HALAYRUN" -np 4 --record records --timeout 6 "$JOB_RECORD" init >out 2>err &
job=$!
until_true ps_says 'rank 2 \(pid [1-9][0-9]* on .*: has not called halay_init\(\)'
until_true ps_says 'rank 0 .*: in halay_init\(\)'
wait "$job"
status=$?
expect 124
says err "rank 2 (pid [0-9]* on .*): has not called halay_init()"

# Without the option nothing is written; nothing is said of a program that is not ours.
rm -f records/*
run "$HALAYRUN" -np 2 bash -c 'kill -9 $$'
expect 137
grep -q 'where the ranks were' err && fail "a story of no program of ours"
[ -z "$(ls -A records)" ] || fail "records that nobody asked for"
run "$HALAYRUN" -np 2 --record records/none true
expect 2
head -c 65536 /dev/urandom >records/noise
head -c 100 /dev/zero >records/short
run "$REPLAY" records/noise records/short
expect 1
says err "noise: it is no flight record"
says err "short: it is not as long as one"
nothing_left
exit 0
