#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# W2 of the claims, one cell, in little: hit ratios of all modes at 1 GiB and alpha 1.1 through the real daemon.
set -euo pipefail

source=${KVASIR_SRCDIR:-.}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export PYTHONDONTWRITEBYTECODE=1
python3 "$source/bench/run_hits" --build . --budgets 1 --alphas 1.1 --requests 300 --results "$scratch/results" \
    --out "$scratch/page"
python3 "$source/tests/integration/test_hit_ratios.py" "$scratch/results"
