#!/usr/bin/env bash
# From nothing to a leaderboard: an environment, puzzles, a CoT and an SCoT data set of them, what is
# in those, a model trained on each, evaluated on other puzzles, and shown on two pages.
#
#   bash scripts/quickstart.sh [--board 4x4|6x6|9x9] [--out FOLDER]
#
# 4x4 takes two CPU cores about ten minutes, 6x6 two hours. A 9x9 model needs a GPU: with one, it
# learns the sudoku-extreme data set, or, where the hub cannot be reached, puzzles made here; without
# one, 9x9 ends after the data. On small boards nothing is downloaded but the packages.
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
# Puzzles to make; trace tokens of a segment, so that a usual trace has a few; the recipe of each
# model and its tokens; a puzzle to show.
recipe=(--preset small --model "small-$board")
case $board in
    4x4)
        num_puzzles=50000 segment_tokens=16 train_tokens=3000000
        example='..1.|4...|...2|.3..'
        ;;
    6x6)
        num_puzzles=100000 segment_tokens=32 train_tokens=20000000
        example='.51.........6...4.....5....23...6...'
        ;;
    9x9)
        num_puzzles=5000 segment_tokens=512 train_tokens=0
        recipe=(--preset muon --max-cot-length 16384)
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
# Huge pages for malloc, and freed memory kept for the next pass: on a CPU, a training makes up to
# twice as many tokens a second with them.
malloc=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824
export GLIBC_TUNABLES="${GLIBC_TUNABLES:-$malloc:glibc.malloc.trim_threshold=17179869184}"

step() { printf '\n== %s\n' "$*"; }

train_source=(--generate "$num_puzzles")
test_source=(--generate $((num_puzzles / 20)) --seed 1)
if [[ $board == 9x9 ]] && python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    train_tokens=1000000000
    hub=sapientinc/sudoku-extreme
    if python - $hub <<<'import sys, huggingface_hub as h; h.dataset_info(sys.argv[1], timeout=10)' \
        2>/dev/null; then
        train_source=("$hub" --split train) test_source=("$hub" --split test --sample 2000)
    else
        train_source=(--generate 20000 --mine 1000 16384)
        test_source=(--generate 500 --mine 1000 16384 --seed 1)
    fi
fi

# --resume goes on with an interrupted build and leaves a finished one alone.
build() { # MODE FOLDER OPTIONS...
    sudocot data build --board "$board" --mode "$1" --segment-tokens "$segment_tokens" --resume \
        --out "$2" "${@:3}"
}

for mode in cot scot; do
    step "$mode data set of $board puzzles in $out/$mode"
    build "$mode" "$out/$mode" "${train_source[@]}"
    step "other puzzles to test on, in $out/$mode-test"
    build "$mode" "$out/$mode-test" "${test_source[@]}" --exclude "$out/$mode"
done

for mode in cot scot; do
    step "statistics of $out/$mode"
    sudocot data stats "$out/$mode"
done

step "one puzzle, and the trace that a model is to write"
sudocot solve "$example" --trace

((train_tokens)) || exit 0

# Both models at once, each on its share of the CPUs. Run again after a stop, this goes on; a
# finished run is left alone. The trainings save when interrupted, so wait for them then too, and
# for the other one when one fails.
step "a $board model of each kind, in $out/cot-run and $out/scot-run"
OMP_NUM_THREADS=$(python -c 'from data.runtime.cpus import available_cpus as a; print(max(1, a()[0] // 2))')
export OMP_NUM_THREADS
trap 'wait; exit 130' INT
trainings=()
for mode in cot scot; do
    sudocot train run "${recipe[@]}" --data "$out/$mode" --held-out "$out/$mode-test" \
        --out "$out/$mode-run" --budget "$train_tokens" > >(sed -u "s/^/$mode /") 2>&1 &
    trainings+=($!)
done
code=0
for training in "${trainings[@]}"; do wait "$training" || code=$?; done
trap - INT
((code == 0)) || exit "$code"
unset OMP_NUM_THREADS

step "curves of both runs, in $out/curves.png"
sudocot train plot "$out/cot-run" "$out/scot-run" --out "$out/curves.png" --title "$board"

# An evaluation that was interrupted goes on; a finished one only shows its summary.
for mode in cot scot; do
    for engine in segment verify; do
        step "$mode model on the test puzzles, engine $engine, in $out/evaluations/$mode-$engine"
        sudocot eval run --model "$out/$mode-run/final" --data "$out/$mode-test" --sample all \
            --engine "$engine" --keep-tokens --name "$board $mode" \
            --out "$out/evaluations/$mode-$engine"
    done
done

step "leaderboard, in $out/report/report.html"
sudocot report "$out"/evaluations/* --out "$out/report"

step "a puzzle as the SCoT model solves it, in $out/trace.html"
sudocot trace --evaluation "$out/evaluations/scot-segment" --out "$out/trace.html"
