/* SPDX-License-Identifier: Apache-2.0 */
// attn_merge on a device.
//
// Bound by bytes: (D + 2) * 4 a partial and head read once, D * 2 written; mostly from L2.
// Split: one warp for one row and head; each lane owns D/32 dims; weights of 32 partials at a time
// are computed by the lanes and handed round by shuffles, so the exps are not repeated.
#include "kernels/attn_merge.h"

#include "kernels/device/cuda_check.cuh"
#include "kernels/device/mma_sm80.cuh"

namespace {

constexpr int kWarps = 4;
constexpr float kLog2e = 1.4426950408889634f;

template <int D>
__global__ __launch_bounds__(kWarps * 32) void attn_merge_kernel(
    const __grid_constant__ attn_merge_args args)
{
    constexpr int kDims = D / 32;
    const uint32_t row = blockIdx.x;
    const uint32_t head = blockIdx.y * kWarps + (threadIdx.x >> 5);
    const int lane = threadIdx.x & 31;

    if (head >= args.H) {
        return;
    }
    const uint32_t first = args.partial_first[row];
    const uint32_t n = args.partial_first[row + 1] - first;
    const uint32_t out_row = args.row_ids == NULL ? row : args.row_ids[row];
    const float2 *ml = (const float2 *)args.ml + (size_t)first * args.H + head;
    const float *o = args.o + ((size_t)first * args.H + head) * D + lane * kDims;
    float high = -INFINITY;

    for (uint32_t i = lane; i < n; i += 32) {
        high = fmaxf(high, ml[(size_t)i * args.H].x);
    }
    for (int i = 16; i > 0; i /= 2) {
        high = fmaxf(high, __shfl_xor_sync(~0u, high, i));
    }
    float sum = 0.0f;
    float acc[kDims] = {};
    for (uint32_t base = 0; base < n; base += 32) {
        float weight = 0.0f;
        if (base + lane < n) {
            float2 part = ml[(size_t)(base + lane) * args.H];
            weight = part.x == -INFINITY ? 0.0f : exp2_approx((part.x - high) * kLog2e);
            sum += weight * part.y;
        }
        uint32_t here = min(n - base, 32u);
#pragma unroll 8
        for (uint32_t i = 0; i < here; i++) {
            float w = __shfl_sync(~0u, weight, i);
            const float *from = o + (size_t)(base + i) * args.H * D;
            for (int d = 0; d < kDims; d++) {
                acc[d] += w * from[d];
            }
        }
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
    case 64: attn_merge_kernel<64><<<grid, kWarps * 32, 0, (cudaStream_t)stream>>>(args); break;
    case 128: attn_merge_kernel<128><<<grid, kWarps * 32, 0, (cudaStream_t)stream>>>(args); break;
    default: return ERR(ST_INVALID, "attn_merge: head dimension %u", args.D);
    }
    CU_TRY(cudaGetLastError());
    return ST_OK;
}
