/* SPDX-License-Identifier: Apache-2.0 */
// dummy_fill on a device.
//
// Bound by integer multiplies: 20 of 32x32->64 bits a group of 16 elements, 32 bytes written; a
// start of a worker does it once, so nothing is tuned.
// Split: a thread draws a group and writes it in two pieces; the last group may be short.
// Numerics: exact (see the header), whether or not the compiler contracts.
#include "kernels/dummy_fill.h"

#include "kernels/device/cuda_check.cuh"
#include "kernels/device/mma_sm80.cuh"

namespace {

constexpr int kThreads = 256;
constexpr uint64_t kBlocksMax = 1 << 16;

__global__ __launch_bounds__(kThreads) void dummy_fill_kernel(
    const __grid_constant__ dummy_fill_args args)
{
    const uint64_t num_groups = (args.count + DUMMY_FILL_GROUP - 1) / DUMMY_FILL_GROUP;
    const uint64_t stride = (uint64_t)gridDim.x * kThreads;
    uint32_t words[4];

    for (uint64_t group = (uint64_t)blockIdx.x * kThreads + threadIdx.x; group < num_groups;
         group += stride) {
        const uint64_t left = args.count - group * DUMMY_FILL_GROUP;
        uint32_t *out = (uint32_t *)args.out + group * (DUMMY_FILL_GROUP / 2);

        dummy_fill_draw(args.seed, args.stream, group, words);
#pragma unroll
        for (uint32_t i = 0; i < DUMMY_FILL_GROUP; i += 2) {
            if (i < left) { // counts are even
                out[i / 2] = pack_bf16(dummy_fill_value(words, i, args.center, args.scale),
                                       dummy_fill_value(words, i + 1, args.center, args.scale));
            }
        }
    }
}

} // namespace

extern "C" enum status
dummy_fill_cuda(struct dummy_fill_args args, void *stream)
{
    const uint64_t num_groups = (args.count + DUMMY_FILL_GROUP - 1) / DUMMY_FILL_GROUP;
    const uint64_t blocks = (num_groups + kThreads - 1) / kThreads;

    if (args.count % 2 != 0) {
        return ERR(ST_INVALID, "dummy_fill: %llu elements, must be even",
                   (unsigned long long)args.count);
    }
    if (args.count == 0) {
        return ST_OK;
    }
    dummy_fill_kernel<<<(unsigned)(blocks < kBlocksMax ? blocks : kBlocksMax), kThreads, 0,
                        (cudaStream_t)stream>>>(args);
    CU_TRY(cudaGetLastError());
    return ST_OK;
}
