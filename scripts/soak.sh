#!/usr/bin/env bash
# Run the tests marked `slow`, which scripts/test.sh omits: many random machines, compiled training,
# numerics of process startup, jobs that are stopped twice, replicas of vLLM, all stages of
# scripts/gpu_check.sh, and faults before every file-system event of the commands that write files
# (tests/scripts/test_command_faults.py). Takes half an hour on two cores without the fault tests, and
# about another hour with them (4,400 cases of 0.8 s, extrapolated from a part).
#
#   bash scripts/soak.sh [pytest options]
#
# Uses the environment of scripts/test.sh, or $SUDOCOT_VENV.
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" HF_HUB_OFFLINE=1
exec "${SUDOCOT_VENV:-$PWD/.venv}/bin/python" -m pytest -m slow "$@"
