#!/usr/bin/env bash
# Leaderboard with every kind of model that `sudocot report` supports, on small puzzle lists: the
# compiled solver, the trained models included in the repository, a randomly initialized Qwen3 (text
# protocol), the compiled solver served by vLLM's OpenAI-compatible server (engine api), and imported
# predictions of which every tenth is wrong.
#
#   bash scripts/demo_board.sh [OUT] [PUZZLES]
#
# The environment is $SUDOCOT_VENV (default: .venv). Without vLLM, the api entry is a stub server
# with a known score. After an interruption, the same command resumes.
set -euo pipefail
out=${1:-}
[[ -z $out || $out == /* ]] || out=$PWD/$out
cd "$(dirname "$0")/.."
bin=${SUDOCOT_VENV:-$PWD/.venv}/bin
out=${out:-$PWD/runs/demo-board}
count=${2:-100}
mkdir -p "$out"

step() { printf '\n== %s\n' "$*"; }
evaluate() { # FOLDER BOARD OPTIONS...
    step "$1"
    "$bin/sudocot" eval run --data "$out/$2.csv" --sample all --keep-tokens \
        --out "$out/evaluations/$1" "${@:3}"
}

for board in 4x4 6x6; do
    # An interrupted `data generate` keeps the puzzles so far, hence the other name until the end.
    if [[ ! -e $out/$board.csv ]]; then
        "$bin/sudocot" data generate "$count" --board "$board" --seed 3 --rebuild \
            --out "$out/$board.part.csv"
        mv "$out/$board.part.csv" "$out/$board.csv"
    fi
    evaluate "compiled-$board" "$board" --model "compiled-$board" --engine verify
done
evaluate 4x4-cot 4x4 --model 4x4-cot
evaluate 4x4-scot 4x4 --model 4x4-scot
evaluate 6x6-cot 6x6 --model 6x6-cot
evaluate 6x6-scot 6x6 --model 6x6-scot

step "certificates of the trained models"
for name in 4x4-cot 4x4-scot 6x6-cot 6x6-scot; do
    [[ -e $out/evaluations/$name/certificates.json ]] ||
        "$bin/sudocot" eval certify "$out/evaluations/$name" --model "$name"
done

step "imported: two cells are swapped in every tenth answer"
if [[ ! -e $out/evaluations/imported/summary.json ]]; then
    "$bin/python" - "$out/4x4.csv" "$out/predictions.csv" <<'PYTHON'
import csv
import sys

with open(sys.argv[1]) as file, open(sys.argv[2], "w", newline="") as made:
    writer = csv.writer(made)
    writer.writerow(("puzzle", "answer"))
    rows = {row["question"]: row for row in csv.DictReader(file)}  # small boards repeat puzzles
    for number, row in enumerate(rows.values()):
        cells = list(row["answer"])
        if number % 10 == 9:
            blank = [cell for cell, given in enumerate(row["question"]) if given in ".0"]
            other = next(cell for cell in blank if cells[cell] != cells[blank[0]])
            cells[blank[0]], cells[other] = cells[other], cells[blank[0]]
        writer.writerow((row["question"], "".join(cells)))
PYTHON
    "$bin/sudocot" eval import "$out/predictions.csv" --name "imported, 10% wrong" \
        --out "$out/evaluations/imported" --like "$out/evaluations/compiled-4x4"
fi

[[ -e $out/qwen3/config.json ]] || "$bin/python" -c '
import sys
from pathlib import Path
from tests.eval.language_models import write_language_model
write_language_model(Path(sys.argv[1]))' "$out/qwen3"
# The context length is 512 tokens: a prompt and a short reply.
step "a randomly initialized Qwen3, text protocol"
"$bin/sudocot" eval run --data "$out/4x4.csv" --sample all --model "$out/qwen3" --engine hf \
    --max-new-tokens 64 --name "Qwen3, random weights" --out "$out/evaluations/qwen3"

if "$bin/python" -c 'import vllm' 2>/dev/null; then
    model=$out/compiled-4x4
    [[ -e $model/config.json ]] || "$bin/sudocot" compile sudoku --board 4x4 --out "$model"
    port=$("$bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    step "vLLM server on port $port; log in $out/server.log"
    # The module, since the command `vllm serve` of the CPU distribution does not find its version.
    "$bin/python" -m vllm.entrypoints.openai.api_server --model "$model" --host 127.0.0.1 --port "$port" --dtype float32 --enforce-eager \
        --kv-cache-memory-bytes 1G >"$out/server.log" 2>&1 &
    server=$!
    trap 'kill $server 2>/dev/null || true' EXIT
    until "$bin/python" -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$port/health')" \
        2>/dev/null; do
        kill -0 $server || { tail "$out/server.log"; exit 1; }
        sleep 2
    done
    evaluate served 4x4 --model "$model" --engine api --base-url "http://127.0.0.1:$port/v1" \
        --name "compiled-4x4, vLLM server"
else
    step "stub server (vLLM is not installed)"
    rm -f "$out/url" # of an earlier run
    "$bin/python" -m tests.eval.stub_server 0 0 >"$out/url" &
    server=$!
    trap 'kill $server 2>/dev/null || true' EXIT
    until [[ -s $out/url ]]; do
        kill -0 $server || exit 1
        sleep 0.2
    done
    export OPENAI_API_KEY=none
    "$bin/sudocot" eval run --data "$out/4x4.csv" --sample all --model stub-model --engine api \
        --base-url "$(<"$out/url")" --name "stub server" --out "$out/evaluations/stub"
fi

step "leaderboard, in $out/report/report.html"
"$bin/sudocot" report "$out"/evaluations/*/ --out "$out/report" --title "Every kind of model"
