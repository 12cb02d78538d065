#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The metrics of a running system: read by a parser of our own and, where it is installed, by promtool; the
# dashboard and the alerts ask for nothing that is not there.
set -euo pipefail
# shellcheck source=tests/gateway/running.sh
. "${KVASIR_SRCDIR:-.}/tests/gateway/running.sh"

ask() { # METHOD PATH [BODY]: the body of the answer
    python3 - "$port" "$@" <<'PY'
import http.client
import sys

port, method, path, *body = sys.argv[1:]
connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=600)
connection.request(method, path, *body)
response = connection.getresponse()
sys.stdout.write(response.read().decode())
sys.exit(response.status != 200)
PY
}

run_kvasir --metrics-compat vllm --served-model-name 'a "model"'
until ask GET /health >/dev/null; do :; done
for question in one two three; do
    ask POST /v1/chat/completions "{\"messages\":[{\"role\":\"user\",\"content\":\"$question\"}],
        \"documents\":[\"a text\",\"another\"],\"max_tokens\":4,\"ignore_eos\":true}" >/dev/null
done
ask GET /metrics >"$dir/metrics"
python3 "$source/tests/gateway/test_metrics.py" "$dir/metrics" --vllm

missing=0
while read -r name; do
    if ! grep -qE "^$name(\{| )" "$dir/metrics"; then
        echo "test_metrics: $name is asked for and not there" >&2
        missing=1
    fi
done < <(grep -oh 'kvasir_[a-z0-9_]*' "$source"/deploy/prometheus/{dashboard.json,alerts.yml} | sort -u)
[ $missing = 0 ]
python3 -m json.tool "$source/deploy/prometheus/dashboard.json" >/dev/null

if ! command -v promtool >/dev/null; then
    echo "SKIP: promtool is not installed (package prometheus); our own parser has passed" >&2
    exit 77
fi
# A colon in a name is vLLM's way, and the only thing there is to say.
promtool check metrics <"$dir/metrics" >"$dir/lint" 2>&1 || true
if grep -v "^vllm:.* metric names should not contain ':'" "$dir/lint" |
    grep -v '^vllm:iteration_tokens_total' | grep .; then
    exit 1
fi
grep -v '[# ]vllm:\|^vllm:' "$dir/metrics" | promtool check metrics
promtool check rules "$source/deploy/prometheus/alerts.yml"
(cd "$source/deploy/prometheus" && promtool check config prometheus.yml)
