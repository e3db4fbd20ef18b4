#!/usr/bin/env bash
# Mutation testing of the solver, segments, sampler, puzzle runs and the compiler's programs: run
# the tests of each module on a random sample of its mutants, and print those that survive.
# docs/mutation.md has the results. Takes about half an hour on one core.
#
#   bash scripts/mutation.sh [--count N] [--seed N] [module ...]
#
# Uses the environment of scripts/test.sh, or $SUDOCOT_VENV.
set -euo pipefail
cd "$(dirname "$0")/.."
exec nice -n 15 "${SUDOCOT_VENV:-$PWD/.venv}/bin/python" -m scripts.bench.mutation "$@"
