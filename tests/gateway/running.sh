# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# A daemon with a dummy model, a worker and a gateway, for the scripts beside this one: they source it, then
# call run_kvasir.  All of it ends with the script.
source=$(cd "${KVASIR_SRCDIR:-.}" && pwd)
dir=$(mktemp -d /tmp/kvasir-gateway-XXXXXX)
export KVASIR_RUNTIME_DIR=$dir
pids=()

stop_all() {
    local pid
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
        timeout 600 tail --pid="$pid" -f /dev/null || true
    done
    rm -rf "$dir"
}
trap stop_all EXIT

start() { # NAME PROGRAM...: waits until it is ready
    pids=("$("$source/deploy/start-ready" "$dir/$1.log" "${@:2}")" "${pids[@]}")
}

run_kvasir() { # ARG...: of the gateway; sets port
    start kvasird ./kvasird --load-format dummy --shape tiny --kv-memory 32MiB
    start worker ./kvasir-worker
    start gateway ./kvasir-gateway --port 0 "$@"
    # shellcheck disable=SC2034  # for the script that sources this
    port=$(sed -n 's/.* ready .*port=\([0-9]*\).*/\1/p' "$dir/gateway.log")
}
