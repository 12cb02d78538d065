// SPDX-License-Identifier: Apache-2.0
#include "kernels/host_copy.h"

#include <string.h>

#include "kernels/device/cuda_check.cuh"

namespace {

constexpr uint32_t kThreads = 256;
constexpr size_t kCtaBytes = kThreads * sizeof(uint4);
constexpr uint32_t kCtasMax = 64; // of a part

template <typename Word>
__device__ __forceinline__ void
copy_words(const host_copy_part &part, size_t first_byte)
{
    const size_t count = part.bytes / sizeof(Word);
    const size_t stride = (size_t)gridDim.y * kThreads;

    for (size_t i = first_byte / sizeof(Word) + (size_t)blockIdx.y * kThreads + threadIdx.x;
         i < count; i += stride) {
        ((Word *)part.to)[i] = ((const Word *)part.from)[i];
    }
}

__global__ __launch_bounds__(kThreads) void host_copy_kernel(
    const __grid_constant__ host_copies copies)
{
    const host_copy_part &part = copies.parts[blockIdx.x];

    if ((((size_t)part.to | (size_t)part.from) & (sizeof(uint4) - 1)) == 0) {
        copy_words<uint4>(part, 0);
        copy_words<uint32_t>(part, part.bytes / sizeof(uint4) * sizeof(uint4));
    } else {
        copy_words<uint32_t>(part, 0);
    }
}

bool
overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return (const char *)a < (const char *)b + b_bytes
           && (const char *)b < (const char *)a + a_bytes;
}

// Parts are copied in no order, so one that writes what another reads or writes has to wait.
bool
must_follow(const host_copies *copies, const host_copy_part &part)
{
    for (uint32_t i = 0; i < copies->n; i++) {
        const host_copy_part &before = copies->parts[i];

        if (overlap(before.to, before.bytes, part.to, part.bytes)
            || overlap(before.to, before.bytes, part.from, part.bytes)
            || overlap(before.from, before.bytes, part.to, part.bytes)) {
            return true;
        }
    }
    return copies->n == HOST_COPY_PARTS_MAX;
}

} // namespace

extern "C" bool
host_copy_serves(const void *host, const void *device, size_t bytes)
{
    cudaPointerAttributes attributes;

    if (bytes > HOST_COPY_BYTES_MAX || (((size_t)host | (size_t)device | bytes) & 3) != 0
        || cudaPointerGetAttributes(&attributes, host) != cudaSuccess) {
        return false;
    }
    return attributes.type == cudaMemoryTypeHost && attributes.devicePointer == host;
}

extern "C" enum status
host_copies_add(struct host_copies *copies, void *to, const void *from, size_t bytes, void *stream)
{
    const host_copy_part part = {to, from, bytes};

    if (bytes == 0) {
        return ST_OK;
    }
    if (must_follow(copies, part)) {
        TRY(host_copies_send(copies, stream));
    }
    copies->parts[copies->n++] = part;
    return ST_OK;
}

extern "C" enum status
host_copies_send(struct host_copies *copies, void *stream)
{
    size_t most = 0;

    if (copies->n == 0) {
        return ST_OK;
    }
    for (uint32_t i = 0; i < copies->n; i++) {
        most = copies->parts[i].bytes > most ? copies->parts[i].bytes : most;
    }
    uint32_t ctas = (uint32_t)((most + kCtaBytes - 1) / kCtaBytes);
    dim3 grid(copies->n, ctas < kCtasMax ? ctas : kCtasMax);

    host_copy_kernel<<<grid, kThreads, 0, (cudaStream_t)stream>>>(*copies);
    copies->n = 0;
    CU_TRY(cudaGetLastError());
    return ST_OK;
}
