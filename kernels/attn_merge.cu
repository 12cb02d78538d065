/* SPDX-License-Identifier: Apache-2.0 */
// attn_merge on a device.
//
// Bound by bytes: (D + 2) * 4 a partial and head read once, D * 2 written; mostly from L2.
// Split: one warp for one row and head; each lane owns D/32 dims; weights of 32 partials at a time
// are computed by the lanes and handed round by shuffles, so the exps are not repeated.
// What counts is latency: the outputs of 16 partials are on their way before the first weight is
// known, and the launch overlaps the end of the kernel before.
#include "kernels/attn_merge.h"

#include "kernels/device/launch.cuh"
#include "kernels/device/mma_sm80.cuh"

namespace {

constexpr int kWarps = 4;
constexpr float kLog2e = 1.4426950408889634f;

constexpr uint32_t kAtOnce = 16;

template <int kDims>
struct Dims;
template <>
struct Dims<2> {
    using Vector = float2;
};
template <>
struct Dims<4> {
    using Vector = float4;
};

// Up to kAtOnce outputs of partials, one after the other.
template <int D>
struct Outputs {
    using Vector = typename Dims<D / 32>::Vector;
    Vector o[kAtOnce];

    __device__ __forceinline__ void load(const float *from, size_t stride, uint32_t n)
    {
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; i++) {
            if (i < n) {
                o[i] = *(const Vector *)(from + i * stride);
            }
        }
    }

    // acc += weight of lane base + i times output i.
    __device__ __forceinline__ void add(float (&acc)[D / 32], float weight, uint32_t base,
                                        uint32_t n) const
    {
#pragma unroll
        for (uint32_t i = 0; i < kAtOnce; i++) {
            float w = __shfl_sync(~0u, weight, base + i);
            if (i < n) {
                const float *x = (const float *)&o[i];
#pragma unroll
                for (int d = 0; d < D / 32; d++) {
                    acc[d] += w * x[d];
                }
            }
        }
    }
};

template <int D>
__global__ __launch_bounds__(kWarps * 32) void attn_merge_kernel(
    const __grid_constant__ attn_merge_args args)
{
    constexpr int kDims = D / 32;
    const uint32_t row = blockIdx.x;
    const uint32_t head = blockIdx.y * kWarps + (threadIdx.x >> 5);
    const uint32_t lane = threadIdx.x & 31;
    const uint32_t first = args.partial_first[row];
    const uint32_t n = args.partial_first[row + 1] - first;
    const uint32_t out_row = args.row_ids == NULL ? row : args.row_ids[row];
    const float2 *ml = (const float2 *)args.ml + (size_t)first * args.H + head;
    const float *o = args.o + ((size_t)first * args.H + head) * D + lane * kDims;
    const size_t stride = (size_t)args.H * D;
    Outputs<D> outputs;
    float high = -INFINITY;

    wait_for_previous();
    if (head >= args.H) {
        return;
    }
    outputs.load(o, stride, min(n, kAtOnce));
    for (uint32_t i = lane; i < n; i += 32) {
        high = fmaxf(high, ml[(size_t)i * args.H].x);
    }
    for (int i = 16; i > 0; i /= 2) {
        high = fmaxf(high, __shfl_xor_sync(~0u, high, i));
    }
    float sum = 0.0f;
    float acc[kDims] = {};
    float weight = 0.0f;
    for (uint32_t base = 0; base < n; base += kAtOnce) {
        if (base % 32 == 0) {
            weight = 0.0f;
            if (base + lane < n) {
                float2 part = ml[(size_t)(base + lane) * args.H];
                weight = part.x == -INFINITY ? 0.0f : exp2_approx((part.x - high) * kLog2e);
                sum += weight * part.y;
            }
        }
        if (base > 0) {
            outputs.load(o + base * stride, stride, min(n - base, kAtOnce));
        }
        outputs.add(acc, weight, base % 32, min(n - base, kAtOnce));
    }
    for (int i = 16; i > 0; i /= 2) {
        sum += __shfl_xor_sync(~0u, sum, i);
    }
    const float f = sum > 0.0f ? 1.0f / sum : 0.0f;
    uint32_t *out =
        (uint32_t *)args.out + (((size_t)out_row * args.H + head) * D + lane * kDims) / 2;
    for (int d = 0; d < kDims; d += 2) {
        out[d / 2] = pack_bf16(acc[d] * f, acc[d + 1] * f);
    }
}

} // namespace

extern "C" enum status
attn_merge_cuda(struct attn_merge_args args, void *stream)
{
    const dim3 grid(args.n_rows, (args.H + kWarps - 1) / kWarps);

    if (args.n_rows == 0) {
        return ST_OK;
    }
    switch (args.D) {
    case 64:
        return launch_early(attn_merge_kernel<64>, grid, kWarps * 32, 0, (cudaStream_t)stream,
                            args);
    case 128:
        return launch_early(attn_merge_kernel<128>, grid, kWarps * 32, 0, (cudaStream_t)stream,
                            args);
    default: return ERR(ST_INVALID, "attn_merge: head dimension %u", args.D);
    }
}
