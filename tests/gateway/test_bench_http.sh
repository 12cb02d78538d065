#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kvasir-bench asks one workload of kvasird by its own protocol and of the gateway by OpenAI's: texts as
# chats, token ids as completions.  Every answer comes, of the length asked for.
set -euo pipefail
# shellcheck source=tests/gateway/running.sh
. "${KVASIR_SRCDIR:-.}/tests/gateway/running.sh"

fail() {
    echo "test_bench_http: $*" >&2
    exit 1
}

both() { # OPTION...: both targets; the results are in $dir/result
    mkdir -p "$dir/result"
    ./kvasir-bench --requests 8 --docs 2 --output-tokens 5 --concurrency 2 --rounds 2 --detailed \
        --result-dir "$dir/result" "$@" "http=http://127.0.0.1:$port/v1" "own=kvasir:$dir" >"$dir/out" ||
        fail "$(cat "$dir/out")"
    for target in http own; do
        python3 - "$dir/result/$target.json" <<'PY' || fail "$target: see above"
import json
import sys
result = json.load(open(sys.argv[1]))
assert result["completed"] == 8 and result["failed"] == 0, result["errors"]
assert result["output_lens"] == [5] * 8, result["output_lens"]
assert all(n > 0 for n in result["input_lens"]) and all(t > 0 for t in result["ttfts"])
assert result["cold"]["completed"] > 0 and result["warm"]["completed"] > 0, "8 requests over 3 documents"
PY
    done
}

run_kvasir --served-model-name tiny
mkdir "$dir/texts"
for name in a b c; do
    echo "The document $name speaks of $name." >"$dir/texts/$name.txt"
done
both --texts "$dir/texts"
both --pool 3 --document-tokens 20-40 --query-tokens 6 --vocab 512
[ "$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["model_id"])' "$dir/result/http.json")" = tiny ] ||
    fail "the server was not asked for its model"
