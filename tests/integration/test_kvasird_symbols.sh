#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kvasird holds no CUDA and no BLAS: a fault of a device or of a matrix product cannot hurt it.
set -euo pipefail

pattern='^(cblas_|[sd]gemm_?$|cuda[A-Z_]|cu[A-Z][a-z]|__cuda|nvrtc|cublas)|openblas|^lib(blas|cu|nv)'
symbols=$(nm --format=posix kvasird | cut -d' ' -f1)
libraries=$(readelf -d kvasird | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')

for planted in cblas_sgemm sgemm_ cudaMalloc cuMemCreate libopenblas.so.0 libcudart.so.12; do
    grep -qE "$pattern" <<<"$planted" || {
        echo "the pattern would miss $planted"
        exit 1
    }
done
if found=$(grep -E "$pattern" <<<"$symbols"$'\n'"$libraries"); then
    echo "kvasird holds:" "$found"
    exit 1
fi
