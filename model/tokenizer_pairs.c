/* SPDX-License-Identifier: Apache-2.0 */
#include "model/tokenizer_load.h"

#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "common/utf8.h"

/* The token that a part of a merge writes; its text is added to `bytes` at *at. */
static uint32_t
find_part(const struct load *load, struct gguf_string part, char *bytes, size_t *at)
{
    const struct tokenizer *tokenizer = load->tokenizer;
    size_t length;

    if (tokenizer->kind == TOKENIZER_SPM) {
        (void)tokenizer_from_spm(part.bytes, part.length, bytes + *at, &length);
    } else {
        (void)tokenizer_from_byte_level(load, part.bytes, part.length, bytes + *at, &length);
    }
    uint32_t id = text_index_find(&tokenizer->index, &tokenizer->texts, bytes + *at, length);
    *at += length;
    return id;
}

static enum status
add_merge(struct load *load, size_t number)
{
    struct tokenizer *tokenizer = load->tokenizer;
    const struct merge *merge = &load->merges[number];
    struct gguf_string left = merge->left, right = merge->right;
    char bytes[2 * DETOKENIZER_OUT_MAX];
    uint32_t ids[3]; /* left, right, both */
    size_t length = 0;

    if (left.length > sizeof(bytes) || right.length > sizeof(bytes) - left.length
        || utf8_check(left.bytes, left.length) < left.length
        || utf8_check(right.bytes, right.length) < right.length) {
        return ERR(ST_INVALID, "%s: %s: merge %zu is too long or not UTF-8", load->file,
                   load->merges_at, number);
    }
    ids[0] = find_part(load, left, bytes, &length);
    ids[1] = find_part(load, right, bytes, &length);
    ids[2] = text_index_find(&tokenizer->index, &tokenizer->texts, bytes, length);
    for (size_t i = 0; i < 3; i++) {
        static const char *const parts[] = {"its left part", "its right part", "its result"};

        if (ids[i] == TOKENIZER_NONE) {
            return ERR(ST_INVALID, "%s: %s: merge %zu: %s is no normal token", load->file,
                       load->merges_at, number, parts[i]);
        }
    }
    pair_index_add(&tokenizer->pairs, ids[0], ids[1], (uint32_t)number, ids[2]);
    return ST_OK;
}

static enum status
add_merges(struct load *load)
{
    TRY(pair_index_init(&load->tokenizer->pairs, load->merge_count));
    for (size_t i = 0; i < load->merge_count; i++) {
        TRY(add_merge(load, i));
    }
    return ST_OK;
}

/* The symbol that a part of a token's text is while it is being merged; NONE if it is never one. */
static uint32_t
part_symbol(const struct tokenizer *tokenizer, const char *text, size_t length)
{
    size_t first;
    uint32_t code_point = utf8_decode(text, &first);

    return first == length ? tokenizer_symbol(tokenizer, text, length, code_point)
                           : text_index_find(&tokenizer->index, &tokenizer->texts, text, length);
}

/* Whether merging may produce the token. */
static bool
is_mergeable(const struct tokenizer *tokenizer, uint32_t id)
{
    size_t length;
    const char *text = texts_at(&tokenizer->texts, id, &length);

    return text_index_find(&tokenizer->index, &tokenizer->texts, text, length) == id;
}

/* Marks which characters tokens have side by side. */
static enum status
mark_joins(struct load *load)
{
    struct tokenizer *tokenizer = load->tokenizer;

    tokenizer->joins = mem_zalloc((1u << JOIN_BITS) / 64, sizeof(tokenizer->joins[0]));
    if (tokenizer->joins == NULL) {
        return ERR(ST_NO_MEMORY, "%s: joins of tokens", load->file);
    }
    for (uint32_t id = 0; id < tokenizer->vocab_size; id++) {
        size_t length, bytes;
        const char *text = texts_at(&tokenizer->texts, id, &length);

        if (!is_mergeable(tokenizer, id)) {
            continue;
        }
        uint32_t previous = utf8_decode(text, &bytes);
        for (size_t at = bytes; at < length; at += bytes) {
            uint32_t code_point = utf8_decode(text + at, &bytes);
            uint32_t bit = join_bit(previous, code_point);

            tokenizer->joins[bit / 64] |= (uint64_t)1 << bit % 64;
            previous = code_point;
        }
    }
    return ST_OK;
}

/* Looks at the ways to make token `id` of two symbols: counts them, and adds them with `rank` if
 * `pairs` is given. */
static size_t
split_token(const struct tokenizer *tokenizer, uint32_t id, uint32_t rank, struct pair_index *pairs)
{
    size_t length, bytes;
    const char *text = texts_at(&tokenizer->texts, id, &length);
    size_t ways = 0;

    (void)utf8_decode(text, &bytes);
    for (size_t at = bytes; at < length; at += bytes) {
        uint32_t left = part_symbol(tokenizer, text, at);
        uint32_t right = part_symbol(tokenizer, text + at, length - at);

        (void)utf8_decode(text + at, &bytes);
        if (left == TOKENIZER_NONE || right == TOKENIZER_NONE) {
            continue;
        }
        ways++;
        if (pairs != NULL) {
            pair_index_add(pairs, left, right, rank, id);
        }
    }
    return ways;
}

static int
compare_scores(const void *a, const void *b)
{
    float left = *(const float *)a, right = *(const float *)b;

    return left > right ? -1 : left < right;
}

/* How many scores are better: equal scores have equal ranks. */
static uint32_t
find_rank(const float *order, uint32_t count, float score)
{
    uint32_t low = 0, high = count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (order[middle] > score) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* SentencePiece states no merges: any two symbols that make up a token merge, the best score
 * first. */
static enum status
derive_merges(struct load *load)
{
    struct tokenizer *tokenizer = load->tokenizer;
    uint32_t count = tokenizer->vocab_size;
    float *order = mem_dup(load->scores, count * sizeof(order[0]));
    size_t ways = 0;
    enum status st = ST_OK;

    if (order == NULL) {
        st = ERR(ST_NO_MEMORY, "%s: scores of %u tokens", load->file, count);
        goto done;
    }
    qsort(order, count, sizeof(order[0]), compare_scores);
    for (int pass = 0; st == ST_OK && pass < 2; pass++) {
        for (uint32_t i = 0; i < count; i++) {
            if (!is_mergeable(tokenizer, i)) {
                continue;
            }
            ways += split_token(tokenizer, i, find_rank(order, count, load->scores[i]),
                                pass == 0 ? NULL : &tokenizer->pairs);
        }
        if (pass == 0) {
            st = pair_index_init(&tokenizer->pairs, ways);
        }
    }

done:
    mem_free(order);
    return st;
}

enum status
tokenizer_index_pairs(struct load *load)
{
    if (load->tokenizer->kind == TOKENIZER_SPM) {
        TRY(mark_joins(load));
    }
    return load->scores != NULL ? derive_merges(load) : add_merges(load);
}
