#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The deb is installed and removed, in a root file system of which nothing stays; the rpm is looked at.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
generators=DEB
command -v rpmbuild >/dev/null && generators="DEB;RPM"
# cpack makes the project anew where it was made, and is content if nothing is new.
(cd "$BUILD" && cpack -G "$generators" -B "$here/made") >log 2>&1 || fail "cpack: $(tail -20 log)"
deb=$here/made/halay_${version}_$(dpkg --print-architecture).deb rpm=$(echo made/halay-"$version"-1.*.rpm)
[ "$(stat -c %s "$deb")" -le 10000000 ] || fail "$deb has over 10 MB"
depends=$(dpkg-deb -f "$deb" Depends)
case $depends in "libc6 (>= 2."*) ;; *) fail "the deb needs $depends" ;; esac
if [ -e "$rpm" ]; then
    mkdir by-rpm
    (cd by-rpm && rpm2cpio "../$rpm" | cpio -id --quiet) || fail "$rpm cannot be unpacked"
    dpkg-deb -x "$deb" by-deb
    diff <(cd by-deb && find . | sort) <(cd by-rpm && find . | sort) || fail "the rpm has other files than the deb"
    rpm -qRp "$rpm" | grep -v '^rpmlib\|^glibc >= ' && fail "the rpm needs something else"
fi

[ "$(id -u)" = 0 ] || { echo "skipped: only root installs a deb" && exit 77; }
cat >inside <<END
set -e
mount -t tmpfs tmpfs "$here/over"
mkdir "$here/over/"{up,work,root}
mount -t overlay overlay -o lowerdir=/,upperdir="$here/over/up",workdir="$here/over/work" "$here/over/root"
for one in dev proc sys tmp; do mount --rbind /\$one "$here/over/root/\$one"; done
for one in "$source" "$(cd "$(dirname "$PYTHON")/.." && pwd)" "$("$PYTHON" -c 'import sys; print(sys.base_prefix)')"; do # may be other file systems
    mkdir -p "$here/over/root\$one"
    mount --rbind "\$one" "$here/over/root\$one"
done
exec chroot "$here/over/root" bash -e -c '
    dpkg -i "$deb" >/dev/null
    . "$source/tests/packages/lib.sh"
    PYTHONPATH=/opt/halay/lib/halay/python sums /opt/halay/bin/halayrun /opt/halay
    /opt/halay/bin/halay-info >/dev/null
    dpkg -r halay >/dev/null
    [ ! -e /opt/halay ] || fail "removed, and there is still: \$(find /opt/halay | head)"'
END
mkdir over
said=$(unshare -m bash inside 2>&1) || fail "the deb: $said"
echo "$(stat -c %s "$deb") bytes; needs $depends"
