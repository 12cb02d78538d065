/* SPDX-License-Identifier: Apache-2.0 */
// prefill_kernel - lazy_prefill on sm_90a as a kernel: who does what in a CTA.
#ifndef KERNELS_DEVICE_PREFILL_KERNEL_CUH
#define KERNELS_DEVICE_PREFILL_KERNEL_CUH

#include "kernels/device/launch.cuh"
#include "kernels/device/prefill_consume.cuh"
#include "kernels/device/prefill_produce.cuh"

// What is compiled for another target is empty, and says so by the size of the block it allows.
#if KERNEL_HAS_SM90
#define PREFILL_SM90_THREADS kThreads
#else
#define PREFILL_SM90_THREADS 32
#endif

namespace {

template <int D>
__device__ __forceinline__ void
init_barriers(uint32_t smem)
{
    using At = Places<D>;

    for (int i = 0; i < kStagesK; i++) {
        mbarrier_init(smem + At::kFullK + i * 8, 1);
        mbarrier_init(smem + At::kEmptyK + i * 8, kConsumerWarps * kWarpArrivals);
    }
    for (int i = 0; i < kStagesV; i++) {
        mbarrier_init(smem + At::kFullV + i * 8, 1);
        mbarrier_init(smem + At::kEmptyV + i * 8, kConsumerWarps * kWarpArrivals);
    }
    for (int i = 0; i < kStagesQ; i++) {
        mbarrier_init(smem + At::kFullQ + i * 8, kRotatorWarps * kWarpArrivals);
        mbarrier_init(smem + At::kEmptyQ + i * 8, kConsumerWarps * kWarpArrivals);
    }
    for (int i = 0; i < 4; i++) {
        store_shared_4(smem + At::kHot + i * 4, 0);
    }
    mbarrier_init_fence();
}

template <int D>
__global__ __launch_bounds__(PREFILL_SM90_THREADS, 1) void prefill_sm90_kernel(
    const __grid_constant__ prefill_sm90_args args)
{
#if KERNEL_HAS_SM90
    DYNAMIC_SHARED(shared);
    const uint32_t smem = shared_address(shared);
    // The same for all threads of a warp, and ptxas is to know it.
    const int warpgroup = __shfl_sync(~0u, (int)threadIdx.x / kWarpgroup, 0);

    if (threadIdx.x == 0) {
        init_barriers<D>(smem);
    }
    __syncthreads();
    let_next_start();
    wait_for_previous();
    const uint32_t start = fetch_start(args);

    if (word_of(start, kNTasks) == 0) {
        return;
    }
    if (warpgroup == 0) {
        registers_give<kRegistersProducer>();
        if (threadIdx.x < 32) {
            Producer<D>(args, smem, start).run_all();
        } else if (args.plan.group % 4 == 0) {
            Rotator<D, 4>(args, smem, start).run_all();
        } else {
            Rotator<D, 1>(args, smem, start).run_all();
        }
    } else {
        registers_take<kRegistersConsumer>();
        Consumer<D>(args, smem, (uint32_t)warpgroup - 1).run_all(start);
    }
#endif
}

} // namespace

#endif
