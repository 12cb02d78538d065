#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# guidellm, as PyPI has it, measures the gateway.  With the torch that it wants it is 6 GB, so it is not fetched here:
# KVASIR_GUIDELLM is the command that runs it (default: guidellm), for instance after
#   python3 -m venv v && v/bin/pip install guidellm==0.8.1; KVASIR_GUIDELLM=v/bin/guidellm
set -euo pipefail
read -ra guidellm <<<"${KVASIR_GUIDELLM:-guidellm}"
if ! "${guidellm[@]}" --version >/dev/null 2>&1; then
    echo "SKIP: no ${guidellm[*]}: install guidellm from PyPI (6 GB), or say in KVASIR_GUIDELLM where it is"
    exit 77
fi
# shellcheck source=tests/gateway/running.sh
. "${KVASIR_SRCDIR:-.}/tests/gateway/running.sh"

run_kvasir --served-model-name tiny
for i in $(seq 32); do
    echo "{\"prompt\": \"Question $i: which port does ssh use?\", \"output_tokens_count\": 16}"
done >"$dir/prompts.jsonl"
timeout 240 "${guidellm[@]}" run --backend "kind=openai_http,target=http://127.0.0.1:$port" \
    --profile kind=concurrent,streams=4 --constraint kind=max_requests,count=24 \
    --data "kind=json_file,path=$dir/prompts.jsonl" --output "kind=json,path=$dir/report.json" \
    --disable-console >"$dir/guidellm.log" 2>&1 || {
    cat "$dir/guidellm.log"
    exit 1
}
python3 - "$dir/report.json" <<'CHECK'
import json, sys
[benchmark] = json.load(open(sys.argv[1]))["benchmarks"]
totals = benchmark["metrics"]["request_totals"]
assert (totals["successful"], totals["errored"]) == (24, 0), totals
answers = benchmark["requests"]["successful"]
assert {a["output_metrics"]["text_tokens"] for a in answers} == {16}, answers[0]
print("24 of 24 answers of 16 tokens, streamed, 4 at a time")
CHECK
