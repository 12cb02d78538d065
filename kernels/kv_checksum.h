/* SPDX-License-Identifier: Apache-2.0 */
/* kv_checksum - a checksum of whole blocks: a bit that changes in memory is found.
 *
 *   sum(block) = sum over i of mix(w[i] ^ (i + 1) * 0x9E3779B97F4A7C15)   mod 2^64
 *
 * over the block's 64-bit little-endian words w[0], w[1], ..., with the finaliser of splitmix64 as
 * mix.  A sum has no order, so any number of threads may share a block and the bits are the same
 * everywhere; mix is a bijection, so one changed word always changes the sum, several do but for
 * one case in 2^64; the place is mixed in, so words that changed places are found.  It depends on
 * the bytes alone: not on the block's number, its layout or its document, so a copy of the block
 * elsewhere has the same.  Slots behind a document's last token count too: nobody writes them once
 * the block is sealed.  0 stands for "not known"; a block whose sum is 0 is not checked, one in
 * 2^64.  Against faults, not against anybody who means it.
 * Source: Steele, Lea, Flood 2014 (splitmix64). */
#ifndef KERNELS_KV_CHECKSUM_H
#define KERNELS_KV_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kv_checksum_args {
    const void *kv;         /* arena */
    size_t block_bytes;     /* a multiple of 16 */
    uint32_t n_blocks;      /* blocks in the arena */
    const uint32_t *blocks; /* [N] block ids */
    uint64_t *sums;         /* [N] written */
    uint32_t N;
};

/* Of one block in host memory, wherever it lies (8-byte aligned). */
uint64_t kv_checksum_block(const void *block, size_t block_bytes);

/* ST_INVALID: a block id outside the arena. */
enum status kv_checksum_ref(struct kv_checksum_args args);

/* On a device; enqueues on `stream` (a cudaStream_t). */
enum status kv_checksum_cuda(struct kv_checksum_args args, void *stream);

#ifdef __cplusplus
}
#endif
#endif
