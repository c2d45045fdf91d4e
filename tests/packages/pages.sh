#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The commands of the pages that say so are run, with BUILD (build/) and PYTHON (.venv/bin/python).
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1
# A page measures and keeps: not in a home.
HALAY_CALIBRATION=$work/kept "${PYTHON:-.venv/bin/python}" tests/packages/commands.py --run "${BUILD:-build}" "${PYTHON:-.venv/bin/python}"
echo "pages.sh: the pages' commands are run, after $SECONDS s"
