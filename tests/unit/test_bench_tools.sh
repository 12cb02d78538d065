#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/check and bench/compare tell a loss from noise; bench/plot draws what kvasir-bench writes; a page's tables
# are those of its JSON.
set -euo pipefail
bench=${KVASIR_SRCDIR:-.}/bench
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "test_bench_tools: $*" >&2
    exit 1
}

records() { # US: what the short benches print, with this time for 8 rows
    cat <<EOF
one thread; words that are no record
{"bench":"gemm","shape":"gate_up","M":1,"us":100,"blas_us":290}
{"bench":"gemm","shape":"gate_up","M":8,"us":$1,"blas_us":300}
{"bench":"gemm","shape":"gate_up","M":35,"us":100,"blas_us":175}
{"bench":"gemm","shape":"down","M":512,"us":100,"blas_us":110}
{"bench":"lazy_prefill","docs":10,"tokens":150,"rows":20,"us":9,"of_peak":0.6}
{"bench":"lazy_prefill","docs":1,"tokens":512,"rows":512,"us":9,"of_peak":0.7}
{"bench":"kvpool","case":"claim and release, hot","us":1.4}
{"bench":"kvpool","case":"claim, evict, seal, release, cold","us":9}
{"bench":"sched","us_per_request":40}
EOF
}

records 100 >"$dir/good"
records 105 >"$dir/noisy"
records 200 >"$dir/bad"
"$bench/check" . --from "$dir/good" >/dev/null || fail "check refuses what is well"
! "$bench/check" . --from "$dir/bad" >"$dir/out" || fail "check does not see a loss"
[ "$(grep -c '^LOSS' "$dir/out")" = 1 ] || fail "check: $(cat "$dir/out")"
"$bench/compare" "$dir/good" "$dir/noisy" >/dev/null || fail "compare calls 5 % a loss"
! "$bench/compare" "$dir/good" "$dir/bad" >"$dir/out" || fail "compare does not see a loss"
grep -q '^LOSS .*x 2.000 .*M=8' "$dir/out" || fail "compare: $(cat "$dir/out")"
# A spread of runs that covers the difference is noise.
"$bench/compare" "$dir/good" "$dir/good" "$dir/noisy" "$dir/bad" >/dev/null || fail "compare takes noise for a loss"
printf 'copy 4000 GB/s\nrequests, nothing shared: us a layer\nb=1  5 x 4096   24.7  74.6%%\ndecode step b=1   4.76 ms  87.2%%\n' >"$dir/table"
sed 's/24.7/29.9/' "$dir/table" >"$dir/slower"
"$bench/compare" "$dir/table" "$dir/table" | grep -q '^2 times compared, 0 longer' || fail "compare does not read a table"
! "$bench/compare" "$dir/table" "$dir/slower" >"$dir/out" || fail "compare does not see a loss in a table"
grep -q '^LOSS .*x 1.211 .*b=1 5 x 4096' "$dir/out" || fail "compare: $(cat "$dir/out")"
! "$bench/compare" "$dir/good" /dev/null >/dev/null || fail "compare is content with nothing"

# A place that results cannot have is named before anything is asked.
! ./kvasir-bench --result-dir "$dir/good/below" "nobody=kvasir:$dir" >"$dir/out" 2>&1 || fail "kvasir-bench went on"
grep -q "result-dir $dir/good/below: Not a directory" "$dir/out" || fail "kvasir-bench: $(cat "$dir/out")"
! ./kvasir-bench "nobody=kvasir:$dir" --quiet >"$dir/out" 2>&1 || fail "kvasir-bench takes --quiet for a target"
grep -q -- '--quiet: options come before the targets' "$dir/out" || fail "kvasir-bench: $(cat "$dir/out")"
! ./kvasir-bench --quiet --requests 2 --timeout 1s "nobody=kvasir:$dir" >"$dir/out" 2>"$dir/said" || fail "nobody answers"
grep -q 'nobody: none of 2 requests was answered' "$dir/said" || fail "kvasir-bench: $(cat "$dir/said")"
[ ! -s "$dir/out" ] || fail "a table of nothing: $(cat "$dir/out")"

# The tables of the claims' page are what the committed cells say; above them stand words.
results=$bench/results/2026-11-30-claims
"$bench/run_claims" --out "$results.jsonl" --page >"$dir/page"
sed -n '/^## lazy beside/,$p' "$results.md" | diff "$dir/page" - >"$dir/out" || fail "claims.md: $(head -n 5 "$dir/out")"

# README tells how each figure is made.
for figure in $(sed -n 's/^    ("\([a-z-]*\)", .*/\1/p' "$bench/plot") ttft-modes; do
    grep -q "^| .*\`$figure\`.* |" "$bench/README.md" || fail "README does not tell how $figure is made"
done

if command -v gnuplot >/dev/null; then
    for rate in 1 2; do
        echo "{\"label\":\"a_b\",\"request_rate\":$rate,\"max_concurrency\":4,\"median_ttft_ms\":$rate," \
            "\"kvasir\":{\"note\":\"device=x budget_gib=$rate\"},\"token_hit_ratio\":0.$rate}" >"$dir/$rate.json"
    done
    cat "$dir"/2.json "$dir"/2.json >"$dir/lines.jsonl"
    "$bench/plot" "$dir/plots" "$dir/1.json" "$dir/lines.jsonl" >"$dir/out"
    for figure in ttft-rate hit-budget; do
        [ -s "$dir/plots/$figure.png" ] || fail "no $figure.png"
        grep -q '<svg' "$dir/plots/$figure.svg" || fail "no $figure.svg"
    done
    grep -q '^plot: tpot-batch: fewer than two points' "$dir/out" || fail "plot: $(cat "$dir/out")"
else
    echo "no gnuplot: bench/plot was not tried"
fi
