#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Others hold the ports that are tried, and call the port where rank 0 listens. The job comes together
# all the same, and sends strangers nothing.
# shellcheck source-path=SCRIPTDIR source=tcp_lib.sh
. "$(dirname "$0")/tcp_lib.sh"

# Holds ports on 127.0.0.1 and shows what it is sent: one that talks, one that is silent, one that hangs up.
cat >stranger.py <<'PYTHON'
import selectors, socket, sys
watch = selectors.DefaultSelector()
for port, manner in zip(map(int, sys.argv[1:]), ("talk", "silent", "hang up")):
    door = socket.create_server(("127.0.0.1", port))
    watch.register(door, selectors.EVENT_READ, manner)
print("ready", flush=True)
while True:
    for key, _ in watch.select():
        if key.data == "guest":
            try:
                data = key.fileobj.recv(4096)
            except ConnectionError:
                data = b""
            if data:
                print("was sent", data, flush=True)
            else:
                watch.unregister(key.fileobj)
                key.fileobj.close()
            continue
        guest, _ = key.fileobj.accept()
        if key.data == "hang up":
            guest.close()
            continue
        if key.data == "talk":
            guest.send(b"220 mail.example.org ready, and more than a greeting would have\r\n" * 9)
        watch.register(guest, selectors.EVENT_READ, "guest")
PYTHON
python3 stranger.py $((port + 101)) $((port + 102)) $((port + 103)) >stranger.out 2>&1 &
stranger=$!
until_true grep -q ready stranger.out
job 3 "$JOB_RANK"
for r in 0 1 2; do says out.$r "^rank $r of 3, tcp, "; done
! grep "was sent" stranger.out || fail "a stranger was sent something"

# All places where rank 0 might listen are taken.
export HALAY_DEADLINE=3
taken=$((port - 20 + 101)) # of the job before
for r in 0 1; do begin $r $r 2 HALAY_RENDEZVOUS=127.0.0.1:$taken "$JOB_RANK"; done
await
ended 0 1 "rank 0 (pid [0-9]* on .*) can listen on none of the ports $taken to $taken (last: Address already in use)"
ended 1 1 "ports $taken to $taken, within 3.0 s" "something that is not Halay answers there"
kill $stranger
wait $stranger 2>/dev/null

# Callers: garbage, half a hello, nothing at all, a hundred that stay; then the ranks come.
export HALAY_DEADLINE=20
begin 0 0 3 "$JOB_RANK"
until_true listens $((port + 101))
python3 - $((port + 101)) <<'PYTHON' &
import socket, sys, time
at = ("127.0.0.1", int(sys.argv[1]))
def call(data):
    guest = socket.create_connection(at, 5)
    guest.sendall(data)
    return guest
magic = b"HLAYDVZ1"
held = [call(b"GET / HTTP/1.1\r\n\r\n" * 100), call(magic), call(magic + bytes(300)), call(magic + b"\xff" * 232)]
held += [call(b"") for _ in range(100)]
print("called", flush=True)
try:
    while any(guest.recv(1) for guest in held[1:2]):
        pass
except OSError:
    pass
time.sleep(1)
PYTHON
callers=$!
begin 1 1 3 "$JOB_RANK"
sleep 0.5
begin 2 2 3 "$JOB_RANK"
await
for r in 0 1 2; do ended $r 0; done
wait $callers
nothing_left
