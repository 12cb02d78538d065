#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Other engines' attention at Llama-3.1-8B's shape, per layer, for the tables of bench/results.

    attention.py [H/HKV/D] [decode] [prefill]      default: 32/8/128, both

PyTorch's SDPA (cuDNN and flash back ends) and, where it is installed, FlashAttention-3 (the fa3-fwd
wheel, contiguous and paged, where it is built for that) and FlashInfer (its decode by tensor cores,
paged; the module that it compiles at its first use can be carried in flashinfer/data/aot).  One row a
shape and engine: microseconds, and GB/s of KV or TFLOP/s.
Random bf16 data; caches rotate so that L2 is cold; CUDA graphs; engines take turns, the median of
ROUNDS counts.  A variant that does not run is left out and named.
"""
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

try:
    from fa3_fwd_interface import flash_attn_func, flash_attn_with_kvcache
except ImportError:
    flash_attn_func = flash_attn_with_kvcache = None

try:
    import flashinfer
except ImportError as error:
    print(f"no flashinfer: {error}")
    flashinfer = None

ROUNDS = 9
H, HKV, D = 32, 8, 128
G = H // HKV
COLD_BYTES = 400 << 20


def graph_of(calls):
    """A graph of all calls, which are of different memory."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def measure(variants):
    """variants: {name: [call, ...]}; returns {name: microseconds a call}."""
    graphs, times = {}, {}
    for name, calls in variants.items():
        try:
            graphs[name] = graph_of(calls)
            times[name] = []
        except (RuntimeError, TypeError, ValueError) as error:
            print(f"    {name} does not run: {str(error).splitlines()[0][:90]}")
            torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / len(variants[name]))
    return {name: statistics.median(t) for name, t in times.items()}


def sdpa(backend, q, k, v, causal=False):
    def call():
        with sdpa_kernel(backend):
            F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
    return call


def random(*shape):
    return torch.rand(*shape, device="cuda", dtype=torch.bfloat16) * 4 - 2


def caches(batch, tokens):
    """Copies of a cache [B, tokens, Hkv, D] x 2, enough of them to be cold."""
    one = batch * tokens * HKV * D * 2 * 2
    n = max(2, min(8, COLD_BYTES // one + 1))
    return [(random(batch, tokens, HKV, D), random(batch, tokens, HKV, D)) for _ in range(n)]


def page_pools(batch, tokens, page):
    """Caches in pages [pages, 2, page, Hkv, D], and the pages of each request, in no order."""
    pages = (tokens + page - 1) // page
    one = batch * pages * page * HKV * D * 2 * 2
    pools = [random(batch * pages, 2, page, HKV, D) for _ in range(max(2, min(8, COLD_BYTES // one + 1)))]
    return pools, torch.randperm(batch * pages, device="cuda").to(torch.int32).view(batch, pages)


def flashinfer_paged(batch, tokens, page, q):
    pools, table = page_pools(batch, tokens, page)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        torch.empty(256 << 20, dtype=torch.uint8, device="cuda"), "NHD", use_tensor_cores=True, backend="fa2")
    wrapper.plan(torch.arange(batch + 1, dtype=torch.int32, device="cuda") * table.shape[1], table.flatten(),
                 torch.full((batch,), (tokens - 1) % page + 1, dtype=torch.int32, device="cuda"),
                 H, HKV, D, page, q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16)
    return [lambda pool=pool: wrapper.run(q[:, 0], pool) for pool in pools]


def fa3_paged(batch, tokens, page, splits, q):
    pools, table = page_pools(batch, tokens, page)
    lens = torch.full((batch,), tokens, dtype=torch.int32, device="cuda")
    return [lambda pool=pool: flash_attn_with_kvcache(q, pool[:, 0], pool[:, 1], cache_seqlens=lens, page_table=table,
                                                      num_splits=splits) for pool in pools]


def over_cache(batch, rows, tokens):
    """rows new tokens a request, not causal among themselves, over a cache."""
    pairs = caches(batch, tokens)
    q = random(batch, rows, H, D)
    # A group's heads as rows of their kv head: what cuDNN is fastest with.
    packed = q.view(batch, rows, HKV, G, D).permute(0, 2, 1, 3, 4).reshape(batch, HKV, rows * G, D).contiguous()
    heads_first = [(k.transpose(1, 2), v.transpose(1, 2)) for k, v in pairs]
    variants = {
        "sdpa cudnn": [sdpa(SDPBackend.CUDNN_ATTENTION, packed, k, v) for k, v in heads_first],
        "sdpa flash": [sdpa(SDPBackend.FLASH_ATTENTION, packed, k, v) for k, v in heads_first],
        "sdpa cudnn gqa": [sdpa(SDPBackend.CUDNN_ATTENTION, q.transpose(1, 2), k, v) for k, v in heads_first],
    }
    if flash_attn_with_kvcache is not None:
        lens = torch.full((batch,), tokens, dtype=torch.int32, device="cuda")
        for splits in (0, 1, 2, 4, 16):
            variants[f"fa3 s{splits}"] = [
                lambda k=k, v=v, s=splits: flash_attn_with_kvcache(q, k, v, cache_seqlens=lens, num_splits=s)
                for k, v in pairs]
    for page in (16, 64) if rows == 1 else ():
        if flash_attn_with_kvcache is not None:
            for splits in (0, 1, 16):
                variants[f"fa3 p{page} s{splits}"] = fa3_paged(batch, tokens, page, splits, q)
        if flashinfer is not None:
            try:
                variants[f"flashinfer p{page}"] = flashinfer_paged(batch, tokens, page, q)
            except Exception as error:  # no compiler, or another device
                print(f"    flashinfer p{page} does not run: {str(error).splitlines()[0][:90]}")
    return measure(variants)


def best_of(times):
    """The fastest of the split counts of each engine."""
    best = {}
    for name, us in times.items():
        engine = name.rsplit(" s", 1)[0] if " s" in name and name[-1].isdigit() else name
        if engine not in best or us < best[engine]:
            best[engine] = us
    return best


def decode():
    for batch, tokens in ((1, 20544), (8, 20544), (32, 20544), (1, 1088), (1, 4160), (8, 1088), (32, 1088), (128, 4160)):
        torch.cuda.empty_cache()
        row = [f"{name} {us:.1f} us ({batch * tokens * HKV * D * 4 / us / 1e3:.0f} GB/s)"
               for name, us in best_of(over_cache(batch, 1, tokens)).items()]
        print(f"peer decode b={batch} x {tokens}: " + ", ".join(row), flush=True)


def prefill():
    for rows in (16, 64, 128, 512):
        torch.cuda.empty_cache()
        flops = 4 * rows * 20480 * H * D
        row = [f"{name} {us:.1f} us ({flops / us / 1e6:.0f} TFLOP/s)"
               for name, us in best_of(over_cache(1, rows, 20480)).items()]
        print(f"peer query {rows} x 20480: " + ", ".join(row), flush=True)
    for batch, tokens in ((1, 512), (1, 1024), (1, 4096), (1, 16384), (32, 512), (16, 1024), (4, 4096)):
        torch.cuda.empty_cache()
        sets = [tuple(random(batch, tokens, n, D) for n in (H, HKV, HKV)) for _ in range(4)]
        variants = {"sdpa cudnn": [sdpa(SDPBackend.CUDNN_ATTENTION, *(x.transpose(1, 2) for x in s), causal=True)
                                   for s in sets]}
        if flash_attn_func is not None:
            variants["fa3"] = [lambda s=s: flash_attn_func(*s, causal=True) for s in sets]
        flops = 2 * batch * tokens * tokens * H * D
        row = [f"{name} {us:.1f} us ({flops / us / 1e6:.0f} TFLOP/s)" for name, us in measure(variants).items()]
        print(f"peer causal {batch} x {tokens}: " + ", ".join(row), flush=True)


if __name__ == "__main__":
    print(f"torch {torch.__version__}, fa3 {'yes' if flash_attn_func else 'not installed'}, "
          f"flashinfer {flashinfer.__version__ if flashinfer else 'not installed'}")
    wanted = sys.argv[1:]
    if wanted and "/" in wanted[0]:
        H, HKV, D = map(int, wanted.pop(0).split("/"))
        G = H // HKV
    with torch.inference_mode():
        for part in wanted or ["decode", "prefill"]:
            {"decode": decode, "prefill": prefill}[part]()
