#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The wheel in root file systems that have Python and nothing else of what Halay could use: Debian 11, 12 and 13. Minutes
# and a gigabyte: PACKAGES_LONG=1, root, debootstrap and a network. ROOTS=DIR keeps the root file systems for the next time.
# shellcheck source-path=SCRIPTDIR source=../job/lib.sh disable=SC2016
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/job/lib.sh"
[ "${PACKAGES_LONG:-}" ] || { echo "skipped: it takes minutes (PACKAGES_LONG=1)" && exit 77; }
[ "$(id -u)" = 0 ] || { echo "skipped: only root can use a root file system" && exit 77; }
command -v debootstrap >/dev/null || { echo "skipped: there is no debootstrap (Debian: debootstrap)" && exit 77; }
roots=${ROOTS:-$here/roots}
mkdir -p "$roots" "$here/wheel"

run "$root/scripts/wheel" "$here/wheel"
expect 0 scripts/wheel
python3 -m zipfile -e "$here"/wheel/*.whl open
"$root/build-wheel/cc" "$root/examples/allreduce.c" -I open/halay/include -L open/halay/lib -lhalay -o "$here/wheel/sum" || fail "a program in C"
cp "$root/tests/packages/arrays.py" "$here/wheel"

# In a root file system, as user 1000: $1 is Debian's name.
cat >"$here/wheel/try" <<'END'
set -e
cd ~
fail() { echo "FAILED: $*"; exit 1; }
! command -v cc gcc mpirun || fail "this root has more than Python"
python3 -m venv --system-site-packages venv
venv/bin/pip install -qq --disable-pip-version-check --find-links /wheel halay numpy
. venv/bin/activate
lib=$(python -c 'import halay, os; print(os.path.dirname(halay.__file__))')/lib
[ "$(halayrun -np 4 python /wheel/arrays.py | grep -o "rank [0-9] of 4: $lib" | sort -u | wc -l)" = 4 ] || fail arrays
halayrun -np 2 python -c 'import numpy as np, halay.arrays as ha
ha.init()
x = np.arange(6, dtype=np.float32)
ha.allreduce(x)
assert x.tolist() == [0, 2, 4, 6, 8, 10], x'
[ "$(LD_LIBRARY_PATH=$lib halayrun -np 3 /wheel/sum | grep -o 'rank . of 3 on [^:]*: 3 30 300 3' | sort -u | wc -l)" = 3 ] || fail C
halay-info >info
for line in 'transport verbs .*missing: libibverbs.so.1 is not found; install libibverbs1 ' \
    'transport ucx .*missing: libuc[ps].so.0 is not found; install libucx0 ' 'boot *pmix .*missing: libpmix.so.2 is not found; install libpmix2 '; do
    grep -q "$line" info || fail "halay-info does not say: $line"
done
echo "$1: $(python -V), $(ldd --version | head -1 | grep -o '[0-9.]*$')"
END

for name in bullseye bookworm trixie; do
    tree=$roots/$name
    [ -e "$tree/usr/bin/python3" ] || debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$name" "$tree" >log 2>&1 ||
        fail "debootstrap $name: $(tail -3 log)"
    # Its own /proc, /sys, /tmp and /dev/shm; they end with it.
    run unshare -mpf bash -ec 'cd "$1" && mkdir -p wheel home/user && chown 1000 home/user
        mount -t proc proc proc; mount -t sysfs sysfs sys; mount -t tmpfs tmpfs tmp; mount --rbind /dev dev; mount -t tmpfs tmpfs dev/shm
        mount --bind "$2" wheel; touch etc/resolv.conf; mount --bind /etc/resolv.conf etc/resolv.conf
        [ ! -e /etc/ssl/certs/ca-certificates.crt ] || mount --bind /etc/ssl/certs/ca-certificates.crt etc/ssl/certs/ca-certificates.crt
        rm -rf home/user/*
        exec chroot . setpriv --reuid 1000 --regid 1000 --clear-groups env -i HOME=/home/user PATH=/usr/bin:/bin bash /wheel/try "$3"' sh "$tree" "$here/wheel" "$name"
    expect 0 "$name"
    says out "^$name: Python 3"
    cat out
done
nothing_left
