#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# With SmolLM2 and real documents: what its kernels read of earlier work is what the policy counted, in a pool that
# holds a quarter of them.
set -euo pipefail

name=SmolLM2-135M-Instruct.Q4_1.gguf
model=${KVASIR_TEST_MODEL:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/kvasir/$name}
source=${KVASIR_SRCDIR:-.}
data=${KVASIR_SHARED_DATA:-$source/../shared/data}/2wiki_demo.jsonl
skip() {
    echo "SKIP: $*"
    exit 77
}
[ -r "$model" ] || skip "no $name at \$KVASIR_TEST_MODEL or in the cache of deploy/fetch-model"
[ -r "$data" ] || skip "no 2wiki_demo.jsonl in \$KVASIR_SHARED_DATA"
[ -z "${KVASIR_SANITIZED:-}" ] || skip "ten times slower under sanitizers; test_hits_agree is the same with a tiny model"

PYTHONDONTWRITEBYTECODE=1 python3 "$source/tests/gpu/hits.py" --bin . --device cpu --model "$model" --data "$data" \
    --policies zipf --kv-memory 64MiB --requests 14
