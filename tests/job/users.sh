#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Agents of two users on one machine who have the same secret: each is a node, and they say why.
# shellcheck source-path=SCRIPTDIR source=agents_lib.sh
. "$(dirname "$0")/agents_lib.sh"
trap 'kill "${pid[@]}" 2>/dev/null; wait; rm -rf "$here"' EXIT
[ "$(id -u)" = 0 ] || { echo "skipped: only root can start processes of another user" && exit 77; }

# What the other user can read and run.
other=65534
mkdir bin lib
cp "$HALAYRUN" "$JOB_ELASTIC" bin
cp -rL "$BUILD"/lib/libhalay.so.0 "$BUILD"/lib/halay lib
chmod -R a+rX . && chmod a+rx "$here" && chmod a+w . tmp
export LD_LIBRARY_PATH=$here/lib HALAY_PLUGIN_DIR=$here/lib/halay HALAYRUN=$here/bin/halayrun
elastic=$here/bin/${JOB_ELASTIC##*/}

job --agents 2 --min-np 2 "${cool[@]}"
agent 1 -np 2 "$elastic" 100000
told head "has brought places 0 to 1"
begin 2 setpriv --reuid $other --regid $other --clear-groups "$HALAYRUN" --agent "$where" -np 2 "$elastic" 100000
world 4
told head "process 2 (pid [0-9]* on .*) is a node of its own, and so are 1 more: it is user $other's, and process 0 (pid [0-9]* on .*) is user 0's"
kill -KILL "$(pgrep -u $other -o -f "^$elastic")" # one of them is lost, and comes back
told head "process [23] (pid .* was killed by signal 9 (SIGKILL); started again in 0.1 s$"
world 4 2
touch over
for name in head 1 2; do ended 0 $name; done
for name in 1 2; do [ "$(grep -c "^ended after" $name.out)" = 2 ] || failed "not two ranks of agent $name come to the end"; done
gone "$elastic"
