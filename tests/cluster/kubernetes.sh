#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The manifest of a Job: its pods' commands, in namespaces of network, processes and files as pods have; their names are in a
# hosts file, as the headless service gives them. One pod is lost, and its container is started again.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
"$python" -c 'import yaml' 2>err || skip "$python has no yaml: $(tail -1 err)"
manifest=$source_folder/kubernetes/job.yaml
if "$python" -c 'import kubernetes_validate' 2>err; then
    "$python" -m kubernetes_validate "$manifest" >out 2>&1 || fail "kubernetes-validate"
    "$source_folder/kubernetes/pods" "$manifest" >pods.yaml 2>err || fail "kubernetes/pods"
    "$python" -m kubernetes_validate pods.yaml >out 2>&1 || fail "kubernetes-validate, pods"
else
    echo "schemas: not checked: $(tail -1 err)"
fi
start_nodes 4
for i in 0 1 2 3; do echo "10.78.0.$((i + 1)) train-$i.train train-$i"; done >hosts
echo "127.0.0.1 localhost" >>hosts
sed 's/python, train.py/job_elastic, "1000000"/; /name: RANKS/s/8/2/' "$manifest" >job.yaml
# What a pod's main container runs, as words for bash; values of secrets by name.
cat >container.py <<'END'
import shlex, sys, yaml
pod = yaml.safe_load(sys.stdin)
container = pod["spec"]["containers"][0]
value = lambda v: v["value"] if "value" in v else "secret of " + v["valueFrom"]["secretKeyRef"]["name"]
env = [f"{v['name']}={value(v)}" for v in container["env"]]
print(shlex.join(["hostname", pod["spec"]["hostname"]]), "; exec", shlex.join(["env", *env, *container["command"], *container["args"]]))
END
# pod INDEX: in the background
pod() {
    local text
    text=$("$python" "$source_folder/kubernetes/pods" job.yaml "$1" | "$python" container.py) || fail "pod $1"
    on $(($1 + 1)) bash -c "mount --bind '$here/hosts' /etc/hosts; PATH='$build/bin':\$PATH; $text" >"out.$1" 2>>"err.$1" </dev/null &
    pids[$1]=$!
}
declare -A pids
worlds() { sed -n 's/.*a world of \([0-9]*\) from.*/\1/p' err.0 | tr '\n' ' '; }
last_is() { [[ $(worlds) == *"$1 " ]]; }

for i in 3 1 2 0; do pod $i; done
until_true last_is 8
on 3 pkill -KILL -x halayrun || fail "no agent in pod 2"
wait "${pids[2]}"
until_true last_is 6
pod 2 # restartPolicy: OnFailure
until_true last_is 8
touch over
status=0
for i in 0 1 2 3; do wait "${pids[$i]}" || status=$?; done
cat err.? >err
expect 0 "the pods"
for i in 0 1 2 3; do counts out.$i 2 "ended after"; done
nothing_left 4
