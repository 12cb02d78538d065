/* SPDX-License-Identifier: Apache-2.0 */
// lazy_prefill on Hopper.
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
    const prefill_sm90_args all = {args.desc, args.q, args.out, plan};

    switch (args.desc.layout.D) {
    case 64: return launch<64>(all, (cudaStream_t)stream);
    case 128: return launch<128>(all, (cudaStream_t)stream);
    default: return ERR(ST_INVALID, "lazy_prefill: head dimension %u", args.desc.layout.D);
    }
}
