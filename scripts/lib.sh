# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What quickstart and test share: messages, Debian's packages, the virtual environment.
# It changes to the root of the source tree.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
venv=$root/.venv
python=$venv/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

version_of() { sed -n 's/^__version__ = "\(.*\)"/\1/p' "$1/python/halay/_version.py"; }
say() { printf '%s: %s\n' "${0##*/}" "$*"; }
die() {
    printf '%s: %s\n' "${0##*/}" "$1" >&2
    shift
    [ $# = 0 ] || printf '  %s\n' "$@" >&2
    exit 1
}

# What asks git asks it of this tree: not of a repository that an unpacked tarball lies in.
need_clone() {
    [ "$(git rev-parse --show-toplevel 2>/dev/null)" -ef "$root" ] || die "$root is no clone of Halay's repository, or git says that it is not yours:" \
        "$(git rev-parse --show-toplevel 2>&1)"
}

need_debian() {
    local id like
    id=$(. /etc/os-release 2>/dev/null && echo "${ID:-}")
    like=$(. /etc/os-release 2>/dev/null && echo "${ID_LIKE:-}")
    case " $id $like " in *" debian "*) return ;; esac
    die "this is not Debian (/etc/os-release: ID=${id:-unknown})." \
        "CONTRIBUTING.md lists what is needed, to install it by hand."
}

# Installs those of the named Debian packages that are missing.
need_packages() {
    local missing=() as_root=()
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            missing+=("$package")
    done
    [ ${#missing[@]} != 0 ] || return 0
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || die "these Debian packages are missing: ${missing[*]}" \
            "You are not root and there is no sudo: ask root for: apt-get install ${missing[*]}"
        as_root=(sudo)
    fi
    say "installing Debian packages: ${missing[*]}"
    as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120)
    { "${as_root[@]}" update && "${as_root[@]}" install -y --no-install-recommends "${missing[@]}"; } \
        </dev/null >/dev/null || die "apt-get could not install them (its message stands above)." \
        "Is the network reachable? Needed: ${missing[*]}"
}

# The first python3 on PATH that is new enough, and can make virtual environments.
find_python() {
    local candidate
    for candidate in $(type -ap python3); do
        "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' \
            2>/dev/null && echo "$candidate" && return
    done
    return 1
}

need_venv() {
    local base flags=()
    "$python" -m pip --version >/dev/null 2>&1 && return
    find_python >/dev/null || need_packages python3 python3-venv
    base=$(find_python) || die "no python3 of version 3.9 or newer that can make a virtual environment." \
        "Looked at: $(type -ap python3 | tr '\n' ' ')"
    has_module "$base" torch && flags=(--system-site-packages)
    say "making ${venv#"$root"/}/ with $base ($("$base" -V))${flags:+, which has PyTorch}"
    "$base" -m venv --clear "${flags[@]}" "$venv" || die "cannot make a virtual environment in $venv"
    pip_install --upgrade pip 2>/dev/null || say "pip stays at $("$python" -m pip --version | cut -d' ' -f2)"
}

has_module() { (cd / && "$1" -c "import sys, importlib.util as u; sys.exit(u.find_spec('$2') is None)") 2>/dev/null; }
pip_install() { "$python" -m pip install -qq "$@" </dev/null; }

need_python() {
    need_venv
    has_module "$python" torch || "$root/scripts/install-torch" "$python" || exit 1
    has_module "$python" sklearn || pip_install scikit-learn ||
        die "pip could not install scikit-learn (its message stands above): is the network reachable?"
    [ "$(cd / && "$python" -c 'import cffi, importlib.util as u; print(u.find_spec("halay").origin)' \
        2>/dev/null)" = "$root/python/halay/__init__.py" ] || pip_install -e . ||
        die "pip could not install the Python package (its message stands above): is the network reachable?"
}
