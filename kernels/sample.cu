/* SPDX-License-Identifier: Apache-2.0 */
// sample on a device: no sort of the vocabulary.
//
// Bound by latency: a row is V * 4 bytes, read from L2 a few times by one CTA.
// Split: one CTA a row.  Greedy needs two passes (penalty; maximum and log-sum).  top_k, top_p and
// the draw itself are the same question, "which key, in falling order of logit, makes the running
// sum pass a target?", with a weight of 1 or of the probability; it is answered by a radix select
// over the 52-bit key (logit, id): at most seven passes with a histogram of 256 sums in shared
// memory.  The draw without filters asks it over ids alone, three passes.
// Numerics: probabilities relative to the best one as integers of 2^-32, so sums are exact and do
// not depend on the order of the atomics: the same row gives the same token on every run.  log-sum
// in float64 over expf, the maximum exact.  Against the twin a draw can differ only where u lands
// within rounding of a boundary.
// A row with a NaN or +inf logit, or with nothing but -inf, gives id SAMPLE_REFUSED.
#include "kernels/sample.h"

#include "kernels/device/cuda_check.cuh"
#include "kernels/philox.h"

namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kIdBits = 20;
constexpr double kOne = 4294967295.0; // weight of the best id

struct Shared {
    unsigned long long histogram[256];
    unsigned long long sum;
    float warp_max[kWarps];
    uint32_t warp_id[kWarps];
    double warp_sum[kWarps];
    uint32_t best;
    float high;
    double log_sum;
    uint32_t digit;
    unsigned long long before;
    int is_bad;
};

struct Row {
    float *logit;     // [V] after the penalty
    uint32_t *weight; // [V] exp((logit - best) / temperature) in 2^-32
    uint32_t V;
};

// use(id, logit) for this thread's share of a row, in rising order; four ids at once and several
// loads in flight: a pass over a row is one chain of latencies after the other.
template <typename Use>
__device__ __forceinline__ void
for_each_logit(const Row &row, Use use)
{
    if (row.V % 4 != 0) {
        for (uint32_t v = threadIdx.x; v < row.V; v += kThreads) {
            use(v, row.logit[v]);
        }
        return;
    }
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < row.V / 4; i += kThreads) {
        float4 x = ((const float4 *)row.logit)[i];

        use(i * 4, x.x);
        use(i * 4 + 1, x.y);
        use(i * 4 + 2, x.z);
        use(i * 4 + 3, x.w);
    }
}

// Larger logit first, then lower id: ascending keys are the order of the candidates.
__device__ __forceinline__ uint64_t
key_of(float logit, uint32_t id)
{
    uint32_t bits = __float_as_uint(logit + 0.0f); // -0 becomes 0
    uint32_t rising = bits & 0x80000000u ? ~bits : bits | 0x80000000u;

    return (uint64_t)(~rising) << kIdBits | id;
}

__device__ __forceinline__ unsigned long long
block_sum(unsigned long long x, Shared &s)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        s.sum = 0;
    }
    __syncthreads();
    for (int i = 16; i > 0; i /= 2) {
        x += __shfl_xor_sync(~0u, x, i);
    }
    if ((threadIdx.x & 31) == 0) {
        atomicAdd(&s.sum, x);
    }
    __syncthreads();
    return s.sum;
}

// Copies the logits, applies the penalty once an id, looks for what cannot be sampled.
__device__ __noinline__ void
load_logits(const float *logits, const sample_params &p, const Row &row, Shared &s)
{
    if (threadIdx.x == 0) {
        s.is_bad = 0;
    }
    __syncthreads();
    bool is_bad = false;
    auto look = [&](float x) { is_bad = is_bad || isnan(x) || x == INFINITY; };

    if (row.V % 4 == 0) {
#pragma unroll 2
        for (uint32_t i = threadIdx.x; i < row.V / 4; i += kThreads) {
            float4 x = __ldg((const float4 *)logits + i);

            look(x.x);
            look(x.y);
            look(x.z);
            look(x.w);
            ((float4 *)row.logit)[i] = x;
        }
    } else {
        for (uint32_t v = threadIdx.x; v < row.V; v += kThreads) {
            look(__ldg(logits + v));
            row.logit[v] = __ldg(logits + v);
        }
    }
    if (is_bad) {
        s.is_bad = 1;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < p.n_history; i += kThreads) {
        uint32_t id = p.history[i];
        if (id < row.V) {
            float x = __ldg(logits + id); // from the original: an id listed twice is penalised once
            float y = x > 0.0f ? x / p.repetition_penalty : x * p.repetition_penalty;
            if (y == INFINITY) {
                s.is_bad = 1;
            }
            row.logit[id] = y;
        }
    }
    __syncthreads();
}

// What is added to single logits, and who may not come.  A function of its own: inlined it spills.
__device__ __noinline__ void
adjust_logits(const sample_params &p, const Row &row, Shared &s)
{
    for (uint32_t i = threadIdx.x; i < p.n_adjusts; i += kThreads) {
        sample_adjust a = p.adjusts[i]; // each id once: no two threads meet
        if (a.id < row.V) {
            float y = row.logit[a.id] + a.delta;
            if (!(a.delta < INFINITY) || y == INFINITY) {
                s.is_bad = 1;
            }
            row.logit[a.id] = y;
        }
    }
    __syncthreads();
    if (p.allowed != nullptr) {
        for (uint32_t v = threadIdx.x; v < row.V; v += kThreads) {
            if ((__ldg(p.allowed + v / 32) >> (v % 32) & 1) == 0) {
                row.logit[v] = -INFINITY;
            }
        }
        __syncthreads();
    }
}

// The best id (ties to the lowest) and the log of the sum of exp(logit).  Inlined it spills.
__device__ __noinline__ void
find_best(const Row &row, Shared &s)
{
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    float high = -INFINITY;
    uint32_t best = 0;

    for_each_logit(row, [&](uint32_t v, float x) {
        if (x > high) {
            high = x;
            best = v;
        }
    });
    for (int i = 16; i > 0; i /= 2) {
        float other = __shfl_xor_sync(~0u, high, i);
        uint32_t id = __shfl_xor_sync(~0u, best, i);
        if (other > high || (other == high && id < best)) {
            high = other;
            best = id;
        }
    }
    if (lane == 0) {
        s.warp_max[warp] = high;
        s.warp_id[warp] = best;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < kWarps; w++) {
            if (s.warp_max[w] > high || (s.warp_max[w] == high && s.warp_id[w] < best)) {
                high = s.warp_max[w];
                best = s.warp_id[w];
            }
        }
        s.high = high;
        s.best = best;
    }
    __syncthreads();
    double sum = 0.0;
    const float most = s.high;
    for_each_logit(row, [&](uint32_t, float x) { sum += expf(x - most); });
    for (int i = 16; i > 0; i /= 2) {
        sum += __shfl_xor_sync(~0u, sum, i);
    }
    if (lane == 0) {
        s.warp_sum[warp] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0.0;
        for (int w = 0; w < kWarps; w++) {
            sum += s.warp_sum[w];
        }
        s.log_sum = s.high + log(sum);
    }
    __syncthreads();
}

enum Measure {
    kCount,
    kMass
};

// The first key at which the running sum over keys <= limit reaches `target` (>= 1).  With kMass
// the sum is of weights, of which the ids below `weight_min` count nothing.
template <Measure kMeasure, bool kById>
__device__ uint64_t
select_key(const Row &row, uint64_t limit, uint32_t weight_min, unsigned long long target,
           Shared &s)
{
    uint64_t prefix = 0;

    for (int shift = kById ? 16 : 48; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += kThreads) {
            s.histogram[i] = 0;
        }
        __syncthreads();
        for (uint32_t v = threadIdx.x; v < row.V; v += kThreads) {
            uint64_t order = key_of(row.logit[v], v);
            uint64_t key = kById ? v : order;
            if (order <= limit && key >> (shift + 8) == prefix >> (shift + 8)) {
                uint32_t w = row.weight[v];
                unsigned long long x = kMeasure == kCount ? 1 : (w >= weight_min ? w : 0);
                if (x != 0) {
                    atomicAdd(&s.histogram[key >> shift & 255], x);
                }
            }
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            unsigned long long before = 0;
            uint32_t digit = 0;
            while (digit < 255 && before + s.histogram[digit] < target) {
                before += s.histogram[digit];
                digit++;
            }
            s.digit = digit;
            s.before = before;
        }
        __syncthreads();
        prefix |= (uint64_t)s.digit << shift;
        target -= s.before;
        __syncthreads();
    }
    return prefix;
}

__device__ unsigned long long
mass_up_to(const Row &row, uint64_t limit, uint32_t weight_min, Shared &s)
{
    unsigned long long sum = 0;

    for (uint32_t v = threadIdx.x; v < row.V; v += kThreads) {
        uint32_t w = row.weight[v];
        if (key_of(row.logit[v], v) <= limit && w >= weight_min) {
            sum += w;
        }
    }
    return block_sum(sum, s);
}

__device__ __forceinline__ unsigned long long
target_of(double share, unsigned long long total)
{
    unsigned long long target = (unsigned long long)(share * (double)total) + 1;
    return target > total ? total : target;
}

__device__ uint32_t
draw(const Row &row, const sample_params &p, Shared &s)
{
    const double u = philox_uniform(p.seed, p.counter);
    uint64_t limit = ~0ull;
    uint32_t weight_min = 1;

    for (uint32_t v = threadIdx.x; v < row.V; v += kThreads) {
        row.weight[v] =
            (uint32_t)(exp((double)(row.logit[v] - s.high) / (double)p.temperature) * kOne + 0.5);
    }
    __syncthreads();
    const bool has_k = p.top_k > 0 && p.top_k < row.V;
    if (!has_k && p.top_p >= 1.0f && p.min_p <= 0.0f) {
        unsigned long long total = mass_up_to(row, limit, weight_min, s);
        return (uint32_t)select_key<kMass, true>(row, limit, weight_min, target_of(u, total), s);
    }
    if (has_k) {
        limit = select_key<kCount, false>(row, limit, 0, p.top_k, s);
    }
    if (p.top_p < 1.0f) {
        double total = (double)mass_up_to(row, limit, weight_min, s);
        unsigned long long target = (unsigned long long)ceil((double)p.top_p * total);
        limit = select_key<kMass, false>(row, limit, weight_min, target < 1 ? 1 : target, s);
    }
    if (p.min_p > 0.0f) {
        weight_min = max(1u, (uint32_t)((double)p.min_p * kOne));
    }
    unsigned long long kept = mass_up_to(row, limit, weight_min, s);
    uint64_t key = select_key<kMass, false>(row, limit, weight_min, target_of(u, kept), s);
    return (uint32_t)(key & ((1u << kIdBits) - 1));
}

// The n best, best first: n rounds of "the best key after the last one".  n is 20 at most.
__device__ void
find_top(const Row &row, uint32_t n, sample_result *result, Shared &s)
{
    uint64_t last = 0;
    bool is_first = true;
    uint32_t found = 0;

    for (; found < min(n, row.V); found++) {
        uint64_t best = ~0ull;
        for (uint32_t v = threadIdx.x; v < row.V; v += kThreads) {
            uint64_t key = key_of(row.logit[v], v);
            if ((is_first || key > last) && key < best) {
                best = key;
            }
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            s.sum = ~0ull;
        }
        __syncthreads();
        atomicMin(&s.sum, (unsigned long long)best);
        __syncthreads();
        last = s.sum;
        is_first = false;
        if (threadIdx.x == 0) {
            uint32_t id = (uint32_t)(last & ((1u << kIdBits) - 1));
            result->top_ids[found] = id;
            result->top_logprobs[found] = (float)(row.logit[id] - s.log_sum);
        }
    }
    if (threadIdx.x == 0) {
        result->n_top = found;
    }
}

__global__ __launch_bounds__(kThreads) void sample_kernel(const __grid_constant__ sample_args args)
{
    __shared__ Shared s;
    const uint32_t r = blockIdx.x;
    const sample_params &p = args.params[r];
    sample_result *result = &args.results[r];
    float *space = args.workspace + (size_t)r * args.V * 2;
    const Row row = {space, (uint32_t *)(space + args.V), args.V};

    load_logits(args.logits + (size_t)r * args.V, p, row, s);
    if (p.n_adjusts > 0 || p.allowed != nullptr) {
        adjust_logits(p, row, s);
    }
    find_best(row, s);
    if (s.is_bad || s.high == -INFINITY) {
        if (threadIdx.x == 0) {
            result->id = SAMPLE_REFUSED;
            result->n_top = 0;
        }
        return;
    }
    uint32_t id = p.temperature > 0.0f ? draw(row, p, s) : s.best;
    if (threadIdx.x == 0) {
        result->id = id;
        result->logprob = (float)(row.logit[id] - s.log_sum);
    }
    find_top(row, p.n_logprobs, result, s);
}

} // namespace

extern "C" enum status
sample_cuda(struct sample_args args, void *stream)
{
    if (args.V == 0 || args.V > 1u << kIdBits) {
        return ERR(ST_INVALID, "a vocabulary of %u ids, limit %u", args.V, 1u << kIdBits);
    }
    if (args.R == 0) {
        return ST_OK;
    }
    sample_kernel<<<args.R, kThreads, 0, (cudaStream_t)stream>>>(args);
    CU_TRY(cudaGetLastError());
    return ST_OK;
}
