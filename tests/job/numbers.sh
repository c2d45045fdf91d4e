#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# RANK, WORLD_SIZE and the like, as torchrun sets them: those of this job, never of one around it; MASTER_PORT is
# free, and rank 0 can listen at it, again and again.
# shellcheck source-path=SCRIPTDIR source=tcp_lib.sh disable=SC2016
. "$(dirname "$0")/tcp_lib.sh"
show='echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RUN_ID$GROUP_RANK."'
outer=(RANK=3 WORLD_SIZE=9 LOCAL_RANK=1 LOCAL_WORLD_SIZE=3 GROUP_RANK=1 MASTER_ADDR=far MASTER_PORT=7 TORCHELASTIC_RUN_ID=x)
# told WHAT TEXT...: exactly these lines, in any order
told() {
    expect 0 "$1"
    [ "$(sort out)" = "$(printf '%s\n' "${@:2}" | sort)" ] || fail "$1: not: ${*:2}"
}

run "$HALAYRUN" -np 2 sh -c "$show"
at=$(sed -n 's/.*:\([0-9]*\) .*/\1/p;q' out)
[ "${at:-0}" -gt 1023 ] || fail "no port"
told "two ranks" "0/2 0/2 127.0.0.1:$at ." "1/2 1/2 127.0.0.1:$at ."
run env WORLD_SIZE=9 MASTER_PORT=29555 "$HALAYRUN" -np 1 sh -c "$show"
told "the user's port" "0/1 0/1 127.0.0.1:29555 ."
run env "${outer[@]}" "$HALAYRUN" -np 1 -x MASTER_PORT=77 sh -c "$show"
told "in a rank of torchrun" "0/1 0/1 127.0.0.1:77 ."
run "$HALAYRUN" -np 2 "$HALAYRUN" -np 1 sh -c 'echo "$RANK/$WORLD_SIZE"'
told "a job in a job" 0/1 0/1
run env "${outer[@]}" "$HALAYRUN" -np 2 --min-np 2 sh -c "$show; exec $JOB_RANK briefly"
[ "$(grep -c "^/ / : \.$" out)" = 2 ] || fail "ranks that change have numbers"
run env "${outer[@]}" "$HALAYRUN" --dry-run -H a:2 --launcher mpirun sh
for name in RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID; do says out "-u $name "; done

# Halay under a torchrun in a rank of halayrun, and under halayrun in a rank of torchrun: the inner one.
run "$HALAYRUN" -np 1 env TORCHELASTIC_RUN_ID=y RANK=0 WORLD_SIZE=1 "$JOB_RANK" briefly
expect 0 "one rank of torchrun within"
run env "${outer[@]}" "$HALAYRUN" -np 2 "$JOB_RANK" briefly
expect 0 "halayrun in a rank of torchrun"
says out "^rank 1 of 2, meet (halayrun), shm"

# Rank 0 listens at the port twice, while nobody else gets it.
cat >listen.py <<'PYTHON'
import os, socket
port = int(os.environ["MASTER_PORT"])
for _ in range(2):
    with socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True) as s:
        socket.create_connection(("127.0.0.1", port)).close()
        s.accept()[0].close()
try:
    socket.socket().bind(("", port))
except OSError:
    print("held")
PYTHON
run "$HALAYRUN" -np 1 python3 listen.py
told "rank 0 listens" held
nothing_left
