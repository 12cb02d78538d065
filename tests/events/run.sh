#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# KV events as llm-d and Dynamo would read them, decoded by Python's msgspec into vLLM's structures.  Skipped,
# loudly, where PyPI cannot be had.
set -euo pipefail
# shellcheck source=tests/gateway/running.sh
. "${KVASIR_SRCDIR:-.}/tests/gateway/running.sh"
packages=(pyzmq==27.3.0 protobuf==7.36.2 msgspec==0.23.0 msgpack==1.2.4)
library=${XDG_CACHE_HOME:-$HOME/.cache}/kvasir/kv-events-1

if [ ! -d "$library" ]; then
    if ! timeout 300 python3 -m pip install -q --no-warn-script-location --target "$dir/library" "${packages[@]}" \
        >"$dir/pip" 2>&1; then
        echo "SKIP: no ${packages[*]} from PyPI: $(tail -n 1 "$dir/pip")" >&2
        exit 77
    fi
    mkdir -p "${library%/*}"
    mv "$dir/library" "$library"
fi
export KVASIR_SCHEMA=$dir/schema.binpb PYTHONDONTWRITEBYTECODE=1
protoc -I "$source/proto" --descriptor_set_out="$KVASIR_SCHEMA" "$source"/proto/kvasir/v1/*.proto
stop() {
    local pid
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
        timeout 600 tail --pid="$pid" -f /dev/null
    done
    pids=()
}
events=(--block-tokens 16 --kv-events "ipc://$dir/events" --kv-events-replay "ipc://$dir/replay"
    --kv-events-topic kv@test)
export PYTHONPATH=$source/clients/python/src:$library
for format in map array; do
    start kvasird ./kvasir-keeper -- ./kvasird --load-format dummy --shape tiny --kv-memory 1MiB "${events[@]}" \
        --kv-events-format $format
    start worker ./kvasir-worker
    KEEPER=${pids[1]} python3 "$source/tests/events/test_kv_events.py" "$dir" $format
    stop
done
start kvasird ./kvasird --load-format dummy --shape tiny --kv-memory 1MiB --host-memory 16MiB --eviction lru "${events[@]}"
start worker ./kvasir-worker
python3 "$source/tests/events/test_host_tier.py" "$dir" map
stop
