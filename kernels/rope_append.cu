/* SPDX-License-Identifier: Apache-2.0 */
// rope_append on a device: K rotated and V copied from the fused QKV rows into ck8 blocks, Q
// gathered.
//
// Bound by bytes: (H + 2 Hkv) * D * 4 a row (read and written once).
// Split: a CTA a row, several where rows are few: one round of loads each; a thread takes 8 dims of
// one head (for K: 8 dims and their 8 partners, so a rotation needs no exchange) and writes 16-byte
// chunks, which is also the unit of the swizzle. Numerics: angles in float64, one float32 rotation,
// rounded once to bf16.  sincos in float64 is shared by the heads of a row through shared memory.
#include "kernels/rope_append.h"

#include "kernels/device/ck8.cuh"
#include "kernels/device/launch.cuh"

namespace {

constexpr int kThreads = 128;
constexpr uint32_t kCtasMax = 512; // of rows that are split

template <int D>
__global__ __launch_bounds__(kThreads) void rope_append_kernel(
    const __grid_constant__ rope_append_args args)
{
    constexpr int kChunks = D / 8;
    __shared__ float4 s_turn[D / 4];
    const uint32_t t = blockIdx.x;
    const uint32_t Hkv = args.layout.Hkv;
    const uint4 *row = (const uint4 *)args.qkv + (size_t)t * (args.H + 2 * Hkv) * kChunks;
    const uint32_t slot = args.row_slot[t];
    const size_t head_bytes = (size_t)args.layout.P * D * 2;
    char *block = (char *)args.kv
                  + ((size_t)args.row_block[t] * args.layout.L + args.layer) * 2 * Hkv * head_bytes;

    const uint32_t q_chunks = args.q_out != NULL ? args.H * kChunks : 0;
    const uint32_t k_pairs = Hkv * kChunks / 2;

    let_next_start();
    for (int i = threadIdx.x; i < D / 2; i += kThreads) {
        double sin_value, cos_value;
        sincos((double)args.row_pos[t] * args.inv_freq[i], &sin_value, &cos_value);
        ((float2 *)s_turn)[i] =
            make_float2((float)(cos_value * args.rope_scale), (float)(sin_value * args.rope_scale));
    }
    wait_for_previous(); // the sines above are of the step
    __syncthreads();
    for (uint32_t i = blockIdx.y * kThreads + threadIdx.x; i < q_chunks + k_pairs + Hkv * kChunks;
         i += gridDim.y * kThreads) {
        if (i < q_chunks) {
            ((uint4 *)args.q_out)[(size_t)t * args.H * kChunks + i] = row[i];
        } else if (i < q_chunks + k_pairs) {
            uint32_t head = (i - q_chunks) / (kChunks / 2);
            uint32_t c = (i - q_chunks) % (kChunks / 2);
            const uint4 *from = row + (args.H + head) * kChunks;
            uint4 a = from[c];
            uint4 b = from[c + kChunks / 2];

            rotate_chunk(a, b, s_turn + c * 4);
            *(uint4 *)(block + head * head_bytes + ck8_chunk_offset(D, slot, c)) = a;
            *(uint4 *)(block + head * head_bytes + ck8_chunk_offset(D, slot, c + kChunks / 2)) = b;
        } else {
            uint32_t head = Hkv + (i - q_chunks - k_pairs) / kChunks;
            uint32_t c = (i - q_chunks - k_pairs) % kChunks;

            *(uint4 *)(block + head * head_bytes + ck8_chunk_offset(D, slot, c)) =
                row[(args.H + head) * kChunks + c];
        }
    }
}

// A row's chunks in one round, as long as the rows do not fill the device.
dim3
grid_of(const rope_append_args &args)
{
    const uint32_t rounds =
        ((args.H + 2 * args.layout.Hkv) * args.layout.D / 8 + kThreads - 1) / kThreads;
    const uint32_t most = kCtasMax / args.T;

    return dim3(args.T, most < 1 ? 1 : rounds < most ? rounds : most);
}

} // namespace

extern "C" enum status
rope_append_cuda(struct rope_append_args args, void *stream)
{
    if (args.layout.id != KV_LAYOUT_CK8 || args.layout.type != KV_BF16) {
        return ERR(ST_INVALID, "rope_append on a device: KV must be bf16 in the ck8 layout");
    }
    if (args.T == 0) {
        return ST_OK;
    }
    switch (args.layout.D) {
    case 64:
        return launch_early(rope_append_kernel<64>, grid_of(args), kThreads, 0,
                            (cudaStream_t)stream, args);
    case 128:
        return launch_early(rope_append_kernel<128>, grid_of(args), kThreads, 0,
                            (cudaStream_t)stream, args);
    default: return ERR(ST_INVALID, "rope_append: head dimension %u", args.layout.D);
    }
}
