#!/usr/bin/env bash
# The long tests, which scripts/test.sh leaves out: many random machines, compiled training, the
# first cosines of many processes. Takes two minutes.
#
#   bash scripts/soak.sh [pytest options]
#
# Needs the environment that scripts/test.sh makes, or the one that $SUDOCOT_VENV names.
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" HF_HUB_OFFLINE=1
exec "${SUDOCOT_VENV:-$PWD/.venv}/bin/python" -m pytest -m slow "$@"
