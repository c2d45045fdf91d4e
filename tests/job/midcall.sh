#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A rank is killed in the middle of long calls, which are in segments: the others' calls end with an error that names
# it, and nothing is left. Each collective, and series of short broadcasts. No rank says it twice, though calls on two more
# communicators are under way and end by it, too (three).
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016
. "$(dirname "$0")/lib.sh"
host=$(hostname)

ended() { # ranks, how halayrun saw the end
    [ "$(grep -c '^rank [0-9]* was told in call [0-9]*, after' err)" = $(($1 - 1)) ] || fail "not all of the others were told"
    says err "^halayrun: rank 1 (pid [0-9]* on $host) $2"
    voices=$(grep -c 'halay warning .*: rank 1 of .* is lost: ' err)
    [ "$voices" -ge 1 ] && [ "$voices" -le "$3" ] || fail "$voices ranks have logged the verdict"
    [ -z "$(grep -o 'halay warning .*: rank 1 of .* is lost: ' err | sort | uniq -d)" ] || fail "a rank says it twice"
    nothing_left
}
ranks=2
for collective in allreduce allreduce broadcast broadcast_its series series_its reduce reduce_its allgather reduce_scatter alltoall alltoall alltoall alltoall barrier; do
    run "$HALAYRUN" -np $ranks "$JOB_RANK" during $collective
    expect 137 "$collective, $ranks ranks"
    ended $ranks "was killed by signal 9 (SIGKILL)" 2
    ranks=4
done
run "$HALAYRUN" -np 16 "$JOB_RANK" during allreduce
expect 137 "allreduce, 16 ranks"
ended 16 "was killed by signal 9 (SIGKILL)" 3
for _ in 1 2 3; do
    run "$HALAYRUN" -np 4 "$JOB_RANK" during three
    expect 137 three
    ended 4 "was killed by signal 9 (SIGKILL)" 3
done

# Each rank, or the one that is killed, in namespaces of its own of processes or of System V. A shell is process 1.
# halayrun sees the end of what stands around the killed rank, and that ends after it. So the others wait a little
# before they end, too.
for kind in pid ipc; do
    unshare --$kind --fork true 2>why || { echo "without $kind namespaces: $(tail -1 why)" && continue; }
    for whose in all one; do
        run "$HALAYRUN" -np 3 sh -c 'during="\"\$JOB_RANK\" during allreduce; s=\$?"
            [ "$PMIX_RANK" = 1 ] || during="$during; sleep 1"
            [ $0 = one ] && [ "$PMIX_RANK" != 1 ] && exec sh -c "$during; exit \$s"
            exec unshare --$1 --fork sh -c "$during; exit \$s"' $whose $kind
        expect 137 "$whose in a namespace: $kind"
        ended 3 "exited with status 137" 2
    done
done
exit 0
