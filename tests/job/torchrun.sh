#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The digits example under torchrun, unmodified: it learns, the ranks end with the same bits, and these
# are the bits of the same job under halayrun.
# shellcheck source-path=SCRIPTDIR source=tcp_lib.sh
source_folder=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
. "$(dirname "$0")/tcp_lib.sh"
unset HALAY_DEADLINE
python=$source_folder/.venv/bin/python
"$python" -c "import torch, sklearn, cffi" 2>why || {
    echo "skipped: .venv cannot import what the example needs: $(tail -1 why 2>/dev/null)"
    exit 77
}
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$source_folder/python
HALAY_LIBRARY=$(cd "$(dirname "$JOB_RANK")/../lib" && pwd)/libhalay.so.0
export HALAY_LIBRARY
example=("$source_folder/examples/torch_digits.py" --epochs 4 --checkpoint "$here/digits.pt")

run "$python" -m torch.distributed.run --standalone --nproc-per-node 2 "${example[@]}"
expect 0 "torchrun on 2 ranks"
says out "^ranks: *2$"
says out "^parameters: *bit-identical on all ranks"
grep "^parameters:" out >bits
run "$HALAYRUN" -np 2 "$python" "${example[@]}"
expect 0 "halayrun on 2 ranks"
[ "$(grep "^parameters:" out)" = "$(cat bits)" ] || fail "other bits than under torchrun: $(cat bits)"
