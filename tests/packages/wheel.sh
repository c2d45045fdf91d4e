#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The wheel of a release, in an empty environment: any user's, with no compiler, and without what is the node's (PMIx,
# UCX, verbs). An allreduce is less than 60 s away. Needs $BUILD, and $PYTHON, which has torch
# (.venv's).
# shellcheck source-path=SCRIPTDIR source=../job/lib.sh
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/job/lib.sh"
PYTHON=${PYTHON:-$root/.venv/bin/python}
[ -z "${SANITIZE:-}" ] || { echo "skipped: a wheel is not built with sanitizers" && exit 77; }
unset "${!HALAY_@}" "${!PMIX_@}" LD_LIBRARY_PATH PYTHONPATH PIP_REQUIRE_VIRTUALENV
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1 TORCH_DEVICE_BACKEND_AUTOLOAD=0
chmod 755 "$here"
cp "$root/tests/packages/arrays.py" .
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$root/python/halay/_version.py")

# Another user, if this one may become that; with no folder on PATH but the environment's.
alone=(env -i "HOME=$here/home" "TMPDIR=$here/home" "PATH=$here/venv/bin")
mkdir -m 777 home
[ "$(id -u)" != 0 ] || alone=(setpriv --reuid 65534 --regid 65534 --clear-groups "${alone[@]}")

# The first Python that this user may run, too.
base_python() {
    local candidate
    for candidate in $(type -ap python3); do
        "${alone[@]}" "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2>/dev/null &&
            echo "$candidate" && return
    done
    return 1
}

# adds_up NRANKS LIBRARY COMMAND...: ranks under this launcher add up, by the library in this place.
adds_up() {
    run "${@:3}"
    expect 0 "${*:3}"
    [ "$(grep -o "rank [0-9] of $1: $2" out | sort -u | wc -l)" = "$1" ] || # the ranks' lines may run into one another
        fail "$(cat out): not $1 ranks with $2"
}

# ------------------------------------------------------------------ the file
run "$root/scripts/wheel" "$here/dist"
expect 0 scripts/wheel
wheel=$here/dist/halay-$version-py3-none-manylinux_2_28_$(uname -m).whl
[ "$(ls dist)" = "${wheel##*/}" ] || fail "scripts/wheel made $(ls dist)"
[ "$(stat -c %s "$wheel")" -le 10000000 ] || fail "larger than 10 MB"
python3 -m zipfile -e "$wheel" open
(cd "$root/python" && git -c safe.directory='*' ls-files halay halay-horovod.pth) |
    while read -r file; do [ -e "open/$file" ] || echo "$file"; done >lacking
[ ! -s lacking ] || fail "the wheel lacks $(cat lacking)"
own='libhalay\.so\.0|lib(c|m|dl|rt|pthread)\.so\.[0-9]|ld-linux-.*'
find open -type f | while read -r file; do
    readelf -d "$file" >elf 2>/dev/null || continue # no program, no library
    case $file in
    *-pmix.so) needs="$own|libpmix\.so\.2" ;;
    *-ucx.so) needs="$own|libuc[ps]\.so\.0" ;;
    *-verbs.so) needs="$own|libibverbs\.so\.1" ;;
    *) needs=$own ;;
    esac
    sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' elf | grep -vxE "$needs" | sed "s|^|$file needs |"
    readelf -W --version-info "$file" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//'
done | sort -uV >needed
! grep needs needed || fail "it needs other libraries"
highest=$(tail -1 needed)
[ "$(printf '%s\n' "$highest" 2.28 | sort -V | tail -1)" = 2.28 ] || fail "it needs glibc $highest"
[ "$(wc -l <needed)" -ge 5 ] || fail "no symbol of glibc was found"

# ------------------------------------------------------------------ an empty environment
base=$(base_python) || fail "no python3 that user 65534 may run: $(type -ap python3)"
start=$(date +%s)
"$base" -m venv venv || fail venv
venv/bin/pip install -qq cffi || fail "pip cannot install cffi"
venv/bin/pip install -qq --no-index --find-links dist halay || fail "pip cannot install it"
package=$(echo "$here"/venv/lib/python3*/site-packages/halay)
adds_up 4 "$package/lib/libhalay" "${alone[@]}" halayrun -np 4 python arrays.py
echo "$(($(date +%s) - start)) s to the first allreduce" # 60 are asked for
[ "$("${alone[@]}" halay-info --version)" = "Halay $version" ] || fail halay-info
for command in halay-bench halay-doctor halay-prove halay-replay horovodrun; do
    run "${alone[@]}" $command --help
    expect 0 "$command --help"
done
run "${alone[@]}" halayrun --horovod -np 2 python -c "import horovod; print('in', horovod.__path__[0])"
expect 0 "import horovod"
[ "$(grep -o "in $package/horovod/shim/horovod" out | wc -l)" = 2 ] || fail "another horovod: $(cat out)"
cat >isa.py <<'CODE'
import sys
from halay._core import ffi, lib
isa, config = ffi.new("char[]", sys.argv[1].encode()), ffi.new("halay_config_t *")
config.size, config.isa = ffi.sizeof("halay_config_t"), isa
in_place = ffi.cast("void *", -1)
context, world, sums = ffi.new("halay_context_t **"), ffi.new("halay_comm_t **"), ffi.new("float[]", [1.0] * 99)
assert not lib.halay_init(config, context) and not lib.halay_comm_world(context[0], world)
assert not lib.halay_allreduce(in_place, sums, 99, lib.HALAY_FLOAT32, lib.HALAY_SUM, world[0]), "allreduce"
assert list(sums) == [2.0] * 99 and not lib.halay_finalize(context[0])
CODE
for isa in avx2 avx512; do # as quick as by another compiler
    grep -qw "${isa/512/512vl}" /proc/cpuinfo || continue
    run "${alone[@]}" halayrun -np 2 python isa.py $isa
    expect 0 "$isa on a processor that has it"
    run "${alone[@]}" halay-info
    says out "^instruction sets: .*$isa yes,"
done
run "${alone[@]}" halayrun -np 2 python -c 'import sys; sys.exit(3)'
expect 3 "the status of a rank"

# A program in C against it, and torch's tensors.
export PKG_CONFIG_PATH=$package/lib/pkgconfig
# shellcheck disable=SC2046
gcc "$root/examples/allreduce.c" -o sum $(pkg-config --cflags --libs halay) -Wl,-rpath,"$package/lib" || fail "a program in C"
run venv/bin/halayrun -np 3 ./sum
expect 0 "a program in C"
[ "$(grep -o 'rank . of 3 on [^:]*: 3 30 300 3' out | sort -u | wc -l)" = 3 ] || fail "a wrong sum"
if [ -x "$BUILD/bin/halaycc" ]; then # a program for MPI that was built elsewhere
    "$BUILD/bin/halaycc" "$root/tests/job/installed_mpi/ring.c" -o ring || fail "halaycc"
    run "${alone[@]}" halayrun --mpi -np 3 ./ring
    expect 0 "halayrun --mpi"
    says out "^ring of 3: 6$"
    run "${alone[@]}" halayrun --mpi -np 1 /usr/bin/ldd ./ring
    says out "libmpi_abi.so.1 => $package/lib/halay-mpi/"
fi
"$PYTHON" -m venv --without-pip torch
sites=("$(torch/bin/python -c 'import site; print(site.getsitepackages()[0])')"
    "$("$PYTHON" -c 'import torch, os; print(os.path.dirname(os.path.dirname(torch.__file__)))')")
"$PYTHON" -m pip --python torch/bin/python install -qq --no-deps "$wheel" || fail "pip cannot install it beside torch"
echo "${sites[1]}" >"${sites[0]}/torch.pth"
adds_up 2 "${sites[0]}/halay/lib/libhalay" torch/bin/halayrun -np 2 torch/bin/python -c 'import torch, halay._core, halay.torch as hvd
hvd.init()
assert hvd.allreduce(torch.ones(7), op=hvd.Sum).tolist() == [2.0] * 7
print(f"rank {hvd.rank()} of {hvd.size()}: {halay._core.library_path}")'

# ------------------------------------------------------------------ what the node lacks, and other builds
sed -i 's/lib\(pmix.so.\)2/lib\19/; s/lib\(uc[ps].so.\)0/lib\19/; s/lib\(ibverbs.so.\)1/lib\19/' "$package"/lib/halay/*.so
adds_up 3 "$package/lib/libhalay" "${alone[@]}" halayrun -np 3 python arrays.py
[ ! -s err ] || fail "what nobody needs is missed"
run "${alone[@]}" halay-info
expect 0 "halay-info without libraries"
says out "transport verbs .*missing: libibverbs.so.9 is not found; install libibverbs1 "
says out "transport ucx .*missing: libuc[ps].so.9 is not found; install libucx0 "
for kind in boot launch; do says out "$kind *pmix .*missing: libpmix.so.9 is not found; install libpmix2 "; done

# mixed LIBRARY: of three ranks, the last one has this library.
mixed() {
    run "${alone[@]}" LAST="$1" halayrun -np 3 python -c 'import os
if "slot=2;" in os.environ["HALAY_JOB"] + ";":
    os.environ["HALAY_LIBRARY"] = os.environ["LAST"]
exec(open("arrays.py").read())'
}
# Of the same sources, built elsewhere, it may take part; of others it is refused, in one line.
mkdir -p prefix/halay
cp "$BUILD"/lib/libhalay.so.0 prefix && cp "$BUILD"/lib/halay/*.so prefix/halay
mixed "$here/prefix/libhalay.so.0"
expect 0 "the wheel beside a prefix"
says out "rank . of 3: $here/prefix/libhalay.so.0"
other_build
mixed "$here/other/libhalay.so.0"
[ "$status" != 0 ] || fail "two builds are one job"
says err "rank [012] .* runs Halay .*, but rank [012] .* runs Halay .*: run the same version"
[ -z "$(ls -A home)" ] || fail "left by the ranks: $(ls -A home)"
! find /dev/shm -newer venv -user 65534 2>/dev/null | grep -i halay || fail "left in /dev/shm"
nothing_left

# ------------------------------------------------------------------ from the sources, by the compiler that is here
(cd "$root" && "$root/build-wheel/tools/bin/python" -c 'import sys, scikit_build_core.build as b; b.build_sdist(sys.argv[1])' "$here") >log ||
    fail "no sdist: $(cat log)"
tar -tzf halay-"$version".tar.gz | sed 's|^[^/]*/||' | sort >listed
{ echo PKG-INFO && git -c safe.directory='*' -C "$root" ls-files -co --exclude-standard; } | sort | diff listed - || fail "not what the repository has"
[ "${PACKAGES_LONG:-}" ] || exit 0
"$base" -m venv sources || fail venv
sources/bin/pip install -qq ./halay-"$version".tar.gz || fail "pip install of the sources"
adds_up 4 "$here/sources/lib/.*/halay/lib/libhalay" sources/bin/halayrun -np 4 sources/bin/python arrays.py
nothing_left
