/* SPDX-License-Identifier: Apache-2.0 */
// embed on a device.  Bound by bytes: a row of the table read, a row of out written.  One CTA a
// row.
#include "kernels/embed.h"

#include "kernels/device/cuda_check.cuh"

namespace {

constexpr int kThreads = 128;

__global__ __launch_bounds__(kThreads) void embed_kernel(const __grid_constant__ embed_args args)
{
    const uint32_t n = args.C / 8;
    const uint4 *row = (const uint4 *)args.table + (size_t)args.ids[blockIdx.x] * n;
    uint4 *out = (uint4 *)args.out + (size_t)blockIdx.x * n;

    for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
        out[i] = __ldg(row + i);
    }
}

} // namespace

extern "C" enum status
embed_cuda(struct embed_args args, void *stream)
{
    if (args.C == 0 || args.C % 8 != 0) {
        return ERR(ST_INVALID, "embed: width %u, must be a multiple of 8", args.C);
    }
    if (args.T == 0) {
        return ST_OK;
    }
    embed_kernel<<<args.T, kThreads, 0, (cudaStream_t)stream>>>(args);
    CU_TRY(cudaGetLastError());
    return ST_OK;
}
