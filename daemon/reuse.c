/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/reuse.h"

#include <string.h>

#include "common/mem.h"
#include "daemon/prompt.h"

static const char *const names[REUSE_MODES] = {
    [REUSE_LAZY] = "lazy",
    [REUSE_REENCODE] = "reencode",
    [REUSE_PREFIX] = "prefix",
    [REUSE_NONE] = "none",
};

enum status
reuse_parse(const char *name, enum reuse_mode *mode_out)
{
    for (int i = 0; i < REUSE_MODES; i++) {
        if (strcmp(name, names[i]) == 0) {
            *mode_out = (enum reuse_mode)i;
            return ST_OK;
        }
    }
    return ERR(ST_INVALID, "reuse %.40s: it must be " REUSE_NAMES, name);
}

/* At offset 0 a copy is the document itself; the first of a prompt stands behind nothing. */
static enum status
name_documents(struct prompt *prompt, enum reuse_mode mode)
{
    uint64_t offset = 0;

    for (size_t i = 0; i < prompt->document_count; i++) {
        struct prompt_document *document = &prompt->documents[i];

        document->kv_key = document->key;
        if (mode == REUSE_REENCODE && offset > 0) {
            TRY(dockey_at(&document->key, offset, &document->kv_key));
        } else if (mode == REUSE_PREFIX && offset > 0) {
            TRY(dockey_behind(&prompt->documents[i - 1].kv_key, &document->key, &document->kv_key));
        }
        offset += tokens_count(document->tokens);
    }
    return ST_OK;
}

static enum status
join_query(struct prompt *prompt)
{
    size_t count = 0, total = tokens_count(prompt->query);
    struct tokens *joined;
    uint32_t *ids;
    enum status st;

    for (size_t i = 0; i < prompt->document_count; i++) {
        total += tokens_count(prompt->documents[i].tokens);
    }
    if (total > TOKENS_COUNT_MAX) {
        return ERR(ST_INVALID, "prompt of %zu tokens: without reuse the limit is %u", total,
                   TOKENS_COUNT_MAX);
    }
    ids = mem_zalloc(total, sizeof(ids[0]));
    if (ids == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for a prompt of %zu tokens", total);
    }
    for (size_t i = 0; i <= prompt->document_count; i++) {
        const struct tokens *part =
            i < prompt->document_count ? prompt->documents[i].tokens : prompt->query;

        if (tokens_count(part) > 0) {
            memcpy(ids + count, tokens_ids(part), tokens_count(part) * sizeof(ids[0]));
        }
        count += tokens_count(part);
    }
    st = tokens_new(ids, count, &joined);
    mem_free(ids);
    TRY(st);
    prompt->query_documents = (uint32_t)count - tokens_count(prompt->query);
    tokens_release(&prompt->query);
    prompt->query = joined;
    return ST_OK;
}

enum status
reuse_apply(struct prompt *prompt, enum reuse_mode mode)
{
    prompt->reuse = mode;
    TRY(name_documents(prompt, mode));
    return mode == REUSE_NONE && prompt->query != NULL ? join_query(prompt) : ST_OK;
}

/* The documents' names say mode and offsets as far as they matter for what comes behind. */
static enum status
name_seed(struct prompt *prompt, const struct dockey *tenant)
{
    uint32_t mode = (uint32_t)prompt->reuse;

    TRY(dockey_turn(tenant, &mode, 1, &prompt->turn_seed));
    for (size_t i = 0; i < prompt->document_count; i++) {
        TRY(dockey_behind(&prompt->turn_seed, &prompt->documents[i].kv_key, &prompt->turn_seed));
    }
    return ST_OK;
}

enum status
reuse_name_turn(struct prompt *prompt, const struct dockey *tenant, uint32_t block_tokens)
{
    uint32_t count = tokens_count(prompt->query) / block_tokens;
    const struct dockey *before = &prompt->turn_seed;

    if (prompt->reuse == REUSE_NONE) {
        return ST_OK;
    }
    TRY(name_seed(prompt, tenant));
    prompt->turn_keys = mem_zalloc(count + (size_t)1, sizeof(prompt->turn_keys[0]));
    if (prompt->turn_keys == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for the names of a turn");
    }
    for (uint32_t i = 0; i < count; i++) {
        TRY(dockey_turn(before, tokens_ids(prompt->query) + (size_t)i * block_tokens, block_tokens,
                        &prompt->turn_keys[i]));
        before = &prompt->turn_keys[i];
    }
    prompt->turn_key_count = count;
    return ST_OK;
}
