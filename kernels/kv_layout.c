/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kv_layout.h"

#define LAYERS_MAX   512
#define KV_HEADS_MAX 512

/* ck8: a unit is 8 tokens; each row of it is cut in halves of 128 bytes, and a half of a unit
 * (8 rows of 128 bytes) is one 1 KiB swizzle atom of wgmma. */
#define CK8_ROWS        8
#define CK8_HALF_ELEMS  64
#define CK8_ROW_BYTES   128
#define CK8_ATOM_BYTES  (CK8_ROWS * CK8_ROW_BYTES)
#define CK8_CHUNK_ELEMS 8
#define CK8_CHUNK_BYTES 16

static size_t
element_bytes(const struct kv_layout *layout)
{
    return layout->type == KV_BF16 ? 2 : 4;
}

enum status
kv_layout_check(const struct kv_layout *layout)
{
    if (layout->P != 16 && layout->P != 32 && layout->P != 64) {
        return ERR(ST_INVALID, "block of %u tokens: must be 16, 32 or 64", layout->P);
    }
    if (layout->L == 0 || layout->L > LAYERS_MAX) {
        return ERR(ST_INVALID, "%u layers: must be 1 to %d", layout->L, LAYERS_MAX);
    }
    if (layout->Hkv == 0 || layout->Hkv > KV_HEADS_MAX) {
        return ERR(ST_INVALID, "%u key/value heads: must be 1 to %d", layout->Hkv, KV_HEADS_MAX);
    }
    if (layout->D != 64 && layout->D != 128) {
        return ERR(ST_INVALID, "head dimension %u: must be 64 or 128", layout->D);
    }
    if (layout->type != KV_F32 && layout->type != KV_BF16) {
        return ERR(ST_INVALID, "KV type %d: must be f32 (0) or bf16 (1)", (int)layout->type);
    }
    if (layout->id != KV_LAYOUT_PLAIN && layout->id != KV_LAYOUT_CK8) {
        return ERR(ST_INVALID, "KV layout %d: must be plain (0) or ck8 (1)", (int)layout->id);
    }
    if (layout->id == KV_LAYOUT_CK8 && layout->type != KV_BF16) {
        return ERR(ST_INVALID, "KV layout ck8 holds bf16 only");
    }
    return ST_OK;
}

size_t
kv_layout_block_bytes(const struct kv_layout *layout)
{
    return (size_t)layout->L * 2 * layout->Hkv * layout->P * layout->D * element_bytes(layout);
}

static size_t
ck8_offset(uint32_t D, uint32_t slot, uint32_t d)
{
    size_t unit_bytes = (size_t)CK8_ATOM_BYTES * (D / CK8_HALF_ELEMS);
    uint32_t row = slot % CK8_ROWS;
    uint32_t chunk = d % CK8_HALF_ELEMS / CK8_CHUNK_ELEMS;

    return slot / CK8_ROWS * unit_bytes + (size_t)(d / CK8_HALF_ELEMS) * CK8_ATOM_BYTES
           + row * CK8_ROW_BYTES + (chunk ^ row) * CK8_CHUNK_BYTES + d % CK8_CHUNK_ELEMS * 2;
}

size_t
kv_layout_offset(const struct kv_layout *layout, uint32_t layer, enum kv_part part, uint32_t head,
                 uint32_t slot, uint32_t d)
{
    size_t elem = element_bytes(layout);
    size_t run = (size_t)layout->P * layout->D * elem; /* one (layer, part, head) */
    size_t base = (((size_t)layer * 2 + part) * layout->Hkv + head) * run;

    if (layout->id == KV_LAYOUT_CK8) {
        return base + ck8_offset(layout->D, slot, d);
    }
    return base + ((size_t)slot * layout->D + d) * elem;
}
