/* SPDX-License-Identifier: Apache-2.0 */
// launch - programmatic dependent launch: a kernel's beginning overlaps the end of the one before.
//
// On sm_90 a kernel launched by launch_early may start when all CTAs of its predecessor in the
// stream have called let_next_start (or ended).  What it reads of earlier kernels, and all that it
// writes, comes after wait_for_previous; what no kernel of the chain writes (weights, the plan of a
// step, documents' keys unless the step builds some) may be read before.  For that the first kernel
// behind the copies of a step is an ordinary launch, or lets the next start after its wait (embed).
// Every CTA has to call wait_for_previous, also one without work: the end of a grid must imply the
// end of all before it.  Recorded graphs keep the edges.  On older devices the two functions are
// nothing and the launch an ordinary one.
#ifndef KERNELS_DEVICE_LAUNCH_CUH
#define KERNELS_DEVICE_LAUNCH_CUH

#include "kernels/device/cuda_check.cuh"

namespace {

__device__ __forceinline__ void
wait_for_previous()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

__device__ __forceinline__ void
let_next_start()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

inline bool
can_launch_early()
{
    int device = 0;
    int major = 0;

    return cudaGetDevice(&device) == cudaSuccess
           && cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device)
                  == cudaSuccess
           && major >= 9;
}

template <typename Kernel, typename... Args>
enum status
launch(Kernel kernel, dim3 grid, uint32_t threads, size_t shared_bytes, cudaStream_t stream,
       bool is_early, const Args &...args)
{
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t config = {};

    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = is_early && can_launch_early() ? 1 : 0;
    CU_TRY(cudaLaunchKernelEx(&config, kernel, args...));
    return ST_OK;
}

template <typename Kernel, typename... Args>
enum status
launch_early(Kernel kernel, dim3 grid, uint32_t threads, size_t shared_bytes, cudaStream_t stream,
             const Args &...args)
{
    return launch(kernel, grid, threads, shared_bytes, stream, true, args...);
}

} // namespace

#endif
