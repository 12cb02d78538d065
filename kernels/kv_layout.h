/* SPDX-License-Identifier: Apache-2.0 */
/* kv_layout - where an element of K or V lives inside a block of the arena.
 *
 * A block holds P tokens of all layers, K and V, contiguous ("page-major").  Every address in the
 * product and in the tests comes from kv_layout_offset; the pool knows only block_bytes. */
#ifndef KERNELS_KV_LAYOUT_H
#define KERNELS_KV_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kv_type {
    KV_F32 = 0, /* the CPU's */
    KV_BF16 = 1,
};

enum kv_layout_id {
    KV_LAYOUT_PLAIN = 0, /* [layer][K,V][head][token][d] */
    KV_LAYOUT_CK8 = 1, /* the same order of (layer, K|V, head); inside, units of 8 tokens in 16-byte
                          * chunks swizzled for wgmma: chunk c of row r is stored at c ^ (r % 8);
                          * bf16 and D a multiple of 64 only */
};

enum kv_part {
    KV_PART_K = 0, /* rotated at the document-local position */
    KV_PART_V = 1,
};

struct kv_layout {
    uint32_t P;   /* tokens a block: 16, 32 or 64 */
    uint32_t L;   /* layers */
    uint32_t Hkv; /* key/value heads */
    uint32_t D;   /* head dimension: 64 or 128 */
    enum kv_type type;
    enum kv_layout_id id;
};

/* ST_INVALID with the field and its limit if the layout is not one we serve. */
enum status kv_layout_check(const struct kv_layout *layout);

/* Bytes of a block; a multiple of 256 for every layout that passes the check. */
size_t kv_layout_block_bytes(const struct kv_layout *layout);

/* Byte offset inside a block of element d of token `slot` (0..P-1). */
size_t kv_layout_offset(const struct kv_layout *layout, uint32_t layer, enum kv_part part,
                        uint32_t head, uint32_t slot, uint32_t d);

#ifdef __cplusplus
}
#endif
#endif
