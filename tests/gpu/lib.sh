# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the scripts of a bundle share; sourced.  They set `bundle` and `dir` (theirs, for logs and sockets).
# shellcheck disable=SC2154,SC2034  # bundle and dir are the caller's; some of ours only theirs to read

# cuBLASLt is the machine's own: beside the toolkit, or in a Python package.
cublas=$(ldconfig -p | awk '/libcublasLt.so.13 / { print $NF; exit }')
[ -n "$cublas" ] || cublas=$(find /usr/local/cuda* /opt -name libcublasLt.so.13 2>/dev/null | head -n 1)
export LD_LIBRARY_PATH=${cublas:+$(dirname "$cublas")}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
failed=0
pids=()
# KVASIR_DEVICE=cpu tries a script out where there is no GPU.
device=${KVASIR_DEVICE:-cuda}
kv_type=bf16
[ "$device" != cpu ] || kv_type=f32

check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@"; then echo "ok: $what"; else
        echo "NOT OK: $what"
        failed=1
    fi
}

used() { # MiB in use on the device
    nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 1
}

now_ms() {
    date +%s%3N
}

start() { # NAME PROGRAM...: starts, waits for READY=1; sets pid and took_ms
    local name=$1 begin
    shift
    begin=$(now_ms)
    pid=$(python3 "$bundle/start-ready" "$dir/$name.log" "$@" 2>/dev/null) || {
        echo "NOT OK: $name did not start"
        tail -n 5 "$dir/$name.log"
        failed=1
        return 1
    }
    took_ms=$(($(now_ms) - begin))
    pids+=("$pid")
}

stop_all() {
    [ ${#pids[@]} = 0 ] && return
    kill "${pids[@]}" 2>/dev/null
    for pid in "${pids[@]}"; do
        tail --pid="$pid" -s 0.1 -f /dev/null
    done
    pids=()
}
