/* SPDX-License-Identifier: Apache-2.0 */
// lazy_decode on sm_90, with documents that several requests cite read once.
//
// Bound by: KV bytes, 4 * D a token and kv head, read once for all requests of a step.
// Split: decode_plan.h.  A persistent CTA takes units from the plan, its own first, then whatever
// is left; a kernel for each kind of tile (device/decode_rows16.cuh, decode_rows64.cuh) on the same
// machinery (device/decode_ring.cuh).  The kernels of a step overlap by programmatic launch: the
// first one's documents are on their way before the kernel ahead of it ends.
// Shared memory, D = 128: 115 KB (rows16, rows64), 213 KB (rows16 alone), 230 KB (rows128).
// Numerics: as in device/lazy_attn.cuh; a row's result does not depend on the rows beside it.
// Predicted, measured, dropped: kernels/README.md.
#include "kernels/attn_cuda.h"

#include "kernels/device/cuda_check.cuh"
#include "kernels/device/decode_rows16.cuh"
#include "kernels/device/decode_rows64.cuh"

namespace {

constexpr int kJoinWarps = 4;
constexpr uint32_t kCounterLayers = 64; // launches of one kind that may overlap are far fewer

// The join as a kernel of its own: a CTA for each (row, kv head), a warp for a query head.
template <int D>
__global__ void __launch_bounds__(kJoinWarps * 32)
    join_kernel(const __grid_constant__ DecodeArgs args)
{
    const uint32_t head = blockIdx.x % args.Hkv;
    const uint4 join = __ldg((const uint4 *)args.row_joins + blockIdx.x); // first, count, row

    let_next_start();
    wait_for_previous();
    for (uint32_t g = threadIdx.x / 32; g < args.G; g += kJoinWarps) {
        join_row<D>(args, join.x, join.y, g, out_row<D>(args, join.z, head, g));
    }
}

// The launches of one lazy_decode, in order.
struct Launches {
    const decode_device_plan &plan;
    DecodeArgs args;
    uint32_t layer;
    cudaStream_t stream;
    uint32_t left; // kinds

    template <typename Kernel>
    enum status kind(decode_kind kind, Kernel kernel, uint32_t threads, size_t shared_bytes)
    {
        if (plan.ctas[kind] == 0) {
            return ST_OK;
        }
        // What begin_step enqueued is visible to a kernel that waited for it, not to one that
        // started early: the first launch of a step is an ordinary one.  So are all of a step that
        // writes documents' keys, since keys are fetched before the wait.
        const bool is_early = args.follows || !(plan.is_first || plan.is_building);

        left--;
        args.leads = left > 0;
        args.items = plan.items[kind];
        args.n_units = plan.n_units + kind;
        args.counter = plan.counters + (kind * kCounterLayers + layer % kCounterLayers) * 2;
        CU_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)shared_bytes));
        CU_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared));
        TRY(launch(kernel, dim3(plan.ctas[kind]), threads, shared_bytes, stream, is_early, args));
        args.follows = true;
        return ST_OK;
    }
};

template <int D, int kCtas>
enum status
launch_rows16(Launches &launches)
{
    return launches.kind(DECODE_ROWS_16,
                         launches.plan.rows_max <= 8 ? rows16_kernel<D, true, kCtas>
                                                     : rows16_kernel<D, false, kCtas>,
                         kRows16Threads, Rows16Shared<D, kCtas>::kBytes);
}

template <int D>
enum status
launch_all(const DecodeArgs &args, const decode_device_plan &plan, uint32_t layer,
           cudaStream_t stream)
{
    Launches launches = {plan, args, layer, stream, 0};

    for (int k = 0; k < DECODE_KINDS; k++) {
        launches.left += plan.ctas[k] > 0;
    }
    // Longest first: what is short fills the gaps at the end.
    TRY(launches.kind(DECODE_ROWS_128, rows64_kernel<D, 2>, Rows64Shape<2>::kThreads,
                      Rows64Shared<D, 2>::kBytes));
    TRY(launches.kind(DECODE_ROWS_64, rows64_kernel<D, 1>, Rows64Shape<1>::kThreads,
                      Rows64Shared<D, 1>::kBytes));
    TRY(plan.per_sm[DECODE_ROWS_16] == 2 ? (launch_rows16<D, 2>(launches))
                                         : (launch_rows16<D, 1>(launches)));
    if (args.joins) {
        return ST_OK;
    }
    return launch_early(join_kernel<D>, dim3(plan.n_rows * args.Hkv), kJoinWarps * 32, 0, stream,
                        args);
}

DecodeArgs
arguments(const attn_desc &desc, const void *q, void *out, const decode_device_plan &plan)
{
    const uint32_t head_bytes = desc.layout.P * desc.layout.D * 2;
    const uint64_t layer_bytes = 2ull * desc.layout.Hkv * head_bytes;
    DecodeArgs args = {};

    args.kv = (const char *)desc.kv + desc.layer * layer_bytes;
    args.block_bytes = desc.layout.L * layer_bytes;
    args.head_bytes = head_bytes;
    args.v_offset = desc.layout.Hkv * head_bytes;
    args.page_shift = desc.layout.P == 16 ? 4 : desc.layout.P == 32 ? 5 : 6;
    args.H = desc.H;
    args.G = desc.H / desc.layout.Hkv;
    args.Hkv = desc.layout.Hkv;
    args.scale_log2 = desc.scale * 1.4426950408889634f;
    args.joins = plan.joins_in_kernel;
    args.rotates = !plan.is_unrotated;
    args.block_ids = desc.block_ids;
    args.sharers = plan.sharers;
    args.flushes = plan.flushes;
    args.row_joins = plan.joins;
    args.angles = (const float4 *)plan.angles;
    args.q = q;
    args.out = out;
    args.o = plan.o;
    args.ml = (float2 *)plan.ml;
    args.arrived = plan.arrived;
    return args;
}

} // namespace

extern "C" size_t
lazy_decode_sm90_counters(void)
{
    return DECODE_KINDS * kCounterLayers * 2;
}

extern "C" enum status
lazy_decode_sm90(struct attn_desc desc, const void *q, void *out, struct decode_device_plan plan,
                 void *stream)
{
    if (desc.layout.id != KV_LAYOUT_CK8 || desc.layout.type != KV_BF16) {
        return ERR(ST_INVALID, "lazy_decode on a device: KV must be bf16 in the ck8 layout");
    }
    if (desc.H % desc.layout.Hkv != 0 || desc.layer >= desc.layout.L) {
        return ERR(ST_INVALID, "lazy_decode: %u heads over %u, layer %u of %u", desc.H,
                   desc.layout.Hkv, desc.layer, desc.layout.L);
    }
    if (plan.n_rows == 0) {
        return ST_OK;
    }
    switch (desc.layout.D) {
    case 64:
        return launch_all<64>(arguments(desc, q, out, plan), plan, desc.layer,
                              (cudaStream_t)stream);
    case 128:
        return launch_all<128>(arguments(desc, q, out, plan), plan, desc.layer,
                               (cudaStream_t)stream);
    default: return ERR(ST_INVALID, "lazy_decode: head dimension %u", desc.layout.D);
    }
}
