#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A rank in a network namespace of its own, as in a container: it reaches the launcher (through a relay,
# since PMIx listens on loopback) but not the first rank of its node, and is a node of its own. Where there is a
# wire between the namespaces, the job runs over it, and is told of that rank's death.
# shellcheck source-path=SCRIPTDIR source=netns_lib.sh disable=SC2016
. "$(dirname "$0")/netns_lib.sh"
unshare -n ip link set lo up 2>why || { echo "skipped: no network namespaces here: $(tail -1 why)" && exit 77; }
# Without a wire there is no way for messages: that is said at once, not after some seconds of trying.
cat >own.sh <<'SH'
[ "$PMIX_RANK" = 1 ] && exec unshare -n "$@"
exec "$@"
SH
run "$HALAYRUN" -np 2 bash own.sh "$JOB_RANK"
expect 1 "a rank without any network but its own"
says err "^halayrun: rank 1 (pid [0-9]* on .*) is in a container with a network of its own.*--network=host.*HALAY_INTERFACE"
within 5000
# A machine without any address, not even loopback: the ranks meet, and one line says what there is not.
run unshare -n "$HALAYRUN" -np 2 "$JOB_RANK"
expect 0 "no network at all"
says out "^rank 1 of 2, meet (halayrun), shm$"
says err "^halayrun: no PMIx server for programs that need one (MPI): .*(ip link set lo up)$"
[ "$(grep -vc '^halay error \[rank . on .*\]: wait or test of a request that had ended' err)" = 1 ] || fail "more than one line"
# A server of PMIx is not reached either.
run env HALAY_START_DEADLINE=20 "$HALAYRUN" -np 2 bash -c 'unset HALAY_JOB && exec bash own.sh "$@"' bash "$JOB_RANK"
expect 1 "a rank that does not reach PMIx"
says err "cannot reach the launcher's PMIx server (PMIx_Init: .*nobody listens at its address.*container with a network of its own.*--network=host"

# relay.py outer|inner PATH PORT: one end listens at PATH and calls PORT, the other the reverse.
cat >relay.py <<'PYTHON'
import os, socket, sys, threading
side, path, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
def call():
    if side == "outer":
        return socket.create_connection(("127.0.0.1", port))
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    return s
def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        pass
if side == "outer":
    door = socket.socket(socket.AF_UNIX)
    door.bind(path)
    door.listen()
else:
    door = socket.create_server(("127.0.0.1", port))
print("ready", flush=True)
while True:
    a, _ = door.accept()
    b = call()
    for pair in (a, b), (b, a):
        threading.Thread(target=pump, args=pair, daemon=True).start()
PYTHON
cat >rank.sh <<'SH'
[ "$PMIX_RANK" = 1 ] || exec "$@"
port=$(env | sed -nE 's/^PMIX_SERVER_URI[0-9]*=.*tcp4:\/\/127\.0\.0\.1:([0-9]+).*/\1/p' | head -1)
[ -n "$port" ] || { echo "no TCP port of the PMIx server" >&2; exit 1; }
# start SIDE [COMMAND...]: a relay that is ready
start() { exec {from}< <(exec "${@:2}" python3 relay.py "$1" relay "$port"); read -r <&"$from"; }
start outer
exec $ENTER bash -c "$(declare -f start); port=$port; ip link set lo up; start inner; exec \"\$@\"" bash "$@"
SH
export JOB_LOG=1 JOB_EPOCHS=3 ENTER="unshare -n"
run "$HALAYRUN" -np 3 bash rank.sh "$JOB_CLIENT" info
expect 0 "a rank in a namespace of its own"
[ "$(sed 's/ |.*//' out | sort -u | wc -l)" = 1 ] || fail "the ranks see different jobs"
says out "^3 ranks on 2 nodes, pmix .* 0@0:.* 1@1:[^ ]*=127.0.0.1/.* 2@0:"
says out "| rank 2 local 1 of 2 node 0$"
says out "| rank 1 local 0 of 1 node 1$"
[ "$(grep -v 'halay_init has waited' err | grep -c '^\[1\]')" = 1 ] || fail "not one warning"
says err "^\[1\] rank 1 (pid [0-9]* on .*) is a node of its own .*: it did not reach rank 0, .* network namespace of its own"
nothing_left

wire 10.78.1 2>why || { echo "without a wire between namespaces: $(tail -1 why)" && exit 0; }
export ENTER="ip netns exec $net-2" HALAY_INTERFACE=eth0 HALAY_START_DEADLINE=6 HALAY_DEADLINE=20
rm relay
run ip netns exec "$net-1" "$HALAYRUN" -np 3 bash rank.sh "$JOB_RANK" during allreduce
says err "rank 1 (pid [0-9]* on .*) is a node of its own"
expect 137 "the rank in a namespace of its own is killed"
[ "$(grep -c '^rank [02] was told in call' err)" = 2 ] || fail "not both of the others were told"
nothing_left
