#!/usr/bin/env bash
# Run the tests marked `slow`, which scripts/test.sh omits: many random machines, compiled training,
# and numerics of process startup. Takes two minutes.
#
#   bash scripts/soak.sh [pytest options]
#
# Uses the environment of scripts/test.sh, or $SUDOCOT_VENV.
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" HF_HUB_OFFLINE=1
exec "${SUDOCOT_VENV:-$PWD/.venv}/bin/python" -m pytest -m slow "$@"
