#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Machines whose own name does not resolve, is a number, or has 64 characters; and addresses of IPv6 as hosts.
# shellcheck source-path=SCRIPTDIR source=tcp_lib.sh disable=SC2016
. "$(dirname "$0")/tcp_lib.sh"
export HALAY_DEADLINE=20 HALAY_START_DEADLINE=20
long=$(printf 'n%.0s' {1..64})
cat >named.sh <<'SH'
hostname "$1" && shift && exec "$@"
SH
if unshare -u bash named.sh "nowhere-$mark" true 2>why; then
    for name in "nowhere-$mark" 12345 "$long"; do
        run unshare -u bash named.sh "$name" "$HALAYRUN" -np 2 "$JOB_RANK" briefly
        expect 0 "halayrun on $name"
        says out "^rank 1 of 2, meet (halayrun), shm"
        run unshare -u bash named.sh "$name" "$HALAYRUN" -np 2 env -u HALAY_JOB "$JOB_CLIENT" info
        expect 0 "PMIx on $name"
        ! grep -q unknown out || fail "$name is unknown"
        # As scripts do: MASTER_ADDR=$(hostname)
        job 2 MASTER_ADDR="$name" unshare -u bash named.sh "$name" "$JOB_RANK" briefly
        says out.1 "^rank 1 of 2, tcp, shm"
        run unshare -u bash named.sh "$name" "$HALAYRUN" -H "$name:2" "$JOB_RANK" briefly
        expect 0 "a host called $name"
    done
else
    echo "other names of this machine: not tried: $(tail -1 why)"
fi
begin far 1 2 MASTER_ADDR=12345 HALAY_START_DEADLINE=2 "$JOB_RANK"
await
ended far 1 "'12345'.*the name does not resolve"

for hosts in ::1 "[::1]" "[::1]:2" "127.0.0.1:1,[::1]:1"; do
    run "$HALAYRUN" -H "$hosts" sh -c 'echo "$WORLD_SIZE"'
    expect 0 "-H $hosts"
    says out "^[12]$"
done
printf '[::1]:2\n::1 slots=1\n[::1] slots=1 # one\n' >hosts
run "$HALAYRUN" --hostfile hosts sh -c 'echo "$RANK of $WORLD_SIZE"'
expect 0 "a file of addresses"
[ "$(wc -l <out)" = 4 ] || fail "not four ranks"
run "$HALAYRUN" --dry-run --launcher mpirun -H "[fd00::7]:2,fd00::8" true
expect 0 "addresses for mpirun"
says out "\[fd00::7\]:2,\[fd00::8\]:1"
for wrong in "[::1" "[::1]2" "[::1]:" "[::1]:x" "[host]:2" "::g" "[]" ":2"; do
    run "$HALAYRUN" -H "$wrong" true
    expect 2 "-H $wrong"
done
nothing_left
