#!/usr/bin/env bash
# Make a virtual environment with this project installed in it (editable, at the tested versions),
# or bring one up to date; does nothing when neither pyproject.toml nor the versions changed.
#
#   bash scripts/venv.sh FOLDER [EXTRAS]      for example: bash scripts/venv.sh .venv dev
#
# $PYTHON chooses the interpreter (default python3).
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:?usage: bash scripts/venv.sh FOLDER [EXTRAS]}
extras=${2:-}
stamp="$folder/sudocot-installed"
versions=$(cat pyproject.toml scripts/constraints.txt | sha256sum)

# An environment with more extras than asked for will do.
if [[ -f $stamp && $(<"$stamp") == "$versions"*"$extras"* ]]; then
    exit 0
fi
echo "installing into $folder (a few minutes the first time)"
[[ -x $folder/bin/python ]] || "${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
    --constraint scripts/constraints.txt --editable ".${extras:+[$extras]}"
# Written last: an interrupted install is done again.
echo "$versions $extras" >"$stamp"
