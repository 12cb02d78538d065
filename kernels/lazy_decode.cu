/* SPDX-License-Identifier: Apache-2.0 */
// lazy_decode on a device, for every GPU from sm_80 on.
//
// Bound by: KV bytes, 4 * D a token and key/value head, read once.
// Split: attn_plan.h: a CTA takes one item (a run of keys of one sequence, over several segments
// where they are short) for one key/value head, so that one long request fills the device and short
// documents do not cost a CTA each.  The 16 packed rows hold the heads of a group; larger groups
// take more items.  The four warps share a tile's keys and merge through shared memory at the end.
// Core, rotation, numerics, shared memory: device/lazy_attn.cuh.
// Predicted and measured: kernels/README.md.
#include "kernels/attn_cuda.h"

#include "kernels/device/cuda_check.cuh"
#include "kernels/device/lazy_attn.cuh"

namespace {

constexpr uint32_t kRows = 16;

// Joins the four warps' shares of the 16 rows and writes the output, or a partial of it.
template <int D>
__device__ __forceinline__ void
merge_and_store(const attn_desc &desc, void *out, const attn_device_plan &plan,
                const attn_item &item, uint32_t head, uint8_t *shared, const RowState<D> &state)
{
    // [warp][row][D + 4]: the padding keeps rows on different banks.
    constexpr int kPitch = D + 4;
    const uint32_t G = desc.H / desc.layout.Hkv;
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
            s_ml[warp * kRows + row] = make_float2(state.m[h] * desc.scale, state.l[h]);
        }
    }
    __syncthreads();
    for (uint32_t row = warp; row < kRows && item.row_begin + row < G; row += kWarps) {
        const size_t q_head = head * G + item.row_begin + row;
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
        const bool is_direct = item.slot == ATTN_ITEM_DIRECT;
        const float f = l > 0.0f ? 1.0f / l : 0.0f;
        const size_t at =
            (size_t)(is_direct ? desc.seqs[item.seq].row_first : item.slot) * desc.H + q_head;
        for (int d = lane * 2; d < D; d += 64) {
            float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
            for (int w = 0; w < kWarps; w++) {
                float2 part = *(const float2 *)(s_o + (w * kRows + row) * kPitch + d);
                sum.x += weight[w] * part.x;
                sum.y += weight[w] * part.y;
            }
            if (is_direct) {
                ((uint32_t *)out)[(at * D + d) / 2] = pack_bf16(sum.x * f, sum.y * f);
            } else {
                *(float2 *)(plan.o + at * D + d) = sum;
            }
        }
        if (!is_direct && lane == 0) {
            ((float2 *)plan.ml)[at] = make_float2(m, l);
        }
    }
}

template <int D>
__global__ LAZY_ATTN_BOUNDS void
decode_kernel(const __grid_constant__ attn_desc desc, const void *q, void *out,
              const __grid_constant__ attn_device_plan plan)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    const attn_item item = plan.items[blockIdx.y];
    if (item.seq == ATTN_ITEM_NONE) {
        return;
    }
    const AttnTile tile = {item.seq, item.row_begin, blockIdx.x, item.key_begin, item.key_end};
    RowState<D> state;

    lazy_attn_run<D, 1>(desc, q, plan.angles, tile, shared, state);
    merge_and_store<D>(desc, out, plan, item, tile.head, shared, state);
}

template <int D>
enum status
launch(const attn_desc &desc, const void *q, void *out, const attn_device_plan &plan,
       cudaStream_t stream)
{
    const size_t shared_bytes = lazy_attn_shared_bytes(D);
    const dim3 grid(desc.layout.Hkv, plan.n_items);

    CU_TRY(cudaFuncSetAttribute(decode_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)shared_bytes));
    decode_kernel<D><<<grid, kThreads, shared_bytes, stream>>>(desc, q, out, plan);
    CU_TRY(cudaGetLastError());
    return ST_OK;
}

} // namespace

extern "C" enum status
lazy_decode_cuda(struct attn_desc desc, const void *q, void *out, struct attn_device_plan plan,
                 void *stream)
{
    if (desc.layout.id != KV_LAYOUT_CK8 || desc.layout.type != KV_BF16) {
        return ERR(ST_INVALID, "lazy_decode on a device: KV must be bf16 in the ck8 layout");
    }
    if (desc.H % desc.layout.Hkv != 0 || desc.layer >= desc.layout.L) {
        return ERR(ST_INVALID, "lazy_decode: %u heads over %u, layer %u of %u", desc.H,
                   desc.layout.Hkv, desc.layer, desc.layout.L);
    }
    if (plan.n_items == 0) {
        return ST_OK;
    }
    switch (desc.layout.D) {
    case 64: return launch<64>(desc, q, out, plan, (cudaStream_t)stream);
    case 128: return launch<128>(desc, q, out, plan, (cudaStream_t)stream);
    default: return ERR(ST_INVALID, "lazy_decode: head dimension %u", desc.layout.D);
    }
}
