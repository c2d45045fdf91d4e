#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A launcher with PMI-1: starts N ranks, each with a socket, and answers what they ask.

    pmi_server.py N [fault=REQUEST:ACTION] [without=RANK,...] [nodes=A,B] -- COMMAND...

A fault is in the answers to rank 1: `close` ends the connection, `silent` never answers, and any
other text is the answer, where \\n is a newline. Ranks in `without` run `true` instead. A node is a
network namespace; ranks are dealt out. As Hydra does, it ends all ranks when one's connection
ends before `finalize`. Its status is the largest of its ranks'; a rank that a signal has ended
counts 128 more.
"""
import os
import selectors
import signal
import socket
import subprocess
import sys

at = sys.argv.index("--")
nranks, command = int(sys.argv[1]), sys.argv[at + 1:]
options = dict(text.split("=", 1) for text in sys.argv[2:at])
fault, action = options.get("fault", ":").split(":", 1)
without = [int(rank) for rank in options.get("without", "").split(",") if rank]
nodes = options.get("nodes", "").split(",")
store, committed = {}, {}
ranks, barrier = {}, []
waits = selectors.DefaultSelector()


def start(rank):
    ours, theirs = socket.socketpair()
    environment = dict(os.environ, PMI_FD=str(theirs.fileno()), PMI_RANK=str(rank),
                       PMI_SIZE=str(nranks))
    node = nodes[rank % len(nodes)]
    what = ["true"] if rank in without else command
    if node:
        what = ["ip", "netns", "exec", node, *what]
    process = subprocess.Popen(what, env=environment, pass_fds=[theirs.fileno()])
    theirs.close()
    ranks[rank] = process
    waits.register(ours, selectors.EVENT_READ, {"rank": rank, "text": b"", "used": False})


def answer(end, fields):
    """What this request is answered with; None: nothing, by now."""
    what = fields["cmd"]
    if what == "put":
        store[fields["kvsname"], fields["key"]] = fields["value"]
    if what == "get":
        value = committed.get((fields["kvsname"], fields["key"]))
        return f"cmd=get_result rc=0 value={value}" if value else "cmd=get_result rc=-1 msg=none"
    if what == "barrier_in":
        barrier.append(end)
        if len(barrier) == nranks:
            committed.update(store)
            for other in barrier:
                other.sendall(b"cmd=barrier_out\n")
            barrier.clear()
        return None
    return {"init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "get_maxes": "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024",
            "get_my_kvsname": "cmd=my_kvsname kvsname=kvs_1_0", "put": "cmd=put_result rc=0",
            "finalize": "cmd=finalize_ack"}[what]


def serve(end, state):
    data = end.recv(4096)
    state["text"] += data
    while b"\n" in state["text"]:
        line, state["text"] = state["text"].split(b"\n", 1)
        fields = dict(pair.split("=", 1) for pair in line.decode().split(" "))
        state["used"] = fields["cmd"] != "finalize"
        if state["rank"] == 1 and fields["cmd"] == fault:
            said = {"silent": None, "close": None}.get(action, action.replace("\\n", "\n"))
            if action == "close":
                data = b""
        else:
            said = answer(end, fields)
        if said is not None:
            end.sendall(said.encode() + b"\n")
        if fields["cmd"] == "finalize":
            data = b""
    if not data:
        waits.unregister(end)
        end.close()
        if state["used"]:
            ranks[state["rank"]].wait()  # it has ended, or will as its connection has
            for process in ranks.values():
                process.send_signal(signal.SIGKILL)


for one in range(nranks):
    start(one)
while any(process.poll() is None for process in ranks.values()):
    for found, _ in waits.select(0.05):
        serve(found.fileobj, found.data)
sys.exit(max(c if c >= 0 else 128 - c for c in (p.wait() for p in ranks.values())))
