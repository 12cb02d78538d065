#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kvasird holds no CUDA and no BLAS: a fault of a device or of a matrix product cannot hurt it.
set -euo pipefail

pattern='(^|[^a-z])(cblas_|openblas|[sd]gemm_?$|cuda[A-Z_]|cu[A-Z][a-z]|__cuda|nvrtc|cublas)'
symbols=$(nm --format=posix kvasird | cut -d' ' -f1)
libraries=$(readelf -d kvasird | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')

# The worker does hold BLAS: the pattern can find something.
nm --format=posix kvasir-worker | cut -d' ' -f1 | grep -qE "$pattern" || {
    echo "the pattern finds no BLAS in kvasir-worker either"
    exit 1
}
if found=$(grep -E "$pattern" <<<"$symbols"$'\n'"$libraries"); then
    echo "kvasird holds:" "$found"
    exit 1
fi
