#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A rank whose end the kernel does not tell the others at once is named by all of them, by the deadline and with one
# text: its forked child holds its connections open, or it ended before anybody had called it. No launcher looks on.
# So is a rank whose program has closed Halay's descriptors, and it says so itself, once.
# shellcheck source-path=SCRIPTDIR source=tcp_lib.sh
. "$(dirname "$0")/tcp_lib.sh"

# ended_job NAME RANKS WHO TRANSPORT: on all ranks but WHO one text that blames WHO.
ended_job() {
    local r
    for ((r = 0; r < $2; r++)); do
        begin "$r" "$r" "$2" HALAY_TRANSPORT="$4" HALAY_DEADLINE=2 "$JOB_VERDICT" "$1" "$3"
    done
    await 2>/dev/null
    for ((r = 0; r < $2; r++)); do
        [ "$r" = "$3" ] || ended "$r" 4 "^$1: rank $r was told (-7): rank $3 of $2 .* is lost: "
    done
    cat err.* | grep "^$1: rank" | sed 's/^.* was told //' | sort -u >texts
    [ "$(wc -l <texts)" = 1 ] || fail "$1, $2 ranks over $4: not one text: $(cat texts)"
    rm err.* out.*
}

# closed_job RANKS WHO TRANSPORT: WHO says once that its program has closed descriptors, and the others that it is lost.
closed_job() {
    local r
    for ((r = 0; r < $1; r++)); do
        begin "$r" "$r" "$1" HALAY_TRANSPORT="$3" HALAY_DEADLINE=60 "$JOB_VERDICT" closed "$2"
    done
    await
    for ((r = 0; r < $1; r++)); do
        [ "$r" = "$2" ] || ended "$r" 4 "^closed: rank $r was told (-7): rank $2 of $1 .* is lost: "
    done
    ended "$2" 4 "^closed: rank $2 was told ([-0-9]*): rank $2 of $1 .*: the program has closed file descriptors"
    [ "$(grep -c "error.*has closed file descriptors" "err.$2")" = 1 ] || fail "over $3: $(cat "err.$2")"
    [ "$(wc -l <"err.$2")" -le 3 ] || fail "over $3 it says too much: $(cat "err.$2")"
    rm err.* out.*
}

for who in 0 1; do
    closed_job 3 $who tcp
    closed_job 3 $who shm
done
for who in 1 2; do ended_job forked 3 $who tcp; done
ended_job forked 3 1 shm
ended_job early 3 1 shm
ended_job early 5 1 shm
ended_job early 3 1 tcp
nothing_left
