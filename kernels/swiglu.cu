/* SPDX-License-Identifier: Apache-2.0 */
// swiglu on a device.
//
// Bound by bytes: 6 F a row (gate and up read, out written).
// Split: a grid of 16-byte pieces; a thread takes one piece of gate, its partner in up, and writes
// one. Numerics: float32 inside, expf (not the approximation: it costs nothing beside the bytes).
#include "kernels/swiglu.h"

#include "kernels/device/launch.cuh"
#include "kernels/device/mma_sm80.cuh"

namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float
silu(float x)
{
    return x / (1.0f + expf(-x));
}

__device__ __forceinline__ uint32_t
gated(uint32_t gate, uint32_t up)
{
    return pack_bf16(silu(bf16_lo(gate)) * bf16_lo(up), silu(bf16_hi(gate)) * bf16_hi(up));
}

__global__ __launch_bounds__(kThreads) void swiglu_kernel(const __grid_constant__ swiglu_args args)
{
    const uint32_t n = args.F / 8;
    const uint32_t i = blockIdx.x * kThreads + threadIdx.x;

    let_next_start();
    wait_for_previous();
    if (i >= n) {
        return;
    }
    for (uint32_t t = blockIdx.y; t < args.T; t += gridDim.y) {
        const uint4 *row = (const uint4 *)args.gate_up + (size_t)t * 2 * n;
        uint4 g = row[i];
        uint4 u = row[n + i];
        ((uint4 *)args.out)[(size_t)t * n + i] =
            make_uint4(gated(g.x, u.x), gated(g.y, u.y), gated(g.z, u.z), gated(g.w, u.w));
    }
}

} // namespace

extern "C" enum status
swiglu_cuda(struct swiglu_args args, void *stream)
{
    if (args.F == 0 || args.F % 8 != 0) {
        return ERR(ST_INVALID, "swiglu: width %u, must be a multiple of 8", args.F);
    }
    if (args.T == 0) {
        return ST_OK;
    }
    const dim3 grid((args.F / 8 + kThreads - 1) / kThreads, args.T < 65535 ? args.T : 65535);
    return launch_early(swiglu_kernel, grid, kThreads, 0, (cudaStream_t)stream, args);
}
