/* SPDX-License-Identifier: Apache-2.0 */
/* dockey - the name of a document's KV: SHA-256 over everything that its bytes depend on.
 *
 * Fields, each after its length in bytes (u64 little-endian): the domain word "kvasir-document",
 * pool fingerprint, tenant salt, token ids (u32 little-endian).  Never the hash of text, never a
 * fast hash: a collision would be a silently wrong answer, or one tenant reading another's
 * document. */
#ifndef KVPOOL_DOCKEY_H
#define KVPOOL_DOCKEY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/status.h"

#define DOCKEY_BYTES 32

struct dockey {
    uint8_t bytes[DOCKEY_BYTES];
};

/* What makes two pools' KV interchangeable. */
struct pool_identity {
    uint8_t checkpoint[32]; /* model_config.fingerprint: weights, RoPE regime */
    uint8_t tokenizer[32];
    uint32_t kv_type;   /* enum kv_type */
    uint32_t kv_layout; /* enum kv_layout_id */
    uint32_t block_tokens;
};

/* Domain word "kvasir-pool", then the fields above in order, as for a document's key. */
enum status pool_fingerprint(const struct pool_identity *identity, uint8_t fingerprint_out[32]);

/* `salt` isolates tenants; length 0 is a salt of its own.  ST_NO_MEMORY.  Safe from any thread. */
enum status dockey_compute(const uint8_t fingerprint[32], const void *salt, size_t salt_length,
                           const uint32_t *ids, size_t id_count, struct dockey *key_out);

/* The copy of a document that stands at an offset of prompts for good: domain word
 * "kvasir-document-at", the document's key, the offset (u64). */
enum status dockey_at(const struct dockey *document, uint64_t offset, struct dockey *key_out);

/* A document encoded behind others: domain word "kvasir-document-behind", the key of those before
 * it (so of the whole prompt up to here), its own. */
enum status dockey_behind(const struct dockey *before, const struct dockey *document,
                          struct dockey *key_out);

/* A block of a request's own tokens: domain word "kvasir-turn", the name of what stands before it,
 * ids.  So a name says all ids up to the end of the block. */
enum status dockey_turn(const struct dockey *before, const uint32_t *ids, size_t id_count,
                        struct dockey *key_out);

/* The bytes are uniform, so the first eight are a hash as good as any. */
static inline uint64_t
dockey_hash(const struct dockey *key)
{
    uint64_t hash;

    memcpy(&hash, key->bytes, sizeof(hash));
    return hash;
}

/* Lower-case hex of the first `bytes` bytes (at most DOCKEY_BYTES), for people; out needs
 * 2 * bytes + 1. */
void dockey_hex(const struct dockey *key, size_t bytes, char *out);

#endif
