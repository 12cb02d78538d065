/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/embed_forms.h"

#include <cstring>
#include <vector>

#include "bench/time_recorded.cuh"
#include "kernels/device/launch.cuh"

namespace {

constexpr int kThreads = 128;

// Without .nc, or ptxas moves half of the loads behind stores, and they are not on their way at
// once: it does so with __ldg.
__device__ __forceinline__ uint4
load(const uint4 *from)
{
    uint4 x;

    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(from)
                 : "memory");
    return x;
}

// kRows rows a CTA, kPieces of 16 bytes of each on their way at once, a thread.
template <int kRows, int kPieces, bool kIsEarly>
__global__ __launch_bounds__(kThreads) void rows_kernel(const __grid_constant__ embed_args args)
{
    const uint32_t n = args.C / 8;
    const uint32_t row = blockIdx.x * kRows;
    const uint4 *from[kRows];
    uint4 *out = (uint4 *)args.out + (size_t)row * n;

    if (kIsEarly) {
        let_next_start();
    }
#pragma unroll
    for (int r = 0; r < kRows; r++) {
        from[r] = (const uint4 *)args.table + (size_t)args.ids[min(row + r, args.T - 1)] * n;
    }
    if (kIsEarly) {
        wait_for_previous();
    }
    for (uint32_t first = threadIdx.x; first < n; first += kThreads * kPieces) {
        uint4 pieces[kRows][kPieces];

#pragma unroll
        for (int j = 0; j < kRows * kPieces; j++) {
            const uint32_t i = first + j % kPieces * kThreads;

            pieces[j / kPieces][j % kPieces] = load(from[j / kPieces] + min(i, n - 1));
        }
#pragma unroll
        for (int j = 0; j < kRows * kPieces; j++) {
            const uint32_t i = first + j % kPieces * kThreads;

            if (i < n && row + j / kPieces < args.T) {
                out[(size_t)(j / kPieces) * n + i] = pieces[j / kPieces][j % kPieces];
            }
        }
    }
}

// A warp a row, eight pieces on their way at once: all rows of a step of 4096 lie in one wave.
__global__ __launch_bounds__(kThreads) void warp_kernel(const __grid_constant__ embed_args args)
{
    constexpr int kPieces = 8;
    const uint32_t n = args.C / 8;
    const uint32_t row = (blockIdx.x * kThreads + threadIdx.x) / 32;

    if (row >= args.T) {
        return;
    }
    const uint4 *from = (const uint4 *)args.table + (size_t)args.ids[row] * n;
    uint4 *out = (uint4 *)args.out + (size_t)row * n;

    for (uint32_t first = threadIdx.x % 32; first < n; first += 32 * kPieces) {
        uint4 pieces[kPieces];

#pragma unroll
        for (int k = 0; k < kPieces; k++) {
            pieces[k] = load(from + min(first + k * 32, n - 1));
        }
#pragma unroll
        for (int k = 0; k < kPieces; k++) {
            if (first + k * 32 < n) {
                out[first + k * 32] = pieces[k];
            }
        }
    }
}

enum status
run(uint32_t form, struct embed_args args, cudaStream_t stream)
{
    switch (form) {
    case 0: return embed_cuda(args, stream);
    case 1: rows_kernel<2, 4, false><<<(args.T + 1) / 2, kThreads, 0, stream>>>(args); break;
    case 2:
        warp_kernel<<<(args.T * 32 + kThreads - 1) / kThreads, kThreads, 0, stream>>>(args);
        break;
    default:
        return launch_early(rows_kernel<2, 4, true>, dim3((args.T + 1) / 2), kThreads, 0, stream,
                            args);
    }
    CU_TRY(cudaGetLastError());
    return ST_OK;
}

} // namespace

extern "C" const char *
embed_form_name(uint32_t form)
{
    static const char *const names[EMBED_FORMS] = {
        "embed, as it is",
        "embed, 2 rows a CTA",
        "embed, warp a row",
        "embed, 2 rows, early",
    };

    return names[form];
}

extern "C" enum status
embed_form_check(uint32_t form, struct embed_args args, void *other)
{
    const size_t bytes = (size_t)(args.T + 1) * args.C * 2;
    std::vector<char> right(bytes), got(bytes);

    CU_TRY(cudaMemset(args.out, 0xff, bytes));
    CU_TRY(cudaMemset(other, 0xff, bytes));
    TRY(embed_cuda(args, nullptr));
    CU_TRY(cudaMemcpy(right.data(), args.out, bytes, cudaMemcpyDeviceToHost));
    args.out = other;
    TRY(run(form, args, nullptr));
    CU_TRY(cudaMemcpy(got.data(), other, bytes, cudaMemcpyDeviceToHost));
    return memcmp(right.data(), got.data(), bytes) == 0
               ? ST_OK
               : ERR(ST_DEVICE, "%s: %u rows are not those of embed_cuda", embed_form_name(form),
                     args.T);
}

extern "C" enum status
embed_form_time(uint32_t form, const struct embed_args *sets, uint32_t count, double *us_out)
{
    return time_recorded(run, form, sets, count, us_out);
}
