# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The parts of scripts/test, and how many seconds each may take.
# shellcheck source-path=SCRIPTDIR source=suites.sh
. "$(dirname "${BASH_SOURCE[0]}")/suites.sh"

declare -A budget=([unit]=290 [tidy]=220 [proofs]=150 [ranks]=390 [gpu]=240 [jobs]=225 [cluster]=290 [rdma]=110 [python]=255 [engines]=185 [frameworks]=190 [packages]=140) # 2685 together

need_build() { step build build ci build; }
part_unit() {
    step "check-layers --selftest" scripts/check-layers --selftest
    step "test --selftest" scripts/test --selftest
    step check-format scripts/check-format
    step check-limits scripts/check-limits
    step shellcheck shellcheck -x scripts/{{lib,runner,suites,parts}.sh,quickstart,test,ecosystem,wheel,release,check-abi,site,compare-builds,make-kernels,check-{format,examples}} .ci/run slurm/*.sbatch deploy/lsf/*.lsf slurm/{agent,hosts} \
        tools/{common,halay-doctor,halay-info}/selftest.sh tests/gpu/{,parts/}*.sh tests/packages/*.sh tests/cluster/{*.sh,slurm-cluster,veth-nodes,rdma-nodes,digits} tests/fuzz/run
    step "make-kernels --check" scripts/make-kernels --check
    need_build || return
    step check-layers scripts/check-layers
    step labels all_labelled build unit plan proofs ranks gpu job cluster rdma packages
    ctests build unit plan
    step "instructions a call" bash -o pipefail -c 'bench/instructions build | sed -n 1p'
}

part_tidy() {
    step ruff "$venv/bin/ruff" check -q --no-cache python examples tests/packages docs/site \
        tests/python scripts/{check-{layers,limits,man,nccl,proofs,tidy},settings,count-tests,end-all,install-torch,junit.py,sample.py,{test_selftest,selftest_cases}.py,layers_{cases,objects,parts,selftest,symbols,waits}.py,man_selftest.py,words.py} \
        tests/{cluster/{startup,kubeflow.py,mpi4py_rank.py,jax_rank.py},gpu/{train,surface}.py,chaos/{chaos{,_beds,_train},elastic{,_train}}.py} bench/tables tools/halay-doctor/halay-doctor-picture deploy/kubernetes/pods scripts/mpi-suite bindings/mpi/generate.py tests/mpi/names.py scripts/horovod{-suite,-examples,_examples_data.py,_absent.py,_suite_rank.py,_verdicts.py}
    for argument in -phalay bench/tables; do step "mypy $argument" "$venv/bin/mypy" --no-error-summary --cache-dir=/dev/null "$argument"; done
    step "check-tidy --selftest" scripts/check-tidy --selftest
    need_build || return
    step check-tidy scripts/check-tidy
}

part_proofs() {
    need_build || return
    ctests build proofs
    ! $all || step "500 mutants of each kind" build/bin/halay-prove --mutants 500
}

part_ranks() { sanitized "programs-unit programs-ranks" unit ranks; }
part_gpu() {
    need_build && ctests build gpu
    sanitized programs-gpu gpu
    ! $all || step matrices bash -c "cd build-asan/bin && ./test_ranks_hierarchy whole && ./test_ranks_cuda cuda-direct all &&
        ./test_ranks_group_ends && ./test_ranks_device_staged && ./test_ranks_group_steps"
}

part_jobs() {
    need_build || return
    step check-examples scripts/check-examples
    ctests build job
}

part_cluster() {
    need_build || return
    step "slurm-cluster install" test_bed slurm-cluster
    step "veth-nodes install" test_bed veth-nodes
    PYTHON=$python ctests build cluster
}

part_rdma() {
    need_build && step "rdma-nodes install" test_bed rdma-nodes
    ctests build rdma
}

engines=(tests/python/test_{agents,elastic,elastic_jobs,ray,ray_elastic,rows,spark,spark_elastic,spark_estimators,torchft}.py)
part_python() {
    pytests python tests/python "${engines[@]/#/--ignore=}" --ignore tests/python/frameworks
    ! $all || step ecosystem scripts/ecosystem
}
part_engines() { pytests engines "${engines[@]}"; }
part_frameworks() { pytests frameworks tests/python/frameworks; }
part_packages() { need_packages lmod rpm cpio python3-venv && need_build && PYTHON=$python PACKAGES_LONG=$($all && echo 1) ctests build packages; }
