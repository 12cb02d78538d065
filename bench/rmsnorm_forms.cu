/* SPDX-License-Identifier: Apache-2.0 */
// The arithmetic is the landed file's, included for it: forms differ in how rows come and go.
#define rmsnorm_cuda rmsnorm_again
#include "kernels/rmsnorm.cu"
#undef rmsnorm_cuda

#include "bench/rmsnorm_forms.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/time_recorded.cuh"

namespace {

struct piece {
    uint4 x, delta;
};

__device__ __forceinline__ void
fetch(struct piece &p, const rmsnorm_args &args, uint32_t row)
{
    const uint32_t n = args.C / 8;

    if (threadIdx.x < n && row < args.T) {
        p.x = ((const uint4 *)args.x)[(size_t)row * n + threadIdx.x];
        p.delta = ((const uint4 *)args.delta)[(size_t)row * n + threadIdx.x];
    }
}

// Adds, stores the row; returns the thread's part of its sum.
__device__ __forceinline__ float
add(struct piece &p, const rmsnorm_args &args, uint32_t row)
{
    const uint32_t n = args.C / 8;

    if (threadIdx.x >= n || row >= args.T) {
        return 0.0f;
    }
    const float sum = add_and_square(p.x.x, p.delta.x) + add_and_square(p.x.y, p.delta.y)
                      + add_and_square(p.x.z, p.delta.z) + add_and_square(p.x.w, p.delta.w);

    ((uint4 *)args.x)[(size_t)row * n + threadIdx.x] = p.x;
    return sum;
}

__device__ __forceinline__ void
put(const struct piece &p, uint4 w, float sum, const rmsnorm_args &args, uint32_t row)
{
    const uint32_t n = args.C / 8;
    const float factor = rsqrtf(sum / args.C + args.eps);

    if (threadIdx.x < n && row < args.T) {
        ((uint4 *)args.out)[(size_t)row * n + threadIdx.x] =
            make_uint4(scale(p.x.x, w.x, factor), scale(p.x.y, w.y, factor),
                       scale(p.x.z, w.z, factor), scale(p.x.w, w.w, factor));
    }
}

__device__ __forceinline__ uint4
weights(const rmsnorm_args &args)
{
    return threadIdx.x < args.C / 8 ? __ldg((const uint4 *)args.weight + threadIdx.x) : uint4{};
}

// kRows rows a CTA, all of them on their way before the first is added.
template <int kRows>
__global__ __launch_bounds__(kThreadsMax) void together_kernel(
    const __grid_constant__ rmsnorm_args args)
{
    const uint32_t row = blockIdx.x * kRows;
    struct piece p[kRows] = {};
    float sum[kRows];

    let_next_start();
    const uint4 w = weights(args);

    wait_for_previous();
#pragma unroll
    for (int r = 0; r < kRows; r++) {
        fetch(p[r], args, row + r);
    }
#pragma unroll
    for (int r = 0; r < kRows; r++) {
        sum[r] = add(p[r], args, row + r);
    }
    block_sums(sum);
#pragma unroll
    for (int r = 0; r < kRows; r++) {
        put(p[r], w, sum[r], args, row + r);
    }
}

// A CTA stays and takes row after row; the next one is on its way while one is summed.
__global__ __launch_bounds__(kThreadsMax) void staying_kernel(
    const __grid_constant__ rmsnorm_args args)
{
    struct piece p = {}, next = {};

    let_next_start();
    const uint4 w = weights(args);

    wait_for_previous();
    fetch(p, args, blockIdx.x);
    for (uint32_t row = blockIdx.x; row < args.T; row += gridDim.x) {
        float sum[1];

        fetch(next, args, row + gridDim.x);
        sum[0] = add(p, args, row);
        block_sums(sum);
        put(p, w, sum[0], args, row);
        p = next;
        __syncthreads(); // the parts of sums have been read
    }
}

enum status
run(uint32_t form, struct rmsnorm_args args, cudaStream_t stream)
{
    const uint32_t threads = (args.C / 8 + 31) / 32 * 32;
    int device = 0, sms = 0;

    switch (form) {
    case 0: return rmsnorm_again(args, stream);
    case 1:
        return launch_early(together_kernel<2>, dim3((args.T + 1) / 2), threads, 0, stream, args);
    default:
        CU_TRY(cudaGetDevice(&device));
        CU_TRY(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
        return launch_early(staying_kernel, dim3(min(args.T, (uint32_t)sms * 4)), threads, 0,
                            stream, args);
    }
}

// Bits of bf16 in the order of their values.
int
rank(uint16_t bits)
{
    return (bits & 0x8000) != 0 ? -(int)(bits & 0x7fff) : bits;
}

} // namespace

extern "C" const char *
rmsnorm_form_name(uint32_t form)
{
    static const char *const names[RMSNORM_FORMS] = {
        "rmsnorm+, as it is",
        "rmsnorm+, 2 rows",
        "rmsnorm+, staying",
    };

    return names[form];
}

extern "C" enum status
rmsnorm_form_check(uint32_t form, struct rmsnorm_args args)
{
    const size_t count = (size_t)args.T * args.C, room = count + args.C;
    std::vector<uint16_t> before(room), x[2], out[2];

    CU_TRY(cudaMemcpy(before.data(), args.x, room * 2, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 2; i++) {
        x[i].resize(room);
        out[i].resize(room);
        CU_TRY(cudaMemcpy(args.x, before.data(), room * 2, cudaMemcpyHostToDevice));
        CU_TRY(cudaMemset(args.out, 0xff, room * 2));
        TRY(run(i == 0 ? 0 : form, args, nullptr));
        CU_TRY(cudaMemcpy(x[i].data(), args.x, room * 2, cudaMemcpyDeviceToHost));
        CU_TRY(cudaMemcpy(out[i].data(), args.out, room * 2, cudaMemcpyDeviceToHost));
    }
    bool is_right = x[0] == x[1];

    for (size_t i = 0; i < room && is_right; i++) {
        is_right = abs(rank(out[0][i]) - rank(out[1][i])) <= (i < count ? 1 : 0);
    }
    return is_right ? ST_OK
                    : ERR(ST_DEVICE, "%s: %u rows are not those of rmsnorm_cuda",
                          rmsnorm_form_name(form), args.T);
}

extern "C" enum status
rmsnorm_form_time(uint32_t form, const struct rmsnorm_args *sets, uint32_t count, double *us_out)
{
    return time_recorded(run, form, sets, count, us_out);
}
