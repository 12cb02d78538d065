/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tokens.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "common/mem.h"

struct tokens {
    atomic_uint references;
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
