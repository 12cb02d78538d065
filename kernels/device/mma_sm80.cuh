/* SPDX-License-Identifier: Apache-2.0 */
// mma_sm80 - warp-level building blocks that every GPU from sm_80 on has: bf16 packing, ldmatrix,
// mma.sync m16n8k16, cp.async.  Thin wrappers; the names follow the PTX instructions.
#ifndef KERNELS_DEVICE_MMA_SM80_CUH
#define KERNELS_DEVICE_MMA_SM80_CUH

#include <stdint.h>

#include <cuda_bf16.h>

namespace {

__device__ __forceinline__ uint32_t
shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

// Two floats to one register of bf16, `lo` in the low half; round to nearest even.
__device__ __forceinline__ uint32_t
pack_bf16(float lo, float hi)
{
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

__device__ __forceinline__ float
bf16_lo(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}

__device__ __forceinline__ float
bf16_hi(uint32_t pair)
{
    return __uint_as_float(pair & 0xffff0000u);
}

__device__ __forceinline__ float
exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ void
ldmatrix_x4(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void
ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

// c[16x8] += a[16x16] b[16x8], bf16 in, float32 out.
__device__ __forceinline__ void
mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 16 bytes from global to shared memory; zeros instead when !is_valid (the address must be valid).
__device__ __forceinline__ void
cp_async_16(uint32_t shared, const void *global, bool is_valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared), "l"(global), "r"(is_valid ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void
cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kPending>
__device__ __forceinline__ void
cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
}

__device__ __forceinline__ float
quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float
quad_sum(float x)
{
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

__device__ __forceinline__ bool
quad_any(bool x)
{
    return (__ballot_sync(~0u, x) >> (threadIdx.x & 28) & 15) != 0;
}

// Lane i of the quad gets element i of each of its lanes.
__device__ __forceinline__ uint4
quad_transpose(const uint32_t (&x)[4])
{
    const bool is_odd = threadIdx.x & 1;
    const bool is_high = threadIdx.x & 2;
    uint32_t r = __shfl_xor_sync(~0u, is_odd ? x[0] : x[1], 1);
    uint32_t s = __shfl_xor_sync(~0u, is_odd ? x[2] : x[3], 1);
    const uint32_t a0 = is_odd ? r : x[0];
    const uint32_t a1 = is_odd ? x[1] : r;
    const uint32_t a2 = is_odd ? s : x[2];
    const uint32_t a3 = is_odd ? x[3] : s;

    r = __shfl_xor_sync(~0u, is_high ? a0 : a2, 2);
    s = __shfl_xor_sync(~0u, is_high ? a1 : a3, 2);
    return is_high ? make_uint4(r, s, a2, a3) : make_uint4(a0, a1, r, s);
}

// Shared memory by its 32-bit address.
__device__ __forceinline__ void
store_shared_4(uint32_t address, uint32_t x)
{
    asm volatile("st.shared.u32 [%0], %1;" : : "r"(address), "r"(x) : "memory");
}

// The larger of x and what is there stays.
__device__ __forceinline__ void
max_shared(uint32_t address, uint32_t x)
{
    asm volatile("red.shared.max.u32 [%0], %1;" : : "r"(address), "r"(x) : "memory");
}

__device__ __forceinline__ void
store_shared_16(uint32_t address, uint4 x)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
}

__device__ __forceinline__ uint32_t
load_shared_4(uint32_t address)
{
    uint32_t x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
    return x;
}

__device__ __forceinline__ uint4
load_shared_16(uint32_t address)
{
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}

} // namespace

#endif
