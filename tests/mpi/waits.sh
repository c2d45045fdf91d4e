#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# waits.sh HALAYRUN INFO PROGRAM: ranks that wait for each other get one error that names each rank and its function;
# those that may go on get none, and a notice names the function too. Prints what is wrong.
set -u
halayrun=$1 info=$2 program=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset HALAY_DEADLINE HALAY_DEBUG
fail() { echo "$*"; cat "$folder"/out "$folder"/err; exit 1; }
run() { timeout 60 "$halayrun" "$@" >"$folder/out" 2>"$folder/err"; }

# RANKS CASE TEXT...: all get one text, which says these.
circle() {
    local ranks=$1 how=$2 text
    shift 2
    run -np "$ranks" "$program" "$how"
    [ "$(grep -c 'wait for each other, and none can go on' "$folder/out")" = "$ranks" ] || fail "$how: not all are told"
    [ "$(sed 's/.*wait for each other//' "$folder/out" | sort -u | wc -l)" = 1 ] || fail "$how: not one text"
    for text; do grep -qF -- "$text" "$folder/out" || fail "$how: nobody says: $text"; done
}
circle 2 recv 'rank 0 is in MPI_Recv(source 1, tag 99), rank 1 is in MPI_Recv(source 0, tag 99).'
circle 3 send 'rank 2 is in MPI_Send(dest 0, tag 5)'
circle 2 ssend 'rank 1 is in MPI_Ssend(dest 0, tag 5)'
circle 2 probe 'rank 1 is in MPI_Probe(source 0, tag 9)'
circle 3 any 'rank 0 is in MPI_Recv(source any, tag 99)' 'rank 2 is in MPI_Recv(source 1, tag 99)'
circle 2 waitall 'request 0: ' 'rank 0 is in MPI_Waitall: recv(source 1, tag 3)'
circle 3 collective 'rank 0 is in MPI_Allreduce (allreduce of 1 int32' 'rank 1 is in MPI_Recv(source 0, tag 99)'

run -np 3 "$program" away || fail "away: status $?"
[ "$(grep -c ': well$' "$folder/out")" = 3 ] || fail "away: an error"
grep -q 'MPI_Recv(source 0, tag 99) on a communicator of 3 ranks has waited for .*rank 0 of 3 on .* does not answer: it is not in Halay, and sleeps' \
    "$folder/err" || fail "away: no notice"

# A thread of the library answers for rank 1, which waits for rank 0.
run -np 3 "$program" locked || fail "locked: status $?"
[ "$(grep -c ': well$' "$folder/out")" = 3 ] || fail "locked: an error"

# Another thread might send: a notice, and no error.
run --timeout 4 -np 2 "$program" recv multiple
grep -q 'none can go on' "$folder/out" "$folder/err" && fail "multiple: an error"
grep -q 'rank 0 of 2 on .* has not sent it: it is in MPI_Recv(source 1, tag 99) on a communicator' "$folder/err" || fail "multiple: no notice"

# While it hangs the record says where each is, with the function of MPI.
"$halayrun" --timeout 8 -np 3 "$program" hang multiple >"$folder/out" 2>"$folder/err" &
job=$!
seen() { "$info" ps $job >"$folder/seen" 2>&1 && grep -q 'rank 1 .*in MPI_Recv(source 0, tag 99, 4 bytes) for [0-9.]* s; waits for rank 0$' "$folder/seen" &&
    grep -q 'rank 0 .*in MPI_Allreduce, call [0-9]*.*allreduce of 1 int32' "$folder/seen" &&
    grep -q 'rank 1 waits for rank 0 to send a message: that is in MPI_Allreduce' "$folder/seen"; }
for _ in $(seq 60); do seen && break; sleep 0.1; done
seen || { cat "$folder/seen"; fail "hang: halay-info ps"; }
kill $job 2>/dev/null
wait $job
exit 0
