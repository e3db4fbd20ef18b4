#!/usr/bin/env bash
# Check training on a GPU: parity of attention kernels, tokens/s and MFU, and a training run.
#
#   bash scripts/gpu_check.sh PUZZLES_DIR OUT_DIR [checks|speed|study|train ...]
#
# PUZZLES_DIR holds 9x9 puzzle lists as text. Every stage writes its results below OUT_DIR and may
# be run alone; without a GPU the same stages run on the CPU, at a small size. Sizes come from the
# variables below.
set -euo pipefail

usage() {
    echo "usage: bash scripts/gpu_check.sh PUZZLES_DIR OUT_DIR [checks|speed|study|train ...]" >&2
    exit 2
}

[ $# -ge 2 ] || usage
puzzles=$1 out=$2
shift 2
stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(checks speed study train)
for stage in "${stages[@]}"; do
    case $stage in
        checks | speed | study | train) ;;
        *) usage ;;
    esac
done
tests=$(cd "$(dirname "$0")/../tests/training" && pwd)

python=${PYTHON:-python3}
has_gpu=$("$python" -c 'import torch; print(int(torch.cuda.is_available()))')
if [ "$has_gpu" = 1 ]; then
    models=${MODELS:-paper-l6 llama-l6 paper-l12} precisions=${PRECISIONS:-bf16 fp32}
    train_seconds=${TRAIN_SECONDS:-360} train_model=${TRAIN_MODEL:-paper-l6}
    study_tokens=${STUDY_TOKENS:-40000000} study_puzzles=${STUDY_PUZZLES:-200000}
    cutoff=${CUTOFF:-16384} updates=${UPDATES:-8}
    speed_options=(--tokens-per-update 131072 --max-micro-tokens 65536
        --trainer-micro-tokens 32768 --compile)
    train_options=(--tokens-per-update 100000 --max-micro-tokens 100000)
else
    models=${MODELS:-small-9x9} precisions=${PRECISIONS:-fp32}
    train_seconds=${TRAIN_SECONDS:-20} train_model=${TRAIN_MODEL:-small-9x9}
    study_tokens=${STUDY_TOKENS:-20000} study_puzzles=${STUDY_PUZZLES:-500}
    cutoff=${CUTOFF:-1024} updates=${UPDATES:-1}
    speed_options=() train_options=(--tokens-per-update 4096)
fi
mkdir -p "$out"
export PYTHONUNBUFFERED=1

sudocot() { "$python" -m scripts.cli.main "$@"; }
say() { printf '== %s (%ss)\n' "$*" "$SECONDS"; }

build() { # NAME ARGS...: a data set, once
    [ -e "$out/$1/manifest.json" ] || sudocot data build "${@:2}" --out "$out/$1" --resume
}

checks() {
    say "kernels agree, no leaks, gradients"
    marked=("$tests/test_attention.py")
    [ "$has_gpu" = 0 ] || marked=(-m gpu "$tests")
    "$python" -m pytest -q -p no:cacheprovider "${marked[@]}"
}

data_sets() {
    say "data sets, N = $cutoff"
    build cot "$puzzles"/*.txt --max-cot-length "$cutoff"
    build scot "$puzzles"/*.txt --max-cot-length "$cutoff" --mode scot --shuffle
}

speed() {
    data_sets
    for model in $models; do
        for precision in $precisions; do
            say "speed of $model in $precision"
            "$python" -m scripts.bench.training --scot "$out/scot" --cot "$out/cot" \
                --max-cot-length "$cutoff" --model "$model" --precision "$precision" \
                --num-updates "$updates" --num-turns 2 \
                --out "$out/speed-$model-$precision.json" "${speed_options[@]}"
        done
    done
}

train_run() { # NAME ARGS...: one run, its progress in a log
    "$python" -m scripts.cli.main train run --out "$out/runs/$1" "${@:2}" >"$out/$1.log" 2>&1
}

study() {
    say "optimisers on 6x6, $study_tokens tokens each"
    build study-train --generate "$study_puzzles" --board 6x6 --mode scot --segment-tokens 64
    build study-test --generate 1000 --board 6x6 --mode scot --segment-tokens 64 --seed 1 \
        --exclude "$out/study-train"
    mkdir -p "$out/runs"
    trainings=() code=0
    for optimizer in adamw muon; do
        for rate in ${STUDY_RATES:-1e-3 2e-3}; do
            for seed in ${STUDY_SEEDS:-0 1 2}; do
                OMP_NUM_THREADS=1 train_run "study-$optimizer-$rate-$seed" \
                    --preset small --model small-6x6 --data "$out/study-train" \
                    --held-out "$out/study-test" --optimizer.name "$optimizer" \
                    --optimizer.peak-lr "$rate" --seed "$seed" --data-seed "$seed" \
                    --budget "$study_tokens" --tokens-per-update 4096 \
                    --eval-every 250 --max-eval-share 0.5 --compile False &
                trainings+=($!)
            done
        done
    done
    for training in "${trainings[@]}"; do wait "$training" || code=$?; done
    [ "$code" = 0 ] || say "a training of the study failed; see $out/study-*.log"
    return "$code"
}

train() {
    data_sets
    say "training $train_model on SCoT, N = $cutoff, about $train_seconds s"
    mkdir -p "$out/runs"
    # The budget sets the learning rate's schedule, so it follows from a measured rate.
    rate=${TRAIN_RATE:-$("$python" -c 'import json, sys
print(int(max(row["tokens/s"] for row in json.load(open(sys.argv[1]))["rows"])))' \
        "$out/speed-$train_model-${precisions%% *}.json" 2>/dev/null || echo 2000)}
    build scot-test --generate 2000 --board 9x9 --max-cot-length "$cutoff" --mode scot \
        --seed 1 --exclude "$out/scot"
    sudocot train run --data "$out/scot" --held-out "$out/scot-test" --out "$out/runs/train" \
        --preset paper --model "$train_model" --precision "${precisions%% *}" \
        --budget $((rate * train_seconds)) --eval-every 200 "${train_options[@]}"
}

for stage in "${stages[@]}"; do
    "$stage"
done
say finished
