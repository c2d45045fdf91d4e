#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A head or an agent is stopped (SIGSTOP), and goes on: nobody takes it for lost, but a job that has ended otherwise.
# shellcheck source-path=SCRIPTDIR source=agents_lib.sh
. "$(dirname "$0")/agents_lib.sh"
trap 'kill "${pid[@]}" 2>/dev/null; wait; rm -rf "$here"' EXIT # timeout lets go on what it ends
E=("$JOB_ELASTIC" "$endless")

rank_in() { # SLOT: the pid of its process
    local p
    for p in $(pgrep -f "^$JOB_ELASTIC $endless"); do
        [ "$(readlink "/proc/$p/cwd")" = "$PWD" ] && tr '\0' '\n' <"/proc/$p/environ" | grep -Eq "^HALAY_JOB=(.*;)?slot=$1(;|\$)" && echo "$p"
    done
}
stop() { kill -STOP "$(process "$1")"; }
go_on() { kill -CONT "$(process "$1")"; }
three() { # a job of one rank of the head's, and two of an agent's
    job --agents 1 --min-np 1 "${cool[@]}" -np 1 "${E[@]}"
    agent 1 -np 2 "${E[@]}"
    world 3
}
# A rank is killed, and another agent comes: both wait for who is stopped.
while_stopped() { # NAME SLOT
    three
    stop "$1"
    kill -KILL "$(rank_in "$2")"
    agent 2 -np 1 "${E[@]}"
    sleep 3
    go_on "$1"
    told head "process $2 (pid .*) was killed by signal 9 (SIGKILL); started again in 0.1 s$"

    world 4
    touch over
    for name in head 1 2; do ended 0 $name; done
}
beside head-2 while_stopped head 2
beside head-0 while_stopped head 0
beside agent-2 while_stopped 1 2
beside agent-0 while_stopped 1 0

# Nobody says how the processes of an agent that is stopped have ended. It hears how the job has when it goes on.
at_the_end() {
    three
    stop 1
    touch over
    ended 137 head "the agent of process 2 (pid .*) does not say that it has ended: it may live"
    go_on 1
    ended 137 1
}
beside at-the-end at_the_end
at_the_end_of_the_same() {
    job --agents 1 -np 1 sh -c 'until [ -e over ]; do sleep 0.1; done'
    agent 1 -np 1 sh -c 'until [ -e over ]; do sleep 0.1; done; touch done.1'
    told head "has brought place 1"
    TRIES=2000 until_true pgrep -P "$(process 1)" -x sh
    stop 1
    touch over
    ended 137 head "the agent of process 1 (pid .*) does not say that it has ended: it may live"
    go_on 1
    ended 137 1
}
beside same at_the_end_of_the_same
at_a_signal() {
    three
    stop 1
    kill -TERM "$(process head)"
    ended 143 head "the agent of process 1 (pid .*) does not say that it has ended: it may live"
    go_on 1
    ended 143 1 "the head ends the job: the processes here are ended"
}
beside signal at_a_signal
# The head is stopped for longer than it waits for agents; one has come meanwhile.
before_they_come() {
    job --agents 1 --elastic-timeout 10
    stop head
    agent 1 -np 1 true
    sleep 12
    go_on head
    ended 0 head
    ended 0 1
}
beside before before_they_come
all_beside
gone
nothing_left
