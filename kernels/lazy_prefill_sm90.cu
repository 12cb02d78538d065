/* SPDX-License-Identifier: Apache-2.0 */
// lazy_prefill on Hopper.
//
// Bound by: tensor cores, 4 * D flops a visible key and query head; a 128 x 128 tile of K and V
// (64 KiB at D = 128) feeds 8.4 MFLOP, which also asks 5.6 TB/s of L2 at 700 TFLOP/s.
//
// Split.  prefill_plan.h: a task is 128 packed rows (tokens x heads of a group, which read the same
// keys) against a run of keys; each multiprocessor runs one CTA with a list of tasks as one stream
// of key tiles, so that the next task's first product is issued with the last one of the task
// before.  What a CTA needs first lies in one record.  The keys of a segment are walked from its
// end to its beginning: the masked tile and the partial one then come with the new Q, which is a
// special tile anyway.
//
// Who does what (384 threads): warp 0 copies pages of K and V as they lie in the pool (ck8 is
// wgmma's swizzle) into rings of 3 and 2 tiles, and writes beside each K tile what it is; warps
// 1 to 3 rotate Q, one segment ahead; two warpgroups compute 64 rows each and take turns on the
// tensor cores, one's softmax beside the other's products.  88 registers and 208.
//
// Rotation.  Once a (row tile, segment), from raw Q in float32 with angles computed in float64,
// into the other of two buffers; the first of a CTA is rotated by the consumers, who have nothing
// else to do then.  With fetching the raw rows it takes about 4 us (inferred from 512 rows over 80
// segments of 256 keys), so segments of two tiles and fewer wait for it.
//
// No maximum in the loop.  P = 2^(scale S - reference), and the reference of a row lies by 2^64
// above the maximum of its first tile: P is as exact at 2^-64 as at 1.  The sum of P that a thread
// needs anyway says whether that will do: while it is at most 2^20, nothing can overflow and bf16
// rounds as it always does.  Where it is more (or NaN), that row, and no other, takes its reference
// from the maximum of the tile: the warp computes its S again with mma.sync from Q and K, which
// still lie in shared memory.  So a row is refused when it has risen by 2^84, and data that does
// this again and again is met by taking maxima in the loop, in each fourth tile, or in each where
// that is too seldom (step, hot).
//
// The same bits in any company (is_fixed): references are renewed row by row, hidden keys add exact
// zeros, no maxima are taken for neighbours' sake, cuts follow the documents.
//
// Tails.  Keys behind a segment's end are masked by selection; rows of V there are overwritten with
// zeros in shared memory, since 0 times NaN is NaN.
//
// All warps of a warpgroup have to run the same wgmma instructions, fences and waits among them, so
// none of those lies where warps may part: a warp whose tile was refused does the whole step with
// the others and what is its own after it (redo); that a warp wants maxima is told to the others
// through shared memory for the step to come.  compute-sanitizer's synccheck sees it.
//
// What ptxas needs (read the machine code after every change; test_sass.py): the loop over plain
// tiles free of branches but the one check, its conditions told to be uniform by votes (else wgmma
// descriptors go through vector registers: BRA.DIV and R2UR in the machine code), waits inside one
// asm block, and no accumulator touched in a branch while products run (C7514).
//
// Measured, tried and dropped: kernels/README.md; tables in
// bench/results/2026-11-30-lazy-prefill.md. Source: LazyAttention (2026), sec. 3; FlashAttention-2
// and -3 for the online softmax and the two warpgroups in turn.
#include "kernels/lazy_prefill_sm90.h"

#include "kernels/device/launch.cuh"
#include "kernels/device/prefill_kernel.cuh"

namespace {

template <int D>
enum status
launch(const prefill_sm90_args &args, cudaStream_t stream)
{
    const size_t bytes = Places<D>::kEndOfAll;

    CU_TRY(cudaFuncSetAttribute(prefill_sm90_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)bytes));
    return launch_early(prefill_sm90_kernel<D>, dim3(args.plan.ctas), kThreads, bytes, stream,
                        args);
}

} // namespace

extern "C" bool
lazy_prefill_sm90_is_there(void)
{
    cudaFuncAttributes attributes;

    if (cudaFuncGetAttributes(&attributes, prefill_sm90_kernel<128>) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    return attributes.maxThreadsPerBlock >= kThreads;
}

extern "C" enum status
lazy_prefill_sm90_cuda(struct lazy_prefill_args args, struct prefill_device_plan plan, void *stream)
{
    if (args.desc.layout.id != KV_LAYOUT_CK8 || args.desc.layout.type != KV_BF16) {
        return ERR(ST_INVALID, "lazy_prefill on a device: KV must be bf16 in the ck8 layout");
    }
    if (args.desc.H % args.desc.layout.Hkv != 0 || args.desc.layer >= args.desc.layout.L) {
        return ERR(ST_INVALID, "lazy_prefill: %u heads over %u, layer %u of %u", args.desc.H,
                   args.desc.layout.Hkv, args.desc.layer, args.desc.layout.L);
    }
    if (plan.ctas == 0) {
        return ST_OK;
    }
    const prefill_sm90_args all = {args.desc, args.q, args.out, plan, magic_of(plan.group)};

    switch (args.desc.layout.D) {
    case 64: return launch<64>(all, (cudaStream_t)stream);
    case 128: return launch<128>(all, (cudaStream_t)stream);
    default: return ERR(ST_INVALID, "lazy_prefill: head dimension %u", args.desc.layout.D);
    }
}
