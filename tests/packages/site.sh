#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The documentation site builds without a warning, all links lead somewhere, a damaged page is found, and
# the commands of the pages exist.
#   tests/packages/site.sh [--browser]      --browser: the search is tried in a Chromium. PACKAGES_LONG=1: if there is one
set -euo pipefail
cd "$(dirname "$0")/../.."

wrong() { echo "site.sh: $1" && exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=$PWD/build-site/venv/bin/python
export PYTHONDONTWRITEBYTECODE=1

scripts/site "$work/site"

# What Sphinx cannot see check.py has to: an anchor, a file, a page without a way to it, a script from elsewhere.
damaged() { # WHAT: the site in damaged/ is not taken
    ! "$python" docs/site/check.py "$work/damaged" >"$work/out" || wrong "check.py does not see $1"
    cp -rT "$work/site" "$work/damaged"
    rm -f "$work/damaged/lost.html"
}
cp -r "$work/site" "$work/damaged"
sed -i 's/id="it-hangs"/id="else"/' "$work/damaged/docs/troubleshooting.html"
damaged "that an anchor is gone"
rm "$work/damaged/docs/adasum.html"
damaged "that a page is gone"
cp "$work/site/docs/adasum.html" "$work/damaged/docs/lost.html"
damaged "that no page leads to one"
rm "$work/damaged/docs/lost.html"
sed -i 's|<head>|<head><script src="https://example.org/x.js"></script>|' "$work/damaged/index.html"
damaged "a script of another machine"

for page in docs/troubleshooting docs/hang docs/man/halay_allreduce.3 reference/c/halay reference/python/halay.torch; do
    [ -s "$work/site/$page.html" ] || wrong "there is no $page.html"
done
grep -q 'id="c.halay_iallreduce"' "$work/site/reference/c/request.html" || wrong "halay_iallreduce is not in the C reference"
grep -q 'id="halay.torch.DistributedOptimizer"' "$work/site/reference/python/halay.torch.html" ||
    wrong "DistributedOptimizer is not in the Python reference"

# first QUERY PAGE: the page comes first in the browser's search. A file, and no network: so is it read from a clone.
first() {
    timeout -k 5 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/browser" --virtual-time-budget=20000 \
        --dump-dom "file://$work/site/search.html?q=$1" >"$work/out" 2>"$work/err" || wrong "the browser has failed"
    local got
    got=$(grep -o '<li class="kind[^>]*><a href="[^"]*"' "$work/out" | sed -n '1s/.*href="\(.*\)"/\1/p')
    [ "${got%%\?*}" = "$2" ] || wrong "the search for $1 finds first: $got"
}
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ "${1:-}" = --browser ] && [ -z "$browser" ]; then
    wrong "there is no Chromium (Debian: chromium)"
elif [ "${1:-}${PACKAGES_LONG:-}" ] && [ "$browser" ]; then
    first hang docs/hang.html
    first fusion docs/tensor-fusion.html
    first docker docs/containers.html
    first infiniband docs/rdma-setup.html
    first halay_comm_shrink docs/man/halay_comm_shrink.3.html
    first HALAY_DEADLINE docs/man/halay.7.html#envvar-HALAY_DEADLINE
    first halay_iallreduce reference/c/request.html#c.halay_iallreduce
fi

"$python" tests/packages/commands.py --selftest
"$python" tests/packages/commands.py
echo "site.sh: the site is built, and its commands exist, after $SECONDS s"
