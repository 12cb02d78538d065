/* SPDX-License-Identifier: Apache-2.0 */
// lazy_decode on a device, for every GPU from sm_80 on.
//
// Bound by: KV bytes, 4 * D a token and key/value head, read once.
// Split: one CTA for one partial (at most LAZY_DECODE_CHUNK keys of one segment of one sequence)
// and one key/value head, so that one long request fills the device and a partial never depends on
// the batch. The 16 packed rows hold the heads of a group; groups over 16 heads take several CTAs
// in z. The four warps share a tile's keys and merge through shared memory at the end.
// Core, rotation, numerics, shared memory: device/lazy_attn.cuh.
// Predicted and measured: kernels/README.md.
#include "kernels/attn_cuda.h"

#include "kernels/device/cuda_check.cuh"
#include "kernels/device/lazy_attn.cuh"

namespace {

constexpr uint32_t kRows = 16;

struct Partial {
    uint32_t seq;
    uint32_t key_begin, key_end; // in the concatenation of the sequence's segments
};

__device__ __forceinline__ Partial
find_partial(const lazy_decode_args &args, uint32_t index)
{
    uint32_t low = 0;
    uint32_t high = args.desc.n_seqs;

    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (__ldg(args.partial_first + middle) <= index) {
            low = middle;
        } else {
            high = middle;
        }
    }
    const attn_seq &seq = args.desc.seqs[low];
    uint32_t left = index - __ldg(args.partial_first + low);
    uint32_t key = 0;
    for (uint32_t s = 0; s < seq.n_segs; s++) {
        uint32_t n_tokens = args.desc.segs[seq.seg_first + s].n_tokens;
        uint32_t chunks = (n_tokens + LAZY_DECODE_CHUNK - 1) / LAZY_DECODE_CHUNK;
        if (left < chunks) {
            uint32_t first = left * LAZY_DECODE_CHUNK;
            return {low, key + first, key + min(first + LAZY_DECODE_CHUNK, n_tokens)};
        }
        left -= chunks;
        key += n_tokens;
    }
    return {low, 0, 0};
}

// Joins the four warps' shares of the 16 rows and writes the partial.
template <int D>
__device__ __forceinline__ void
merge_and_store(const lazy_decode_args &args, uint32_t index, uint32_t head, uint32_t row_begin,
                uint8_t *shared, const RowState<D> &state)
{
    // [warp][row][D + 4]: the padding keeps rows on different banks.
    constexpr int kPitch = D + 4;
    const uint32_t G = args.desc.H / args.desc.layout.Hkv;
    const int warp = threadIdx.x >> 5;
    const int lane = threadIdx.x & 31;
    float *s_o = (float *)shared;
    float2 *s_ml = (float2 *)(s_o + kWarps * kRows * kPitch);
    static_assert((kWarps * kRows * kPitch * 4 + kWarps * kRows * 8)
                      <= kStages * kTileTokens * D * 4,
                  "the merge fits into the ring it reuses");

    __syncthreads(); // all warps are done with the ring
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = (lane >> 2) + h * 8;
        float *o = s_o + (warp * kRows + row) * kPitch + (lane & 3) * 2;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            *(float2 *)(o + i * 8) = make_float2(state.o[i][h * 2], state.o[i][h * 2 + 1]);
        }
        if ((lane & 3) == 0) {
            s_ml[warp * kRows + row] = make_float2(state.m[h] * args.desc.scale, state.l[h]);
        }
    }
    __syncthreads();
    for (uint32_t row = warp; row < kRows && row_begin + row < G; row += kWarps) {
        size_t at = (size_t)index * args.desc.H + head * G + row_begin + row;
        float m = -INFINITY;
        float l = 0.0f;
        float weight[kWarps];

#pragma unroll
        for (int w = 0; w < kWarps; w++) {
            m = fmaxf(m, s_ml[w * kRows + row].x);
        }
#pragma unroll
        for (int w = 0; w < kWarps; w++) {
            float2 part = s_ml[w * kRows + row];
            weight[w] = part.x == -INFINITY ? 0.0f : exp2_approx((part.x - m) * kLog2e);
            l += weight[w] * part.y;
        }
        for (int d = lane; d < D; d += 32) {
            float sum = 0.0f;
#pragma unroll
            for (int w = 0; w < kWarps; w++) {
                sum += weight[w] * s_o[(w * kRows + row) * kPitch + d];
            }
            args.o[at * D + d] = sum;
        }
        if (lane == 0) {
            ((float2 *)args.ml)[at] = make_float2(m, l);
        }
    }
}

template <int D>
__global__ __launch_bounds__(kThreads,
                             2) void decode_kernel(const __grid_constant__ lazy_decode_args args,
                                                   const __grid_constant__ attn_angles angles)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    const Partial partial = find_partial(args, blockIdx.x);
    const AttnTile tile = {partial.seq, blockIdx.z * kRows, blockIdx.y, partial.key_begin,
                           partial.key_end};
    RowState<D> state;

    lazy_attn_run<D, 1>(args.desc, args.q, angles, tile, shared, state);
    merge_and_store<D>(args, blockIdx.x, blockIdx.y, tile.row_begin, shared, state);
}

template <int D>
enum status
launch(const lazy_decode_args &args, const attn_angles &angles, cudaStream_t stream)
{
    const size_t shared_bytes = lazy_attn_shared_bytes(D);
    const uint32_t G = args.desc.H / args.desc.layout.Hkv;
    const dim3 grid(args.n_partials, args.desc.layout.Hkv, (G + kRows - 1) / kRows);

    CU_TRY(cudaFuncSetAttribute(decode_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)shared_bytes));
    decode_kernel<D><<<grid, kThreads, shared_bytes, stream>>>(args, angles);
    CU_TRY(cudaGetLastError());
    return ST_OK;
}

} // namespace

extern "C" enum status
lazy_decode_cuda(struct lazy_decode_args args, struct attn_angles angles, void *stream)
{
    if (args.desc.layout.id != KV_LAYOUT_CK8 || args.desc.layout.type != KV_BF16) {
        return ERR(ST_INVALID, "lazy_decode on a device: KV must be bf16 in the ck8 layout");
    }
    if (args.desc.H % args.desc.layout.Hkv != 0 || args.desc.layer >= args.desc.layout.L) {
        return ERR(ST_INVALID, "lazy_decode: %u heads over %u, layer %u of %u", args.desc.H,
                   args.desc.layout.Hkv, args.desc.layer, args.desc.layout.L);
    }
    if (args.n_partials == 0) {
        return ST_OK;
    }
    switch (args.desc.layout.D) {
    case 64: return launch<64>(args, angles, (cudaStream_t)stream);
    case 128: return launch<128>(args, angles, (cudaStream_t)stream);
    default: return ERR(ST_INVALID, "lazy_decode: head dimension %u", args.desc.layout.D);
    }
}
