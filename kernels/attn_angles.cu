/* SPDX-License-Identifier: Apache-2.0 */
// attn_angles: the angles of a step, once for all layers.
//
// Bound by float64 sincos, once a step for all layers and heads: rows x segments x D/2 of them.
// Split: one CTA for (sequence, segment, slice of rows); a thread per pair of dimensions.
#include "kernels/attn_cuda.h"

#include "kernels/device/cuda_check.cuh"

namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kSlices = 32; // CTAs that share the rows of one (sequence, segment) pair

__global__ __launch_bounds__(kThreads) void angles_kernel(
    const __grid_constant__ attn_angles_args args)
{
    const attn_seq &seq = args.seqs[blockIdx.x];
    const uint32_t half = args.D / 2;
    const uint32_t rows_at_once = kThreads / half;
    const uint32_t i = threadIdx.x % half;
    const double frequency = args.inv_freq[i];
    const size_t first = args.angles.angle_first[blockIdx.x];

    for (uint32_t s = blockIdx.y; s < seq.n_segs; s += gridDim.y) {
        const attn_segment &seg = args.segs[seq.seg_first + s];
        for (uint32_t t = blockIdx.z * rows_at_once + threadIdx.x / half; t < seq.n_rows;
             t += gridDim.z * rows_at_once) {
            uint32_t p = seq.pos_first + t;
            double sin_value = 0.0;
            double cos_value = 0.0;
            if (p >= seg.offset) {
                sincos((double)(p - seg.offset) * frequency, &sin_value, &cos_value);
            }
            ((float2 *)args.angles.rows)[(first + (size_t)s * seq.n_rows + t) * half + i] =
                make_float2((float)(cos_value * args.rope_scale),
                            (float)(sin_value * args.rope_scale));
        }
    }
}

} // namespace

extern "C" enum status
attn_angles_cuda(struct attn_angles_args args, void *stream)
{
    if (args.D != 64 && args.D != 128) {
        return ERR(ST_INVALID, "angles: head dimension %u, must be 64 or 128", args.D);
    }
    if (args.n_seqs == 0) {
        return ST_OK;
    }
    angles_kernel<<<dim3(args.n_seqs, 8, kSlices), kThreads, 0, (cudaStream_t)stream>>>(args);
    CU_TRY(cudaGetLastError());
    return ST_OK;
}
