/* SPDX-License-Identifier: Apache-2.0 */
// embed on a device.
//
// Bound by bytes: a row of the table read, a row of out written.
// Split: one CTA a row, of two warps, and of one where rows are many: eight pieces of 16 bytes a
// thread are asked for before the first is stored.
// Launched early, it waits at once: the ids of a step are copied right before.  The next kernel may
// start after that only, for those behind read what was copied ahead of their own wait.  The table
// may be what the kernel before writes (activations): no __ldg.
#include "kernels/embed.h"

#include "kernels/device/launch.cuh"

namespace {

constexpr uint32_t kPieces = 8;
constexpr uint32_t kManyRows = 2048;

template <uint32_t kThreads>
__global__ __launch_bounds__(kThreads) void embed_kernel(const __grid_constant__ embed_args args)
{
    wait_for_previous();
    let_next_start();
    const uint32_t n = args.C / 8;
    const uint4 *row = (const uint4 *)args.table + (size_t)args.ids[blockIdx.x] * n;
    uint4 *out = (uint4 *)args.out + (size_t)blockIdx.x * n;

    for (uint32_t first = threadIdx.x; first < n; first += kThreads * kPieces) {
        uint4 pieces[kPieces];

#pragma unroll
        for (uint32_t k = 0; k < kPieces; k++) {
            if (first + k * kThreads < n) {
                pieces[k] = (row + first)[k * kThreads]; // an offset in the instruction
            }
        }
#pragma unroll
        for (uint32_t k = 0; k < kPieces; k++) {
            if (first + k * kThreads < n) {
                (out + first)[k * kThreads] = pieces[k];
            }
        }
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
    return args.T > kManyRows
               ? launch_early(embed_kernel<32>, dim3(args.T), 32, 0, (cudaStream_t)stream, args)
               : launch_early(embed_kernel<64>, dim3(args.T), 64, 0, (cudaStream_t)stream, args);
}
