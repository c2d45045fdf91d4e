#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The comparisons with other libraries start: bench/compare measures collectives beside the Open MPI that is installed,
# checks its results and writes its tables, to which more rounds can be added; beside another build of Halay, and beside
# busy neighbours, which end with it. bench/tables reads what it has measured. Of the others, that they take their
# arguments.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
bench=$(readlink -f "$(dirname "$0")/../../bench")

for tool in compare compare-nodes compare-rdma training_peers tables; do
    run python3 -B "$bench/$tool" --help
    expect 0 $tool --help
done
run python3 -B "$bench/compare" --out results --variants nobody
expect 2 a peer that is not known
run python3 -B "$bench/compare" --out results --variants none
expect 2 nobody to compare with
mkdir -p copy/bin && cp "$BUILD/bin/halay-bench" copy/bin/
run python3 -B "$bench/compare" --build "$BUILD" --out results --peers peers --variants none --old copy
expect 1 an old build that loads the library of another one
says err "copy/bin/halay-bench loads $(readlink -f "$BUILD")/lib/"
run python3 -B "$bench/compare" --build "$BUILD" --out results --peers peers --variants none --old nowhere
expect 1 an old build that is not there
[ -z "$SANITIZE" ] || { echo "skipped: what is linked with MPI has no sanitizer"; exit 77; }
command -v mpicc mpirun >/dev/null || { echo "skipped: there is no Open MPI to compare with (libopenmpi-dev, openmpi-bin)"; exit 77; }
[ "$(nproc)" -ge 2 ] || { echo "skipped: one processor: the limits of the memory take two"; exit 77; }

export OMPI_MCA_mpi_yield_when_idle=1 # or it takes minutes on a machine that has other things to do
compare() {
    run python3 -B "$bench/compare" --build "$BUILD" --out results --peers peers --variants "openmpi4 ucx" --ranks 2 --rounds 1 \
        --tries 1 --collectives allreduce,reduce_scatter,barrier --min 8 --max 8 --seconds 0.00001 --no-plot "$@"
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
[ "$(grep -c ",one-node,allreduce,2,8,halay,0," results/measured.csv)" = 2 ] || fail "not both: $(cat results/measured.csv)"

# Beside the same build as an older one, and beside a neighbour.
old="--variants none --old $BUILD --collectives allreduce --neighbours 1"
neighbours() {
    for process in $(pgrep -fx "sh -c while :; do :; done"); do
        tr '\0' '\n' <"/proc/$process/environ" 2>/dev/null | grep -qx "TMPDIR=$TMPDIR" && echo "$process"
    done
    return 0
}
trap 'neighbours | xargs -r kill -KILL; rm -rf "$here"' EXIT
busy() { [ -n "$(neighbours)" ]; }
quiet() { ! busy; }
ended() { ! pgrep -f "halay-bench .*$here/killed" && quiet; }
# shellcheck disable=SC2086 # words
compare --out old $old
for said in "^### allreduce, old and new, 2 ranks" "^- all 1 cells: geometric mean " "^### allreduce, worst job / median job" \
    "^Neighbours: 1, nice 10[.] Worst of all sizes: halay 1[.]00" "ours at most 5: met"; do
    says old/table.md "$said"
done
says old/measured.csv ",one-node-neighbours-1,allreduce,2,8,halay-old,0,"
quiet || fail "a neighbour is left"
# shellcheck disable=SC2086
python3 -B "$bench/compare" --build "$BUILD" --out killed --peers peers --min 8 --max 8 --seconds 0.3 $old >out 2>err &
for _ in $(seq 1500); do
    seen=$(neighbours)
    [ -z "$seen" ] || break
    sleep 0.02
done
kill -KILL $!
[ -n "$seen" ] || fail "there was no neighbour"
until_true ended

run python3 -B "$bench/tables" results/measured.csv old/measured.csv --out tables --all
expect 0 tables
says tables/one-node.md "^| everything | | all | 3 |"
says tables/one-node-neighbours-1.md "^old / new below 0[.]85: "
run python3 -B "$bench/tables" results/measured.csv --out tables --noise -1
expect 1 no quiet round
