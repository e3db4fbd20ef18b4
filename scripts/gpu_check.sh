#!/usr/bin/env bash
# GPU tests and benchmarks, in stages ordered by importance, each with a time limit:
#
#   bash scripts/gpu_check.sh PUZZLES_DIR OUT_DIR [--stage NAME]...
#
#   kernels  150 s   the tests marked gpu: attention, training, resumption, engines, memory
#   speed    210 s   tokens/s and MFU of the training loop and of the Trainer, both compiled
#   resume    90 s   a training that is stopped by a signal and resumed, against an uninterrupted one
#   engines  150 s   token agreement of the engines; tokens/s against the memory roofline
#   train    300 s   a 9x9 training, with its held-out solve rate
#   study   3600 s   optimizers on 6x6; only with --stage study
#
# The first five take 15 minutes. PUZZLES_DIR contains 9x9 puzzle lists as text; data sets are built
# before the stages that read them, unless they exist in OUT_DIR. A stage writes OUT_DIR/NAME.log and,
# when it ends, OUT_DIR/NAME.result; the next stages run even if it fails or reaches its limit.
# Without a GPU, the stages run on the CPU with small sizes; a short puzzle list suffices there.
# STAGE_LIMIT replaces the time limit of every stage.
# shellcheck disable=SC2317 # stages are called by their names
set -euo pipefail

usage() {
    echo "usage: bash scripts/gpu_check.sh PUZZLES_DIR OUT_DIR [--stage NAME]..." >&2
    exit 2
}

declare -A limits=([kernels]=150 [speed]=210 [resume]=90 [engines]=150 [train]=300 [study]=3600)
[ $# -ge 2 ] || usage
puzzles=$1 out=$2
shift 2
stages=()
while [ $# -gt 0 ]; do
    [[ $1 == --stage && -n ${2:-} && -n ${limits[$2]:-} ]] || usage
    stages+=("$2")
    shift 2
done
[ ${#stages[@]} -gt 0 ] || stages=(kernels speed resume engines train)
root=$(cd "$(dirname "$0")/.." && pwd)

python=${PYTHON:-python3}
has_gpu=$("$python" -c 'import torch; print(int(torch.cuda.is_available()))')
if [ "$has_gpu" = 1 ]; then
    models=${MODELS:-paper-l6} precisions=${PRECISIONS:-bf16}
    train_seconds=${TRAIN_SECONDS:-200} train_model=${TRAIN_MODEL:-paper-l6}
    study_tokens=${STUDY_TOKENS:-40000000} study_puzzles=${STUDY_PUZZLES:-200000}
    cutoff=${CUTOFF:-16384} updates=${UPDATES:-8} num_slots=${NUM_SLOTS:-512}
    resume_tokens=${RESUME_TOKENS:-2000000} decode_tokens=${DECODE_TOKENS:-400}
    resume_preset=small save_every=20 num_generated=2000 num_agreeing=300
    speed_options=(--tokens-per-update 131072 --max-tokens-per-micro-batch 65536
        --trainer-micro-tokens 32768 --compile)
    train_options=(--tokens-per-update 100000 --max-tokens-per-micro-batch 100000)
else
    models=${MODELS:-small-9x9} precisions=${PRECISIONS:-fp32}
    train_seconds=${TRAIN_SECONDS:-5} train_model=${TRAIN_MODEL:-small-9x9}
    study_tokens=${STUDY_TOKENS:-20000} study_puzzles=${STUDY_PUZZLES:-500}
    cutoff=${CUTOFF:-1024} updates=${UPDATES:-1} num_slots=${NUM_SLOTS:-8}
    resume_tokens=${RESUME_TOKENS:-20000} decode_tokens=${DECODE_TOKENS:-30}
    resume_preset=tiny save_every=2 num_generated=100 num_agreeing=8
    speed_options=(--tokens-per-update 2048 --max-tokens-per-micro-batch 2048 --trainer-micro-tokens 2048)
    train_options=(--tokens-per-update 4096)
fi
mkdir -p "$out/runs"
export PYTHONUNBUFFERED=1 PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}

sudocot() { "$python" -m sudocot_cli "$@"; }
say() { printf '== %s (%ss)\n' "$*" "$SECONDS"; }

build() { # NAME ARGS...: build a data set unless it exists
    [ -e "$out/$1/manifest.json" ] || sudocot data build "${@:2}" --out "$out/$1" --resume
}

data_sets() {
    say "data sets, N = $cutoff"
    build cot "$puzzles"/*.txt --max-cot-length "$cutoff"
    build scot "$puzzles"/*.txt --max-cot-length "$cutoff" --mode scot --shuffle
    build scot-test --generate "$num_generated" --board 9x9 --max-cot-length "$cutoff" --mode scot \
        --seed 1 --exclude "$out/scot"
}

small_data_sets() {
    build small --generate "$num_generated" --board 4x4 --mode scot --segment-tokens 32
    build small-test --generate $((num_generated / 10)) --board 4x4 --mode scot --segment-tokens 32 \
        --seed 1 --exclude "$out/small"
    # An interrupted `data generate` keeps the puzzles so far, hence the other name until the end.
    if [ ! -e "$out/small.txt" ]; then
        sudocot data generate "$num_agreeing" --board 4x4 --seed 2 --rebuild --out "$out/small.part.txt"
        mv "$out/small.part.txt" "$out/small.txt"
    fi
}

kernels() {
    if [ "$has_gpu" = 1 ]; then
        "$python" -m pytest -q -p no:cacheprovider -m gpu "$root/tests"
    else
        "$python" -m pytest -q -p no:cacheprovider "$root/tests/training/test_attention.py"
    fi
}

speed() {
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

resume() {
    options=(train run --preset "$resume_preset" --data "$out/small" --held-out "$out/small-test"
        --budget "$resume_tokens" --save-every "$save_every" --precision "${precisions%% *}")
    sudocot "${options[@]}" --out "$out/runs/whole"
    rm -rf "$out/runs/stopped"
    "$python" -m sudocot_cli "${options[@]}" --out "$out/runs/stopped" &
    training=$! code=0
    until compgen -G "$out/runs/stopped/checkpoints/step-*" >/dev/null || ! kill -0 $training; do
        sleep 0.1
    done 2>/dev/null
    kill -USR1 $training 2>/dev/null || true
    wait $training || code=$?
    say "the stopped training ended with $code (75: saved; 0: it was done before)"
    [ "$code" = 75 ] || [ "$code" = 0 ]
    sudocot "${options[@]}" --out "$out/runs/stopped"
    "$python" -m scripts.bench.same_weights "$out/runs/whole/final" "$out/runs/stopped/final" \
        --out "$out/resume.json"
}

engines() {
    [ -e "$out/runs/whole/final" ] || sudocot train run --preset tiny --data "$out/small" \
        --out "$out/runs/whole"
    for precision in fp32 bf16; do
        say "agreement of the engines in $precision"
        "$python" -m scripts.bench.agreement --models "$out/runs/whole/final" \
            --puzzles "$out/small.txt" --num-slots 32 --precision "$precision" \
            --out "$out/agreement-$precision.json"
    done
    # An untrained model of full size suffices for the speed.
    [ -e "$out/runs/untrained/final" ] || sudocot train run --data "$out/scot" --preset paper \
        --model "$train_model" --budget 1 --tokens-per-update 4096 --compile False \
        --precision "${precisions%% *}" --out "$out/runs/untrained"
    say "speed of the engines"
    "$python" -m scripts.bench.decoding --models "$out/runs/untrained/final" \
        --puzzles "$(printf '%s\n' "$puzzles"/*.txt | head -n 1)" --num-puzzles "$num_slots" \
        --num-slots "$num_slots" --max-new-tokens "$decode_tokens" \
        --max-segment-tokens "$decode_tokens" --precision "${precisions%% *}" \
        --engines segment verify --out "$out/decoding.json"
}

train() {
    # The budget determines the learning rate schedule, so it is computed from measured throughput.
    rate=${TRAIN_RATE:-$("$python" -c 'import json, sys
print(int(max(row["tokens/s"] for row in json.load(open(sys.argv[1]))["rows"])))' \
        "$out/speed-$train_model-${precisions%% *}.json" 2>/dev/null || echo 2000)}
    say "training $train_model on SCoT, N = $cutoff, about $train_seconds s"
    sudocot train run --data "$out/scot" --held-out "$out/scot-test" --out "$out/runs/train" \
        --preset paper --model "$train_model" --precision "${precisions%% *}" \
        --budget $((rate * train_seconds)) --eval-every 200 "${train_options[@]}"
}

train_run() { # NAME ARGS...: one run, with its output in a log
    sudocot train run --out "$out/runs/$1" "${@:2}" >"$out/$1.log" 2>&1
}

study() {
    say "optimizers on 6x6, $study_tokens tokens each"
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

# A stage is run by calling this script again, so that the time limit applies to all its processes.
if [ -n "${GPU_CHECK_STAGE:-}" ]; then
    "$GPU_CHECK_STAGE"
    exit
fi

for stage in "${stages[@]}"; do
    case $stage in
        speed | train) data_sets ;;
        resume) small_data_sets ;;
        engines) data_sets; small_data_sets ;; # not joined by &&, which disables set -e in the first
    esac
done
failed=0
for stage in "${stages[@]}"; do
    limit=${STAGE_LIMIT:-${limits[$stage]}}
    say "$stage, at most $limit s, log in $out/$stage.log"
    started=$SECONDS code=0
    GPU_CHECK_STAGE=$stage timeout --kill-after 10 "$limit" \
        bash "$0" "$puzzles" "$out" >"$out/$stage.log" 2>&1 || code=$?
    verdict=passed
    [ "$code" = 0 ] || verdict="failed with $code" failed=1
    [ "$code" != 124 ] || verdict="stopped at its limit"
    echo "$verdict after $((SECONDS - started)) s" >"$out/$stage.result"
    say "$stage $(cat "$out/$stage.result")"
    tail -n 12 "$out/$stage.log"
done
for stage in "${stages[@]}"; do
    printf '%-8s %s\n' "$stage" "$(cat "$out/$stage.result")"
done
exit "$failed"
