#!/usr/bin/env bash
# Test the GPU code paths on a machine without a GPU: trainings, evaluations and compiled kernels with
# the CUDA build of PyTorch on a stub driver, which reports a GPU and does not run kernels.
#
#   bash scripts/gpu_rehearsal.sh [pytest options]
#
# The environment (7 GB) is created on the first run in
# ${SUDOCOT_CACHE_DIR:-~/.cache/sudocot}/gpu-rehearsal; $SUDOCOT_STUB_SM is the compute capability
# for which kernels are compiled (default 90). Requires gcc. docs/gpu.md lists the checks.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${SUDOCOT_CACHE_DIR:-$HOME/.cache/sudocot}/gpu-rehearsal
torch=$(sed -n 's/^torch==//p' scripts/constraints.txt)

# `===` compares versions as text, so that pip does not choose a local build such as +cpu.
if ! "$venv/bin/python" -c 'import torch; exit(torch.version.cuda is None)' 2>/dev/null; then
    echo "installing the CUDA build of torch $torch into $venv (a few minutes the first time)"
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "torch===$torch"
fi
bash scripts/venv.sh "$venv" dev

include=$("$venv/bin/python" -c 'import triton; print(triton.__path__[0])')/backends/nvidia/include
mkdir -p "$venv/stub"
gcc -shared -fPIC -O1 -w -I"$include" -Wl,-soname,libcuda.so.1 \
    -o "$venv/stub/libcuda.so.1" tests/rehearsal/stub_driver.c

export SUDOCOT_STUB_SM="${SUDOCOT_STUB_SM:-90}" TRITON_LIBCUDA_PATH=$venv/stub
export TRITON_CACHE_DIR=$venv/cache/triton TORCHINDUCTOR_CACHE_DIR=$venv/cache/inductor
# The stub returns zeroed memory, so a result of a kernel reads as 0 and not as a stop request.
export PYTORCH_NO_CUDA_MEMORY_CACHING=1
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" HF_HUB_OFFLINE=1
export LD_LIBRARY_PATH=$venv/stub${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec env LD_PRELOAD="$venv/stub/libcuda.so.1" \
    "$venv/bin/python" -m pytest -p no:cacheprovider tests/rehearsal "$@"
