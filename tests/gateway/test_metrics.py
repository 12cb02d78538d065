#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a metrics text as Prometheus would read it: test_metrics.py FILE [--vllm]

Every family has its HELP and TYPE once and before its rows, rows of a family stand together, no row
occurs twice, histograms are cumulative and end with +Inf equal to their count.  With --vllm vLLM's
names must be there, each equal to ours.
"""
import math
import re
import sys

ROW = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (-?[0-9.e+-]+|NaN|[+-]Inf)$')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"(?:,|$)')


def parse(text):
    types, helps, rows, closed, current = {}, {}, {}, set(), None
    assert text.endswith("\n"), "the last line has no end"
    for number, line in enumerate(text.split("\n")[:-1], 1):
        where = f"line {number}: {line}"
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in helps, f"{where}: HELP twice"
            helps[name] = line
            if current:
                closed.add(current)
            current = name
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current and name not in types, f"{where}: TYPE without its HELP"
            assert kind in ("counter", "gauge", "histogram"), where
            types[name] = kind
        else:
            match = ROW.match(line)
            assert match, f"{where}: no row"
            name, labels, value = match.groups()
            family = name
            if types.get(current) == "histogram":
                family = re.sub(r"_(bucket|sum|count)$", "", name)
            assert family == current, f"{where}: a row of another family"
            pairs = LABEL.findall(labels or "")
            assert "".join(f'{k}="{v}",' for k, v in pairs).rstrip(",") == (labels or ""), where
            key = (name, tuple(sorted(pairs)))
            assert key not in rows, f"{where}: twice"
            rows[key] = float(value)
            if types[family] == "counter":
                assert name.endswith("_total") or name.startswith("vllm:"), f"{where}: no _total"
                assert float(value) >= 0, where
    return types, rows


def check_histograms(types, rows):
    seen = 0
    for family, kind in types.items():
        if kind != "histogram":
            continue
        series = {}
        for (name, labels), value in rows.items():
            if name == family + "_bucket":
                rest = tuple(l for l in labels if l[0] != "le")
                le = [v for k, v in labels if k == "le"][0]
                series.setdefault(rest, []).append((math.inf if le == "+Inf" else float(le), value))
        for rest, buckets in series.items():
            bounds = [b for b, _ in buckets]
            counts = [c for _, c in buckets]
            assert bounds == sorted(bounds) and bounds[-1] == math.inf, f"{family}: {bounds}"
            assert counts == sorted(counts), f"{family} is not cumulative"
            assert rows[(family + "_count", rest)] == counts[-1], family
            assert (family + "_sum", rest) in rows, family
            seen += 1
    assert seen > 5, "hardly a histogram"


def check_vllm(types, rows):
    def value(name):
        return [v for (n, _), v in rows.items() if n == name]

    for theirs, ours in (("num_requests_running", "requests_running"),
                         ("num_requests_waiting", "requests_queued"),
                         ("prompt_tokens_total", "prompt_tokens_total"),
                         ("generation_tokens_total", "completion_tokens_total"),
                         ("num_preemptions_total", "requests_preempted_total"),
                         ("prefix_cache_hits_total", "tokens_hit_total"),
                         ("time_to_first_token_seconds_count", "time_to_first_token_seconds_count"),
                         ("iteration_tokens_total_count", "iteration_tokens_count")):
        assert value("vllm:" + theirs) == value("kvasir_" + ours), theirs
    assert 0 <= value("vllm:kv_cache_usage_perc")[0] <= 1
    reasons = {v for (n, labels) in rows if n == "vllm:request_success_total"
               for k, v in labels if k == "finished_reason"}
    assert reasons == {"stop", "length", "abort", "error"}, reasons
    first = [dict(labels)["le"] for (n, labels) in rows
             if n == "vllm:time_to_first_token_seconds_bucket"]
    assert first == ["0.001", "0.005", "0.01", "0.02", "0.04", "0.06", "0.08", "0.1", "0.25", "0.5",
                     "0.75", "1", "2.5", "5", "7.5", "10", "20", "40", "80", "160", "640", "2560",
                     "+Inf"], first
    for name in ("e2e_request_latency_seconds", "inter_token_latency_seconds",
                 "request_queue_time_seconds", "request_generation_tokens", "kv_block_lifetime_seconds",
                 "kv_block_idle_before_evict_seconds", "kv_block_reuse_gap_seconds"):
        assert types["vllm:" + name] == "histogram", name


def main():
    types, rows = parse(open(sys.argv[1], encoding="utf-8").read())
    check_histograms(types, rows)
    for name in ("kvasir_doc_hits_total", "kvasir_tokens_hit_total", "kvasir_up"):
        assert (name, ()) in rows, name
    assert {"cold", "evicted"} <= {v for (n, labels) in rows if n == "kvasir_doc_misses_total"
                                   for k, v in labels if k == "reason"}
    for name in ("kvasir_tier_blocks", "kvasir_tier_blocks_docs", "kvasir_tier_documents",
                 "kvasir_tier_blocks_evicted_total"):
        assert {"device", "host"} == {v for (n, labels) in rows if n == name for k, v in labels
                                      if k == "tier"}, name
    assert any(n == "kvasir_worker_steps_total" for n, _ in rows), "no worker"
    if "--vllm" in sys.argv:
        check_vllm(types, rows)
    print(f"{len(types)} families, {len(rows)} rows")


main()
