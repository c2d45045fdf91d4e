# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the tests of starts by PMI-1 share: pmi_server.py stands in for mpiexec.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016
source_folder=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
. "$(dirname "$0")/lib.sh"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT HALAY_SECRET HALAY_JOB
unset "${!PMI_@}" "${!PMIX_@}" "${!SLURM_@}" "${!OMPI_@}"
export HALAY_DEADLINE=20 HALAY_START_DEADLINE=20
server=$source_folder/tests/job/pmi_server.py
# pmi N [OPTION...] -- COMMAND...
pmi() { run timeout -k 5 60 python3 -B "$server" "$@"; }
