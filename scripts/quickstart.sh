#!/usr/bin/env bash
# From nothing to data: an environment, puzzles made here, a CoT and an SCoT data set of them, and
# what is in those. Nothing is downloaded but the packages.
#
#   bash scripts/quickstart.sh [--board 4x4|6x6|9x9] [--out FOLDER]
#
# Stages that are finished are skipped; interrupt it at will and run it again. The environment is
# .venv, or the one that $SUDOCOT_VENV names.
set -euo pipefail

usage() {
    echo "usage: bash scripts/quickstart.sh [--board 4x4|6x6|9x9] [--out FOLDER]" >&2
    exit 2
}

board=4x4
out=
while (($#)); do
    (($# >= 2)) || usage
    case $1 in
        --board) board=$2 ;;
        --out) out=$2 ;;
        *) usage ;;
    esac
    shift 2
done
# Puzzles to make; trace tokens of a segment, so that a usual trace has a few; a puzzle to show.
case $board in
    4x4) num_puzzles=2000 segment_tokens=16 example='..1.|4...|...2|.3..' ;;
    6x6) num_puzzles=5000 segment_tokens=32 example='.51.........6...4.....5....23...6...' ;;
    9x9)
        num_puzzles=5000 segment_tokens=512
        example='4.....8.5.3..........7......2.....6.....8.4......1.......6.3.7.5..2.....1.4......'
        ;;
    *) usage ;;
esac
[[ -z $out || $out == /* ]] || out=$PWD/$out

cd "$(dirname "$0")/.."
out=${out:-$PWD/runs/quickstart-$board}
venv=${SUDOCOT_VENV:-$PWD/.venv}
[[ -n ${SUDOCOT_VENV:-} ]] || bash scripts/venv.sh "$venv"
export PATH="$venv/bin:$PATH"

step() { printf '\n== %s\n' "$*"; }

for mode in cot scot; do
    step "$mode data set of $num_puzzles $board puzzles in $out/$mode"
    # --resume goes on with an interrupted build and leaves a finished one alone.
    sudocot data build --generate "$num_puzzles" --board "$board" --mode "$mode" \
        --segment-tokens "$segment_tokens" --resume --out "$out/$mode"
done

for mode in cot scot; do
    step "statistics of $out/$mode"
    sudocot data stats "$out/$mode"
done

step "one puzzle, and the trace that a model is to write"
sudocot solve "$example" --trace
