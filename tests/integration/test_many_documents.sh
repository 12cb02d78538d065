#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kvasirctl docs where there are more documents than kvasird looks at in one turn of its loop: all of them, once,
# in each order, also for several who ask at once and while nothing else happens.
set -euo pipefail
# shellcheck source=tests/gateway/running.sh
. "${KVASIR_SRCDIR:-.}/tests/gateway/running.sh"
start kvasird ./kvasird --load-format dummy --shape tiny --kv-memory 256MiB
start worker ./kvasir-worker

# 1300 documents of 20 to 83 tokens, ten a request; the first ten come twice more.
python3 - >"$dir/trace" <<'PY'
import json
for request in [*range(130), 0, 0]:
    cited = [{"tokens": 20 + i % 64, "id": i} for i in range(10 * request, 10 * request + 10)]
    print(json.dumps({"documents": cited, "query_tokens": 4, "output_tokens": 1}))
PY
./kvasir-bench --quiet --trace "$dir/trace" --requests 132 --concurrency 4 --vocab 512 "here=kvasir:$dir" >"$dir/bench"

asked=() # eight at once
for order in hits tokens saved hits tokens saved hits tokens; do
    ./kvasirctl --json docs --limit 10000 --order "$order" >"$dir/list.${#asked[@]}.$order" &
    asked+=($!)
done
for pid in "${asked[@]}"; do
    wait "$pid"
done
./kvasirctl --json docs --limit 7 --order tokens >"$dir/short"
python3 - "$dir" <<'PY'
import glob
import json
import sys
VALUES = {"hits": lambda d: d["hits"], "tokens": lambda d: d["tokens"], "saved": lambda d: d["hits"] * d["tokens"]}
lists = glob.glob(sys.argv[1] + "/list.*")
assert len(lists) == 8, lists
for path in lists:
    reply = json.load(open(path))
    found = reply["documents"]
    values = [VALUES[path.split(".")[-1]](document) for document in found]
    assert reply["total"] == len(found) == len({document["key"] for document in found}) == 1300, (path, len(found))
    assert values == sorted(values, reverse=True), path
    assert sorted(document["tokens"] for document in found) == sorted(20 + i % 64 for i in range(1300)), path
    assert sorted(document["hits"] for document in found)[-11:] == [0] + [2] * 10, path
short = json.load(open(sys.argv[1] + "/short"))
assert short["total"] == 1300 and [d["tokens"] for d in short["documents"]] == [83] * 7, short
PY
