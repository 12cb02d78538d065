/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tokens.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "common/mem.h"

#define SALT_KEPT_MAX 128 /* bytes; a longer one is hashed every time */

/* What a key was computed from, but for the ids, and the key.  Constant once it is published. */
struct known_key {
    uint8_t fingerprint[32];
    uint8_t salt[SALT_KEPT_MAX];
    size_t salt_length;
    struct dockey key;
};

struct tokens {
    atomic_uint references;
    _Atomic(struct known_key *) known; /* NULL: none yet */
    uint32_t count;
    uint32_t ids[];
};

enum status
tokens_new(const uint32_t *ids, size_t count, struct tokens **tokens_out)
{
    struct tokens *tokens;

    if (count > TOKENS_COUNT_MAX) {
        return ERR(ST_INVALID, "segment of %zu tokens: the limit is %u", count, TOKENS_COUNT_MAX);
    }
    tokens = mem_zalloc(1, sizeof(*tokens) + count * sizeof(ids[0]));
    if (tokens == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for %zu token ids", count);
    }
    atomic_init(&tokens->references, 1);
    atomic_init(&tokens->known, NULL);
    tokens->count = (uint32_t)count;
    if (count > 0) {
        memcpy(tokens->ids, ids, count * sizeof(ids[0]));
    }
    *tokens_out = tokens;
    return ST_OK;
}

struct tokens *
tokens_acquire(struct tokens *tokens)
{
    atomic_fetch_add_explicit(&tokens->references, 1, memory_order_relaxed);
    return tokens;
}

void
tokens_release(struct tokens **tokens)
{
    if (*tokens == NULL) {
        return;
    }
    unsigned before = atomic_fetch_sub_explicit(&(*tokens)->references, 1, memory_order_acq_rel);

    assert(before > 0);
    if (before == 1) {
        mem_free(atomic_load(&(*tokens)->known));
        /* A text that was forgotten shall not lie about in freed memory. */
        explicit_bzero(*tokens, sizeof(**tokens) + (*tokens)->count * sizeof((*tokens)->ids[0]));
        mem_free(*tokens);
    }
    *tokens = NULL;
}

const uint32_t *
tokens_ids(const struct tokens *tokens)
{
    return tokens->ids;
}

uint32_t
tokens_count(const struct tokens *tokens)
{
    return tokens->count;
}

/* Without memory for it, it is hashed again next time. */
static void
remember(struct tokens *tokens, const uint8_t fingerprint[32], const void *salt, size_t salt_length,
         const struct dockey *key)
{
    struct known_key *known, *none = NULL;

    if (salt_length > SALT_KEPT_MAX) {
        return;
    }
    known = mem_zalloc(1, sizeof(*known));
    if (known == NULL) {
        return;
    }
    memcpy(known->fingerprint, fingerprint, sizeof(known->fingerprint));
    if (salt_length > 0) {
        memcpy(known->salt, salt, salt_length);
    }
    known->salt_length = salt_length;
    known->key = *key;
    if (!atomic_compare_exchange_strong(&tokens->known, &none, known)) {
        mem_free(known); /* another thread was first */
    }
}

static bool
has_salt(const struct known_key *known, const void *salt, size_t salt_length)
{
    return known != NULL && known->salt_length == salt_length
           && (salt_length == 0 || memcmp(known->salt, salt, salt_length) == 0);
}

bool
tokens_have_salt(const struct tokens *tokens, const void *salt, size_t salt_length)
{
    return has_salt(atomic_load(&tokens->known), salt, salt_length);
}

enum status
tokens_key(struct tokens *tokens, const uint8_t fingerprint[32], const void *salt,
           size_t salt_length, struct dockey *key_out)
{
    const struct known_key *known = atomic_load(&tokens->known);

    if (has_salt(known, salt, salt_length)
        && memcmp(known->fingerprint, fingerprint, sizeof(known->fingerprint)) == 0) {
        *key_out = known->key;
        return ST_OK;
    }
    TRY(dockey_compute(fingerprint, salt, salt_length, tokens->ids, tokens->count, key_out));
    if (known == NULL) {
        remember(tokens, fingerprint, salt, salt_length, key_out);
    }
    return ST_OK;
}
