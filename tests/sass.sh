#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# sass.sh [OBJECT...]: what the compiler made of the attention kernels of sm_90a: matrix products of
# warpgroups (HGMMA), and no register in local memory (STL, LDL).
#
# Looks at the build's objects, or at those named; skips loudly where there are none, or no cuobjdump
# ($CUOBJDUMP, PATH, beside nvcc, or in a Python package of Triton).
set -euo pipefail

find_cuobjdump() {
    local nvcc
    [ -z "${CUOBJDUMP:-}" ] || { echo "$CUOBJDUMP" && return; }
    command -v cuobjdump && return
    nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
    [ ! -x "$(dirname "$nvcc")/cuobjdump" ] || { echo "$(dirname "$nvcc")/cuobjdump" && return; }
    python3 -c 'import os, triton; print(os.path.join(os.path.dirname(triton.__file__), "backends/nvidia/bin/cuobjdump"))' 2>/dev/null
}

judge() { # OBJECT: its sm_90a code, kernel by kernel
    "$cuobjdump" -sass -arch sm_90a "$1" | awk '
        function close_kernel() {
            if (kernel != "") {
                kernels++
                printf "%-90.90s HGMMA %3d, local memory %d\n", kernel, products, locals
                bad += products == 0 || locals > 0
            }
        }
        /Function :/ { close_kernel(); kernel = $3; products = locals = 0 }
        / HGMMA\./ { products++ }
        / (STL|LDL)[. ]/ { locals++ }
        END { close_kernel(); exit kernels == 0 || bad > 0 }'
}

cuobjdump=$(find_cuobjdump) || cuobjdump=
if [ ! -x "$cuobjdump" ]; then
    echo "SKIP: no cuobjdump"
    exit 77
fi
[ $# -gt 0 ] || set -- kernels/lazy_prefill_sm90.o
for object; do
    [ -f "$object" ] || {
        echo "SKIP: no $object: a build without CUDA"
        exit 77
    }
    # Built for other devices only, there is nothing to look at.
    "$cuobjdump" -lelf "$object" | grep -q 'sm_90a' || {
        echo "SKIP: $object has no code for sm_90a"
        exit 77
    }
    judge "$object"
done
