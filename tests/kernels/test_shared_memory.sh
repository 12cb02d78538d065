#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The attention kernels of every GPU from sm_80 on keep to the 99 KiB of shared memory that a block may have on
# sm_86 and sm_89, and spill no register.  Compiles them for each; needs nvcc and no device.  The other
# kernels have no dynamic shared memory: the compiler holds them to 48 KiB.
set -euo pipefail
src=${srcdir:-.}
[ -n "${NVCC:-}" ] || {
    echo "SKIP: no nvcc in this build"
    exit 77
}
limit=$((99 * 1024))
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

cat >"$dir/dynamic.cu" <<'END'
#include <stdio.h>
#include "kernels/device/lazy_attn.cuh"
int main() { printf("%zu\n", lazy_attn_shared_bytes(128)); }
END
"$NVCC" -std=c++17 -I. -I"$src" -o "$dir/dynamic" "$dir/dynamic.cu"
dynamic=$("$dir/dynamic")
failed=0
for kernel in lazy_prefill lazy_decode; do
    for arch in 80 86 89; do
        "$NVCC" -std=c++17 -O3 -I. -I"$src" -arch=sm_$arch -cubin -Xptxas -v -o "$dir/$kernel.cubin" \
            "$src/kernels/$kernel.cu" 2>"$dir/log" || {
            cat "$dir/log"
            exit 1
        }
        entries=$(grep -c 'Compiling entry function' "$dir/log")
        # Of the entry with most; ptxas leaves the word out where there is none.
        static=$(sed -n 's/.* \([0-9]*\) bytes smem.*/\1/p' "$dir/log" | sort -n | tail -n 1)
        total=$((${static:-0} + dynamic))
        spills=$(grep -cE '[1-9][0-9]* bytes spill' "$dir/log" || true)
        echo "$kernel sm_$arch: $entries entries, $total bytes of shared memory, $spills spill"
        [ "$entries" -gt 0 ] && [ $total -le $limit ] && [ "$spills" = 0 ] || failed=1
    done
done
exit $failed
