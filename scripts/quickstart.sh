#!/usr/bin/env bash
# Run the whole pipeline: create an environment, puzzles, and a CoT and an SCoT data set; train a model
# on each; evaluate them and the compiled solver on held-out puzzles, and the trained models of the
# repository for other boards on generated puzzles, a few of which may be in their training data;
# and write a leaderboard page and a page that shows one search.
#
#   bash scripts/quickstart.sh [--board 4x4|6x6|9x9] [--out FOLDER]
#
# 4x4 takes about 15 minutes on two CPU cores, 6x6 takes hours. 9x9 requires a GPU: the model is
# trained on the sudoku-extreme data set, or on generated puzzles if the hub cannot be reached. Without
# a GPU, 9x9 ends after the data sets. On small boards, only packages are downloaded.
#
# The trace of a 4x4 puzzle with a unique solution never branches. The 4x4 puzzles here therefore have
# few givens, and some are mined for dead ends. They can have several solutions: the model is trained
# on the one that the solver finds first, and any solution counts as solved.
#
# Finished stages are skipped, so an interrupted run can be repeated. The environment is .venv, or
# $SUDOCOT_VENV.
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
# Trace tokens per segment (a typical trace has a few segments), training recipe and token budget, and
# an example puzzle whose search has dead ends.
recipe=(--preset small)
case $board in
    4x4)
        segment_tokens=16 train_tokens=3400000
        example='....|..4.|.4..|..34'
        ;;
    6x6)
        segment_tokens=32 train_tokens=36000000
        example='.51.........6...4.....5....23...6...'
        ;;
    9x9)
        segment_tokens=512 train_tokens=0
        recipe=(--preset muon --max-cot-length 16384)
        example='4.....8.5.3..........7......2.....6.....8.4......1.......6.3.7.5..2.....1.4......'
        ;;
    *) usage ;;
esac
[[ -z $out || $out == /* ]] || out=$PWD/$out

cd "$(dirname "$0")/.."
out=${out:-$PWD/runs/quickstart-$board}
venv=${SUDOCOT_VENV:-$PWD/.venv}
[[ -n ${SUDOCOT_VENV:-} ]] || bash scripts/venv.sh "$venv" train
export PATH="$venv/bin:$PATH"
# Use huge pages for malloc and keep freed memory: up to twice the training throughput on a CPU.
malloc=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824
export GLIBC_TUNABLES="${GLIBC_TUNABLES:-$malloc:glibc.malloc.trim_threshold=17179869184}"
# Waiting threads sleep instead of spinning, which would slow down training next to other processes.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"

mkdir -p "$out"

# Print a heading with the minutes and seconds since the start.
step() { printf '\n== %d:%02d  %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"; }
fail() {
    echo "quickstart: $*" >&2
    exit 1
}

if [[ $board == 9x9 ]] && python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    train_tokens=1000000000
fi

# Sources of the training puzzles and of the test puzzles, as options of `sudocot data build`.
case $board in
    4x4)
        # Two lists each: random puzzles with few givens, and puzzles with dead ends.
        # An interrupted `data generate` keeps the puzzles so far, hence the other name until the end.
        make_list() { # NAME COUNT SEED OPTIONS...
            [[ ! -e $out/$1.csv ]] || return 0
            sudocot data generate "$2" --board 4x4 --seed "$3" --rebuild --out "$out/$1.part.csv" \
                "${@:4}"
            mv "$out/$1.part.csv" "$out/$1.csv"
        }
        step "4x4 puzzles with few givens, some mined for dead ends, in $out"
        dead_ends=(--givens 3 6 --min-cot-length 76 --max-cot-length 128)
        make_list puzzles 16000 0 --givens 3 7
        make_list dead-ends 6000 0 "${dead_ends[@]}"
        make_list test-puzzles 700 1 --givens 3 7
        make_list test-dead-ends 1000 1 "${dead_ends[@]}"
        train_source=("$out/puzzles.csv" "$out/dead-ends.csv" --no-check-unique)
        test_source=("$out/test-puzzles.csv" "$out/test-dead-ends.csv" --no-check-unique)
        ;;
    6x6)
        train_source=(--generate 280000)
        test_source=(--generate 5000 --seed 1)
        ;;
    9x9)
        hub=sapientinc/sudoku-extreme
        if ((train_tokens == 0)); then
            train_source=(--generate 5000)
            test_source=(--generate 250 --seed 1)
        else
            if [[ ! -e $out/source ]]; then # the same source when an interrupted run is repeated
                if python - $hub <<<'import sys, huggingface_hub as h; h.dataset_info(sys.argv[1], timeout=10)' \
                    2>/dev/null; then echo hub; else echo generator; fi >"$out/source"
            fi
            if [[ $(<"$out/source") == hub ]]; then
                train_source=("$hub" --split train) test_source=("$hub" --split test --sample 2000)
            else
                train_source=(--generate 20000 --mine 1000 16384)
                test_source=(--generate 500 --mine 1000 16384 --seed 1)
            fi
        fi
        ;;
esac

# --resume continues an interrupted build and skips a finished one.
build() { # MODE FOLDER OPTIONS...
    sudocot data build --board "$board" --mode "$1" --segment-tokens "$segment_tokens" --resume \
        --out "$2" "${@:3}"
}

for mode in cot scot; do
    step "$mode data set of $board puzzles in $out/$mode"
    build "$mode" "$out/$mode" "${train_source[@]}"
    step "$mode test data of other puzzles in $out/$mode-test"
    build "$mode" "$out/$mode-test" "${test_source[@]}" --exclude "$out/$mode"
done

for mode in cot cot-test; do
    step "statistics of $out/$mode"
    sudocot data stats "$out/$mode" --min-branching-share 0.25
done

step "an example puzzle and its trace"
sudocot solve "$example" --trace | tee "$out/example.txt"
grep -q '<none>' "$out/example.txt" || fail "the trace of the example has no dead end"

((train_tokens)) || exit 0

# Both trainings run in parallel, each on half of the CPUs. Interrupted trainings resume, finished ones
# are skipped. Wait for both also after an interrupt, since trainings save then, or a failure.
# sed ignores the interrupt, so that the last lines of the trainings are printed.
step "training of a CoT and an SCoT model, in $out/cot-run and $out/scot-run"
OMP_NUM_THREADS=$(python -c 'from data.runtime.cpus import available_cpus as a; print(max(1, a()[0] // 2))')
export OMP_NUM_THREADS
trap 'echo "quickstart: saving the trainings; the same command resumes them"; wait; exit 130' INT
trainings=()
for mode in cot scot; do
    sudocot train run "${recipe[@]}" --data "$out/$mode" --held-out "$out/$mode-test" \
        --out "$out/$mode-run" --budget "$train_tokens" \
        > >(trap '' INT; exec sed -u "s/^/$mode /") 2>&1 &
    trainings+=($!)
done
code=0
for training in "${trainings[@]}"; do wait "$training" || code=$?; done
trap - INT
((code == 0)) || exit "$code"

step "curves of both runs, in $out/curves.png"
sudocot train plot "$out/cot-run" "$out/scot-run" --out "$out/curves.png" --title "$board"

# Interrupted evaluations resume; finished ones print their summary.
sampling=()
[[ $board != 4x4 ]] || sampling=(--no-check-unique)
evaluate() { # NAME MODEL DATA ENGINE OPTIONS...
    step "$1 on test puzzles, engine $4, in $out/evaluations"
    sudocot eval run --model "$2" --data "$3" --engine "$4" --keep-tokens --name "$1" \
        --out "$out/evaluations/${1// /-}-$4" "${@:5}"
}

for mode in cot scot; do
    for engine in segment verify; do
        evaluate "$board $mode" "$out/$mode-run/final" "$out/$mode-test" "$engine" --sample all \
            ${sampling[@]+"${sampling[@]}"}
    done
done

# For comparison: the compiled solver, and the models of the repository for other boards.
reference=(--sample random --count 100)
[[ $board != 4x4 ]] || reference=(--sample all "${sampling[@]}")
evaluate "compiled solver" "compiled-$board" "$out/scot-test" verify "${reference[@]}"
while read -r name shipped_board; do
    data=$out/$shipped_board-test
    givens=0
    [[ $shipped_board != 9x9 ]] || givens=12 # easy puzzles: the 9x9 model rarely solves minimal ones
    sudocot data build --generate 200 --extra-givens "$givens" --seed 2 --board "$shipped_board" \
        --resume --out "$data"
    evaluate "shipped $name" "$name" "$data" verify --sample random --count 100 --max-new-tokens 2048
done < <(python -c 'from scripts.models.catalog import read_catalog as r
for model in r().values(): model.board == "'$board'" or print(model.name, model.board)')

step "leaderboard, in $out/report/report.html"
sudocot report "$out"/evaluations/* --out "$out/report"

step "the example as the SCoT model solves it, in $out/trace.html"
show=(sudocot trace "$example" --model "$out/scot-run/final" --out "$out/trace.html")
# Open the page in an interactive desktop session.
[[ -t 1 && (-n ${DISPLAY:-}${WAYLAND_DISPLAY:-} || $(uname) == Darwin) ]] && show+=(--open)
"${show[@]}"

if [[ $board == 4x4 ]]; then
    step "both models solve at least 90% of the test puzzles"
    for mode in cot scot; do
        sudocot eval score "$out/evaluations/$board-$mode-segment" --min-accuracy 0.9
    done
fi

step "finished; pages to open in a browser"
printf '%s\n' "leaderboard  $out/report/report.html" "one search   $out/trace.html" \
    "curves       $out/curves.png"
