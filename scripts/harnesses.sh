#!/usr/bin/env bash
# Run the four harnesses of eval/harnesses and sudocot on the same 50 answers of a stub server, each
# harness in its own environment, and print a table of scores. The exit code is 1 if they differ.
#
#   bash scripts/harnesses.sh [FOLDER]     environments and results (default: build/harnesses)
#
# $SUDOCOT_VENV is the environment of sudocot (default: .venv).
set -euo pipefail
folder=${1:-}
[[ -z $folder || $folder == /* ]] || folder=$PWD/$folder
cd "$(dirname "$0")/.."
root=$PWD
folder=${folder:-$root/build/harnesses}
mkdir -p "$folder"
bin=$root/${SUDOCOT_VENV:-.venv}/bin
[[ ${SUDOCOT_VENV:-} == /* ]] && bin=$SUDOCOT_VENV/bin
numba=$(grep '^numba==' scripts/constraints.txt)
export VF_NO_PUSH=1 DO_NOT_TRACK=1 HF_HUB_OFFLINE=1

# An environment with a harness, the solver's dependencies, and this checkout on its path.
environment() { # name, packages
    local venv=$folder/$1
    shift
    if [[ ! -e $venv/installed ]]; then
        python3 -m venv "$venv"
        "$venv/bin/pip" install --quiet "$numba" "$@"
        echo "$root" >"$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/sudocot.pth"
        touch "$venv/installed"
    fi
}
environment inspect 'inspect_ai==0.3.285' 'openai>=2'
environment lm_eval 'lm-eval[api]==0.4.13' # its extra `api`: servers
environment reasoning_gym 'reasoning-gym==0.1.25' 'openai>=2'
environment verifiers 'verifiers==0.4.0' uv # its chat program is a uv script

puzzles=$folder/puzzles.csv
# An interrupted `data generate` keeps the puzzles so far, hence the other name until the end.
if [[ ! -e $puzzles ]]; then
    "$bin/sudocot" data generate 50 --board 6x6 --rebuild --out "$folder/puzzles.part.csv"
    mv "$folder/puzzles.part.csv" "$puzzles"
fi
rm -rf "$folder/runs"
mkdir "$folder/runs"
runs=$folder/runs

"$bin/python" -m tests.eval.stub_server 0 0 >"$runs/url" &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
until [[ -s $runs/url ]]; do
    kill -0 $server || exit 1
    sleep 0.1
done
url=$(<"$runs/url")
export STUB_API_KEY=none STUB_BASE_URL=$url OPENAI_API_KEY=none

"$bin/sudocot" eval run --engine api --model stub-model --base-url "$url" --data "$puzzles" \
    --sample all --out "$runs/sudocot"
"$folder/inspect/bin/inspect" eval eval/harnesses/inspect_task.py -T "puzzles=$puzzles" \
    --model openai-api/stub/stub-model --log-dir "$runs/inspect" --display plain
"$folder/lm_eval/bin/lm_eval" run --model local-chat-completions \
    --model_args "model=stub-model,base_url=$url/chat/completions,num_concurrent=4" \
    --include_path eval/harnesses/lm_eval_task --tasks sudocot --apply_chat_template \
    --metadata "{\"puzzles\": \"$puzzles\"}" --log_samples --output_path "$runs/lm_eval"
"$folder/reasoning_gym/bin/python" -m scripts.bench.reasoning_gym_run "$puzzles" "$url" \
    >"$runs/reasoning_gym.json"
PATH=$folder/verifiers/bin:$PATH PYTHONPATH=eval/harnesses/verifiers_plugin \
    "$folder/verifiers/bin/vf-eval" sudocot-taskset --env.taskset.puzzles "$puzzles" \
    --model stub-model --client.base-url "$url" --client.api-key-var STUB_API_KEY \
    --env.agent.harness.id null --env.agent.runtime.type subprocess \
    --max-concurrent 4 --push False --output-dir "$runs/verifiers"
for log in "$runs"/inspect/*.eval; do
    "$bin/sudocot" eval import "$log" --name inspect --out "$runs/imported-inspect" \
        --like "$runs/sudocot"
done
for log in "$runs"/lm_eval/*/samples_*.jsonl; do
    "$bin/sudocot" eval import "$log" --name lm_eval --out "$runs/imported-lm_eval" \
        --like "$runs/sudocot"
done
"$bin/python" -m scripts.bench.harness_table "$runs"
