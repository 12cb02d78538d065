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

} // namespace

#endif
