# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# NCCL: one member, then two processes on one GPU, to NCCL each a host of its own.
# limit 60
member() { # RANK RANKS
    env NCCL_HOSTID="r$1" NCCL_SOCKET_IFNAME=lo "$BUILD/bin/gpu_nccl" "$OUT/dcomm.$2" "$1" "$2"
}
if [ -z "${HALAY_NCCL_LIBRARY:-}" ] && ! { ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | grep -q 'libnccl\.so\.2 '; then
    # torch's own, where that is
    HALAY_NCCL_LIBRARY=$(timeout 30 python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])' 2>/dev/null)/lib/libnccl.so.2
    [ -e "$HALAY_NCCL_LIBRARY" ] || { echo "there is no libnccl.so.2"; exit 77; }
    export HALAY_NCCL_LIBRARY
fi
rm -f "$OUT"/dcomm.*
member 0 1 || exit
[ -z "${NCCL_DOUBLE_ONE:-}" ] || { echo "nccl: one member is right; the double is in one process"; exit 0; }
member 1 2 &
other=$!
member 0 2 || exit
wait $other || exit
echo "nccl: one member, and two processes on one GPU, are right"
