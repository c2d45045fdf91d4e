#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The manifests of a Job, a TrainJob and an MPIJob: their pods' commands, in namespaces of network, processes and files as pods
# have; their names are in a hosts file, as the headless service gives them. Of the first one pod is lost, and its container is
# started again. A stand-in takes the place of the third's ssh and sshd.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
"$python" -c 'import yaml' 2>err || skip "$python has no yaml: $(tail -1 err)"
manifests=$source_folder/deploy/kubernetes
pods_of() { "$python" "$manifests/pods" "$@"; }
if "$python" -c 'import kubernetes_validate, jsonschema' 2>err; then
    "$python" -m kubernetes_validate "$manifests/job.yaml" >out 2>&1 || fail "kubernetes-validate"
    "$python" "$folder/kubeflow.py" "$manifests/trainer.yaml" "$manifests/mpijob.yaml" >out 2>&1 || fail "kubeflow.py"
    for kind in job trainer mpijob; do
        pods_of "$manifests/$kind.yaml" >>pods.yaml 2>err || fail "pods of $kind.yaml"
        echo --- >>pods.yaml
    done
    "$python" -m kubernetes_validate pods.yaml >out 2>&1 || fail "kubernetes-validate, pods"
    sed 's/numProcPerNode: 8/numProcPerNode: many/; s/runtimeRef:/runtime:/' "$manifests/trainer.yaml" >wrong.yaml
    "$python" "$folder/kubeflow.py" wrong.yaml >out 2>&1 && fail "a wrong manifest is not found"
    [ "$(wc -l <out)" = 3 ] || fail "not three mistakes" # 'runtime' is none, 'runtimeRef' lacks, 'many' is no number
else
    echo "schemas: not checked: $(tail -1 err)"
fi
start_nodes 4
for i in 0 1 2 3; do
    echo "10.78.0.$((i + 1)) train-$i.train train-$i train-node-0-$i.train train-worker-$i.train.default.svc"
done >hosts
echo "127.0.0.1 localhost" >>hosts
for i in 0 1 2 3 4; do on $i mount --bind "$here/hosts" /etc/hosts || fail "no /etc/hosts on node $i"; done
# What a pod's main container runs, as words for bash; values of secrets by name.
cat >container.py <<'END'
import shlex, sys, yaml
pod = yaml.safe_load(sys.stdin)
container = pod["spec"]["containers"][0]
value = lambda v: v["value"] if "value" in v else "secret of " + v["valueFrom"]["secretKeyRef"]["name"]
env = [f"{v['name']}={value(v)}" for v in container["env"]]
print(shlex.join(["hostname", pod["spec"]["hostname"]]), "; exec", shlex.join(["env", *env, *container["command"], *container["args"]]))
END
# pod NUMBER NODE NAME: in the background
pod() {
    local text
    text=$(pods_of manifest.yaml "$3" | "$python" container.py) || fail "pod $3"
    on "$2" bash -c "PATH='$build/bin':\$PATH; $text" >"out.$1" 2>>"err.$1" </dev/null &
    pids[$1]=$!
}
declare -A pids
worlds() { sed -n 's/.*a world of \([0-9]*\) from.*/\1/p' err.0 | tr '\n' ' '; }
last_is() { [[ $(worlds) == *"$1 " ]]; }

# begin PREFIX: its pods are PREFIX0 to PREFIX3
begin() {
    rm -f over err.? out.?
    for i in 3 1 2 0; do pod $i $((i + 1)) "$1$i"; done
    until_true last_is 8
}
end() {
    touch over
    status=0
    for i in 0 1 2 3; do wait "${pids[$i]}" || status=$?; done
    cat err.? >err
    expect 0 "the pods of $(sed -n 's/^kind: //p' manifest.yaml | tail -1)"
    for i in 0 1 2 3; do counts out.$i 2 "ended after"; done
    nothing_left 4
}
sed 's/python, train.py/job_elastic, "1000000"/; /name: RANKS/s/8/2/' "$manifests/job.yaml" >manifest.yaml
begin train-
on 3 pkill -KILL -x halayrun || fail "no agent in the pod train-2"
wait "${pids[2]}"
until_true last_is 6
pod 2 3 train-2 # restartPolicy: OnFailure
until_true last_is 8
end
sed 's/python, train.py/job_elastic, "1000000"/; s/numProcPerNode: 8/numProcPerNode: 2/' "$manifests/trainer.yaml" >manifest.yaml
begin train-node-0-
end

# The launcher's pod is the bridge, from which all others can be entered.
[ ! -x "$(dirname "$python")/prterun" ] || PATH=$(dirname "$python"):$PATH
command -v prterun mpirun >/dev/null || { echo "MPIJob: not tried: neither prterun nor mpirun" && exit; }
cat >ssh <<END
#!/usr/bin/env bash
# ssh [-o OPTION] HOST COMMAND
while [[ \$1 == -* ]]; do [ "\$1" = -o ] && shift; shift; done
node=\$(sed -n "s/^10.78.0.\([0-9]\) .*\b\$1\b.*/\1/p" "$here/hosts")
shift
exec "$folder/veth-nodes" exec "\$node" -- bash -c "\$*"
END
chmod +x ssh
for i in 0 1 2 3; do echo "train-worker-$i.train.default.svc slots=2"; done >hostfile
sed "s|python, train.py|$rank, collectives|; s|/etc/mpi/hostfile|$here/hostfile|; s/slotsPerWorker: 8/slotsPerWorker: 2/" \
    "$manifests/mpijob.yaml" >manifest.yaml
export HALAY_DEADLINE=20 OMPI_MCA_plm_rsh_agent="$here/ssh" PRTE_MCA_plm_ssh_agent="$here/ssh" OMPI_ALLOW_RUN_AS_ROOT=1 \
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm_rsh_no_tree_spawn=1 PRTE_MCA_plm_ssh_no_tree_spawn=1 \
    OMPI_MCA_oob_tcp_if_include=10.78.0.0/24 PRTE_MCA_prte_if_include=10.78.0.0/24
pod 0 0 train-launcher
wait "${pids[0]}"
status=$?
cp out.0 out && cp err.0 err
expect 0 "the MPIJob"
counts out 8 "^rank . of 8 on .*: node [0-3] of 4, local . of 2, pmix"
nothing_left 4
