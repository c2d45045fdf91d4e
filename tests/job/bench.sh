#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The comparisons with other libraries start: bench/compare measures collectives beside the Open MPI that is installed,
# checks its results and writes its tables, to which more rounds can be added. Of the others, that they take their
# arguments.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
bench=$(readlink -f "$(dirname "$0")/../../bench")

for tool in compare compare-nodes compare-rdma training_peers; do
    run python3 -B "$bench/$tool" --help
    expect 0 $tool --help
done
run python3 -B "$bench/compare" --out results --variants nobody
expect 2 a peer that is not known
[ -z "$SANITIZE" ] || { echo "skipped: what is linked with MPI has no sanitizer"; exit 77; }
command -v mpicc mpirun >/dev/null || { echo "skipped: there is no Open MPI to compare with (libopenmpi-dev, openmpi-bin)"; exit 77; }
[ "$(nproc)" -ge 2 ] || { echo "skipped: one processor: the limits of the memory take two"; exit 77; }

export OMPI_MCA_mpi_yield_when_idle=1 # or it takes minutes on a machine that has other things to do
compare() {
    run python3 -B "$bench/compare" --build "$BUILD" --out results --peers peers --variants "openmpi4 ucx" --ranks 2 --rounds 1 \
        --patience 1 --collectives allreduce,reduce_scatter,barrier --min 8 --max 8 --seconds 0.00001 --no-plot "$@"
    expect 0 compare "$@"
}
compare
for c in allreduce reduce_scatter barrier; do
    [ "$(grep -c "^$c,2," results/table.csv)" = 1 ] || fail "$c has not one row: $(cat results/table.csv)"
    says results/table.md "^### $c, 2 ranks"
    says results/variants.md "^### $c, 2 ranks"
done
says results/table.md "8 bytes, trips: Halay "
says results/runs.csv "openmpi4 ucx"
compare --collectives allreduce --append
[ "$(grep -c "^allreduce,2,.,halay," results/runs.csv)" = 2 ] || fail "the second round is not there: $(cat results/runs.csv)"
[ "$(grep -c "^barrier,2,.,halay," results/runs.csv)" = 1 ] || fail "the first rounds are gone: $(cat results/runs.csv)"
compare --collectives allgather --out ways --in-place --barrier
[ "$(grep -c "^allgather,2," ways/table.csv)" = 1 ] || fail "in place, with barriers: $(cat ways/table.csv)"
