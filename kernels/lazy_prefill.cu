/* SPDX-License-Identifier: Apache-2.0 */
// lazy_prefill on a device, for every GPU from sm_80 on.
//
// Bound by: tensor cores for document encoding (causal, 4 * D flops a visible key and query head);
// by KV bytes for short queries over long documents.
// Split: attn_plan.h: a CTA takes one item (64 packed rows of a sequence against a run of its keys)
// for one key/value head; an item that is a whole row tile writes the output, a part of one writes
// a float32 partial that attn_merge joins.  Items come heaviest first.
// Core, rotation, numerics, shared memory: device/lazy_attn.cuh.
// Predicted and measured: kernels/README.md.
#include "kernels/attn_cuda.h"

#include "kernels/device/cuda_check.cuh"
#include "kernels/device/lazy_attn.cuh"

namespace {

template <int D>
__device__ __forceinline__ void
store_rows(const lazy_prefill_args &args, const attn_device_plan &plan, const attn_seq &seq,
           const attn_item &item, uint32_t head, const RowState<D> &state)
{
    const int lane = threadIdx.x & 31;
    const uint32_t G = args.desc.H / args.desc.layout.Hkv;

#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t r = item.row_begin + (threadIdx.x >> 5) * 16 + (lane >> 2) + h * 8;
        if (r >= seq.n_rows * G) {
            continue;
        }
        size_t q_head = head * G + r % G;
        if (item.slot == ATTN_ITEM_DIRECT) {
            size_t at = (size_t)(seq.row_first + r / G) * args.desc.H + q_head;
            float f = state.l[h] > 0.0f ? 1.0f / state.l[h] : 0.0f;
            uint32_t *out = (uint32_t *)args.out + at * (D / 2) + (lane & 3);
#pragma unroll
            for (int i = 0; i < D / 8; i++) {
                out[i * 4] = pack_bf16(state.o[i][h * 2] * f, state.o[i][h * 2 + 1] * f);
            }
        } else {
            size_t at = (item.slot + (size_t)(r / G) * item.slot_stride) * args.desc.H + q_head;
            float2 *o = (float2 *)(plan.o + at * D) + (lane & 3);
#pragma unroll
            for (int i = 0; i < D / 8; i++) {
                o[i * 4] = make_float2(state.o[i][h * 2], state.o[i][h * 2 + 1]);
            }
            if ((lane & 3) == 0) {
                ((float2 *)plan.ml)[at] = make_float2(state.m[h] * args.desc.scale, state.l[h]);
            }
        }
    }
}

template <int D>
__global__ LAZY_ATTN_BOUNDS void
prefill_kernel(const __grid_constant__ lazy_prefill_args args,
               const __grid_constant__ attn_device_plan plan)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    const uint32_t head = blockIdx.x % args.desc.layout.Hkv;
    const attn_item item = plan.items[blockIdx.x / args.desc.layout.Hkv];
    if (item.seq == ATTN_ITEM_NONE) {
        return;
    }
    const AttnTile tile = {item.seq, item.row_begin, head, item.key_begin, item.key_end};
    RowState<D> state;

    lazy_attn_run<D, 4>(args.desc, args.q, plan.angles, tile, shared, state);
    store_rows<D>(args, plan, args.desc.seqs[item.seq], item, tile.head, state);
}

template <int D>
enum status
launch(const lazy_prefill_args &args, const attn_device_plan &plan, cudaStream_t stream)
{
    const size_t shared_bytes = lazy_attn_shared_bytes(D);
    // All heads of the heaviest item first; in x alone, since y ends at 65,535.
    const dim3 grid(args.desc.layout.Hkv * plan.n_items);

    CU_TRY(cudaFuncSetAttribute(prefill_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)shared_bytes));
    prefill_kernel<D><<<grid, kThreads, shared_bytes, stream>>>(args, plan);
    CU_TRY(cudaGetLastError());
    return ST_OK;
}

} // namespace

extern "C" enum status
lazy_prefill_cuda(struct lazy_prefill_args args, struct attn_device_plan plan, void *stream)
{
    if (args.desc.layout.id != KV_LAYOUT_CK8 || args.desc.layout.type != KV_BF16) {
        return ERR(ST_INVALID, "lazy_prefill on a device: KV must be bf16 in the ck8 layout");
    }
    if (args.desc.H % args.desc.layout.Hkv != 0 || args.desc.layer >= args.desc.layout.L) {
        return ERR(ST_INVALID, "lazy_prefill: %u heads over %u, layer %u of %u", args.desc.H,
                   args.desc.layout.Hkv, args.desc.layer, args.desc.layout.L);
    }
    if (plan.n_items == 0) {
        return ST_OK;
    }
    switch (args.desc.layout.D) {
    case 64: return launch<64>(args, plan, (cudaStream_t)stream);
    case 128: return launch<128>(args, plan, (cudaStream_t)stream);
    default: return ERR(ST_INVALID, "lazy_prefill: head dimension %u", args.desc.layout.D);
    }
}
