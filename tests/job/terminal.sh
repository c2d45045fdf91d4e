#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# On a terminal: rank 0 may read from it, and Ctrl-C ends the job.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016,SC2059,SC2086,SC2217
. "$(dirname "$0")/lib.sh"
command -v script >/dev/null || { echo "skipped: no script(1) (Debian: bsdutils)"; exit 77; }
export HALAYRUN
# Types what comes second a second after the command has started.
on_terminal() {
    mkfifo -m 600 keys
    { sleep 1; printf "$2"; sleep 5; } >keys &
    local typist=$!
    script -qec "$1" /dev/null <keys >out
    status=$?
    kill $typist
    rm keys
}

on_terminal '$HALAYRUN -np 2 bash -c "[ \$PMIX_RANK = 1 ] || read -r x; echo got \$x"' 'hello\n'
expect 0 "reading"
says out "got hello"
for react in "" 'trap true INT;'; do
    start=$(date +%s%3N)
    on_terminal "$HALAYRUN -np 2 --grace 1 bash -c '$react sleep 1000.$mark & sleep 1000.$mark; sleep 1000.$mark'" '\003'
    ms=$(($(date +%s%3N) - start - 1000))
    expect 130 "Ctrl-C"
    says out "signal 2 (SIGINT): ending the job"
    within 2000
    nothing_left
done
