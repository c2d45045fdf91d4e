#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks in containers, one each, by Charliecloud under srun --mpi=pmix. CONTAINER=DIR: the image of
# deploy/containers/Containerfile as a folder (docs/containers.md); without it there is nothing to run.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
[ "${CONTAINER:-}" ] || skip "no container (CONTAINER=DIR)"
command -v ch-run >/dev/null || skip "there is no ch-run (Debian: charliecloud)"
start_slurm 2 --cpus 4 --share "$CONTAINER"
cp "$source_folder/tests/packages/arrays.py" .
# shellcheck disable=SC2016
run login timeout 120 srun --mpi=pmix -N2 -n4 sh -c '
    USER=$(id -un) exec ch-run -b "$1:/mnt" "$0" -- /opt/halay/bin/python /mnt/arrays.py' "$CONTAINER" "$here"
expect 0 "ranks in containers"
for r in 0 1 2 3; do says out "rank $r of 4: /opt/halay/lib/"; done
nothing_left 2
