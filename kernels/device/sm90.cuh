/* SPDX-License-Identifier: Apache-2.0 */
// sm90 - building blocks that Hopper adds: mbarriers, bulk copies, named barriers, programmatic
// launch, wgmma on tiles of the ck8 layout.  Thin wrappers; shared-memory addresses are 32-bit
// (mma_sm80.cuh, shared_address).
//
// A kernel that uses them guards its body with KERNEL_HAS_SM90, so that a build for older devices
// compiles it to nothing; its launcher is only called on the device that can run it.
#ifndef KERNELS_DEVICE_SM90_CUH
#define KERNELS_DEVICE_SM90_CUH

#include "kernels/device/mma_sm80.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define KERNEL_HAS_SM90 1
#else
#define KERNEL_HAS_SM90 0
#endif

// Dynamic shared memory, aligned for swizzled tiles.
#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) uint8_t name[]

namespace {

/* --- mbarriers ------------------------------------------------------------------------------- */

__device__ __forceinline__ void
mbarrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 :
                 : "r"(barrier), "r"(arrivals)
                 : "memory");
}

// After all inits, by the thread that made them.
__device__ __forceinline__ void
mbarrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

__device__ __forceinline__ void
mbarrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(barrier) : "memory");
}

// Arrives and announces `bytes` of copies.
__device__ __forceinline__ void
mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(barrier), "r"(bytes)
                 : "memory");
}

// Waits until the phase of this parity is over.  Bounded: 4M tries of at most about a microsecond,
// then a trap ends the grid, so that a bug is an error and never a hang.  One block of PTX: a loop
// in C++ makes ptxas serialise wgmma (C7512).
__device__ __forceinline__ void
mbarrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 ".reg .u32 tries;\n"
                 "mov.u32 tries, 0;\n"
                 "AGAIN:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1, 1000;\n"
                 "@p bra DONE;\n"
                 "add.u32 tries, tries, 1;\n"
                 "setp.lt.u32 p, tries, 4000000;\n"
                 "@p bra AGAIN;\n"
                 "trap;\n"
                 "DONE:\n"
                 "}"
                 :
                 : "r"(barrier), "r"(parity)
                 : "memory");
}

// Whether the phase of this parity is over, without waiting.
__device__ __forceinline__ bool
mbarrier_test(uint32_t barrier, uint32_t parity)
{
    uint32_t is_over;

    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(is_over)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return is_over != 0;
}

// One arrival for what all lanes of a warp have done.  racecheck does not follow the other 31
// through __syncwarp: with RACECHECK_ARRIVALS all of them arrive, and it sees the whole protocol.
#ifdef RACECHECK_ARRIVALS
constexpr int kWarpArrivals = 32;
#else
constexpr int kWarpArrivals = 1;
#endif

__device__ __forceinline__ void
warp_arrive(uint32_t barrier)
{
    __syncwarp();
    if (kWarpArrivals == 32 || (threadIdx.x & 31) == 0) {
        mbarrier_arrive(barrier);
    }
}

/* --- bulk copies ----------------------------------------------------------------------------- */

// An L2 policy for bytes that are read once.
__device__ __forceinline__ uint64_t
l2_evict_first()
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// And for those that others read soon.
__device__ __forceinline__ uint64_t
l2_evict_normal()
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// `bytes` (a multiple of 16) from global to shared memory, both 16-byte aligned; counted by the
// barrier.
__device__ __forceinline__ void
bulk_load(uint32_t shared, const void *global, uint32_t bytes, uint32_t barrier, uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;"
                 :
                 : "r"(shared), "l"(global), "r"(bytes), "r"(barrier), "l"(policy)
                 : "memory");
}

// Ordinary writes to shared memory before, bulk copies and wgmma on the same bytes after.
__device__ __forceinline__ void
fence_proxy_async()
{
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

/* --- warps and grids ------------------------------------------------------------------------- */

// Barrier `id` (1..15) among `threads` threads of the CTA.
__device__ __forceinline__ void
named_barrier(uint32_t id, uint32_t threads)
{
    asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(threads) : "memory");
}

// Arrives at barrier `id` without waiting.
__device__ __forceinline__ void
named_barrier_arrive(uint32_t id, uint32_t threads)
{
    asm volatile("bar.arrive %0, %1;" : : "r"(id), "r"(threads) : "memory");
}

// Warpgroups trade registers: what some give, others take.  All warps of a warpgroup call it, in a
// kernel with __launch_bounds__(threads, 1).
template <int kRegisters>
__device__ __forceinline__ void
registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void
registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(kRegisters));
}

/* --- wgmma ----------------------------------------------------------------------------------- */

__device__ __forceinline__ void
wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

__device__ __forceinline__ void
wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

template <int kPending>
__device__ __forceinline__ void
wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(kPending) : "memory");
}

// Descriptor of a tile with the 128-byte swizzle of ck8.  Measured on a device (all 76 forms): K as
// K-major B: stride = bytes of 8 tokens, `leading` unused; V as MN-major B: leading = 1024 (the
// next
// 64 dims), stride = bytes of 8 tokens.
__device__ __forceinline__ uint64_t
wgmma_descriptor(uint32_t address, uint32_t leading, uint32_t stride)
{
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)((leading & 0x3ffff) >> 4) << 16
           | (uint64_t)((stride & 0x3ffff) >> 4) << 32 | (uint64_t)1 << 62;
}

// The same in two words, for loops that step through a tile by adding to the low one: 1 is 16
// bytes.
__device__ __forceinline__ uint32_t
wgmma_descriptor_low(uint32_t address, uint32_t leading)
{
    return (address & 0x3ffff) >> 4 | leading >> 4 << 16;
}

__device__ __forceinline__ uint64_t
wgmma_descriptor_of(uint32_t low, uint32_t stride)
{
    return (uint64_t)low | (uint64_t)(stride >> 4 | 1u << 30) << 32;
}

#define WGMMA_F8(d, i)                                                                             \
    "+f"((d)[i]), "+f"((d)[i + 1]), "+f"((d)[i + 2]), "+f"((d)[i + 3]), "+f"((d)[i + 4]),          \
        "+f"((d)[i + 5]), "+f"((d)[i + 6]), "+f"((d)[i + 7])
#define WGMMA_F32(d, i) WGMMA_F8(d, i), WGMMA_F8(d, i + 8), WGMMA_F8(d, i + 16), WGMMA_F8(d, i + 24)
#define WGMMA_D32                                                                                  \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"  \
    "%25,%26,%27,%28,%29,%30,%31}"
#define WGMMA_D64                                                                                  \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"  \
    "%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"

// d[64 x N] = a[64 x 16] b[16 x N] (+ d if accumulate): a in registers, b a descriptor.
// kIsBMnMajor: b lies as V does.  N is 2 * registers of d.
template <int kIsBMnMajor>
__device__ __forceinline__ void
wgmma_rs(float (&d)[32], const uint32_t (&a)[4], uint64_t b, int accumulate)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " WGMMA_D32
                 ", {%32,%33,%34,%35}, %36, p, 1, 1, %38;\n}"
                 : WGMMA_F32(d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),
                   "n"(kIsBMnMajor));
}

template <int kIsBMnMajor>
__device__ __forceinline__ void
wgmma_rs(float (&d)[64], const uint32_t (&a)[4], uint64_t b, int accumulate)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " WGMMA_D64
                 ", {%64,%65,%66,%67}, %68, p, 1, 1, %70;\n}"
                 : WGMMA_F32(d, 0), WGMMA_F32(d, 32)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),
                   "n"(kIsBMnMajor));
}

// The same with a from shared memory, K-major.
template <int kIsBMnMajor>
__device__ __forceinline__ void
wgmma_ss(float (&d)[32], uint64_t a, uint64_t b, int accumulate)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " WGMMA_D32
                 ", %32, %33, p, 1, 1, 0, %35;\n}"
                 : WGMMA_F32(d, 0)
                 : "l"(a), "l"(b), "r"(accumulate), "n"(kIsBMnMajor));
}

template <int kIsBMnMajor>
__device__ __forceinline__ void
wgmma_ss(float (&d)[64], uint64_t a, uint64_t b, int accumulate)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " WGMMA_D64
                 ", %64, %65, p, 1, 1, 0, %67;\n}"
                 : WGMMA_F32(d, 0), WGMMA_F32(d, 32)
                 : "l"(a), "l"(b), "r"(accumulate), "n"(kIsBMnMajor));
}

} // namespace

#endif
