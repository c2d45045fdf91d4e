#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All ranks are told the same of a rank that is stopped, dies, leaves, or comes late. Takes the deadlines to be tried, in
# seconds: 3 6 8 12 30 is the long mode.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

# One text of the ranks, so many times, that blames one rank.
same() { # what, times, text
    grep "^$1: rank [0-9]* was told" err | sed 's/^.* was told //' | sort | uniq -c >texts
    [ "$(wc -l <texts)" = 1 ] || fail "$1: not one text: $(cat texts)"
    grep -q "^ *$2 $3" texts || fail "$1: $(cat texts)"
}

late() { # transport, ranks
    mkdir "late.$1.$2" && cd "late.$1.$2" || exit 1
    export HALAY_DEADLINE=20 HALAY_TRANSPORT=$1
    run "$HALAYRUN" -np "$2" "$JOB_VERDICT" late 2
    expect 0 "$2 ranks over $1"
    for form in $(seq 0 10); do
        # Starved of the processor the others may still agree when it comes: then it "made this call only when ...".
        same "form $form, 2 s" "$2" "(-6): .*: rank $(($2 - 1)) of "
    done
}

# Programs of which some ranks deviate, on several communicators: those that are told of a call are told the same, and
# all is well only where the program is right.
crossed() { # transport, seeds
    mkdir "crossed.$1" && cd "crossed.$1" || exit 1
    export HALAY_DEADLINE=60 HALAY_TRANSPORT=$1
    for seed in ${*:2}; do
        run "$HALAYRUN" -np $((3 + seed % 4)) "$JOB_CROSSED" "$seed"
        expect 0 "program $seed over $1"
        told=$(sed -n 's/.*told \([0-9.]*\).*/\1/p' out | sort -u | wc -l)
        texts=$(sed -n 's/.*told \([0-9.]*\)/\1/p' out | sort -u | wc -l)
        [ "$told" = "$texts" ] || fail "program $seed: $texts texts of $told calls"
        grep -q 'model wrong' out && [ "$told" = 0 ] && fail "program $seed is wrong, and ends well"
        grep -q 'model right' out && [ "$told" != 0 ] && fail "program $seed is right, and fails"
        ! grep INNOCENT out || fail "program $seed"
    done
}

# A rank leaves after an error of its own, while the others find that it is absent: it has not died.
leaver() { # transport, rank
    mkdir "leaver.$1.$2" && cd "leaver.$1.$2" || exit 1
    export HALAY_DEADLINE=60 HALAY_TRANSPORT=$1
    run "$HALAYRUN" -np 4 "$JOB_VERDICT" leaves "$2"
    expect 0 "rank $2 leaves after an error, over $1"
    same leaves 3 "(-.*: .*rank $2 of .*\(it has left after a call of it\|has not made this call\)"
}

jobs=()
for transport in shm tcp; do
    for ranks in 2 4; do
        late $transport $ranks &
        jobs+=($!)
    done
    for rank in 0 1 2 3; do
        leaver $transport $rank &
        jobs+=($!)
    done
    # shellcheck disable=SC2086
    crossed $transport ${CROSSED:-1 2 3} &
    jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job" || fail "some were late or deviated, and not told the same"; done

who=0
for transport in shm tcp; do
    export HALAY_TRANSPORT=$transport
    for deadline in "${@:-8}"; do
        export HALAY_DEADLINE=$deadline
        who=$(((who + 1) % 4))
        run "$HALAYRUN" -np 4 "$JOB_VERDICT" stopped $who
        expect 4 "rank $who is stopped, $deadline s over $transport"
        same stopped 3 "(-6): the deadline passed in .*: rank $who of "
    done
    run "$HALAYRUN" -np 4 "$JOB_VERDICT" killed 1
    expect 137 "rank 1 is killed, over $transport"
    same killed 3 "(-7): rank 1 of "
done
nothing_left
