/* SPDX-License-Identifier: Apache-2.0 */
#include "model/tokenizer_load.h"

#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "common/utf8.h"

/* One merge "LEFT RIGHT". */
static enum status
add_merge(struct load *load, size_t number)
{
    struct tokenizer *tokenizer = load->tokenizer;
    struct gguf_string merge = load->merges[number];
    char bytes[2 * DETOKENIZER_OUT_MAX];
    uint32_t ids[3]; /* left, right, both */
    size_t left, right;

    if (merge.length > sizeof(bytes) || utf8_check(merge.bytes, merge.length) < merge.length) {
        return ERR(ST_INVALID, "%s: key %s: merge %zu is too long or not UTF-8", load->file,
                   KEY_MERGES, number);
    }
    const char *space = merge.length < 3 ? NULL : memchr(merge.bytes + 1, ' ', merge.length - 1);
    if (space == NULL) {
        return ERR(ST_INVALID, "%s: key %s: merge %zu is not two tokens with a space between",
                   load->file, KEY_MERGES, number);
    }
    size_t left_length = (size_t)(space - merge.bytes);
    (void)tokenizer_from_byte_level(load, merge.bytes, left_length, bytes, &left);
    (void)tokenizer_from_byte_level(load, space + 1, merge.length - left_length - 1, bytes + left,
                                    &right);
    ids[0] = text_index_find(&tokenizer->index, &tokenizer->texts, bytes, left);
    ids[1] = text_index_find(&tokenizer->index, &tokenizer->texts, bytes + left, right);
    ids[2] = text_index_find(&tokenizer->index, &tokenizer->texts, bytes, left + right);
    for (size_t i = 0; i < 3; i++) {
        static const char *const parts[] = {"its left part", "its right part", "its result"};

        if (ids[i] == TOKENIZER_NONE) {
            return ERR(ST_INVALID, "%s: key %s: merge %zu: %s is no normal token", load->file,
                       KEY_MERGES, number, parts[i]);
        }
    }
    pair_index_add(&tokenizer->pairs, ids[0], ids[1], (uint32_t)number, ids[2]);
    return ST_OK;
}

static enum status
read_merges(struct load *load)
{
    TRY(gguf_array_count(load->gguf, KEY_MERGES, &load->merge_count));
    if (load->merge_count > MERGES_MAX) {
        return ERR(ST_INVALID, "%s: key %s: %zu merges; at most %u are served", load->file,
                   KEY_MERGES, load->merge_count, MERGES_MAX);
    }
    load->merges = mem_zalloc(load->merge_count, sizeof(load->merges[0]));
    if (load->merges == NULL) {
        return ERR(ST_NO_MEMORY, "%s: %zu merges", load->file, load->merge_count);
    }
    TRY(gguf_array_strings(load->gguf, KEY_MERGES, load->merges, load->merge_count));
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

/* Looks at the ways to make token `id` of two symbols: counts them, and adds them with `rank` if
 * `pairs` is given.  Marks which characters it has side by side. */
static size_t
split_token(const struct tokenizer *tokenizer, uint32_t id, uint32_t rank, struct pair_index *pairs)
{
    size_t length, bytes;
    const char *text = texts_at(&tokenizer->texts, id, &length);
    uint32_t previous = utf8_decode(text, &bytes);
    size_t ways = 0;

    for (size_t at = bytes; at < length; at += bytes) {
        uint32_t code_point = utf8_decode(text + at, &bytes);
        uint32_t bit = join_bit(previous, code_point);
        uint32_t left = part_symbol(tokenizer, text, at);
        uint32_t right = part_symbol(tokenizer, text + at, length - at);

        tokenizer->joins[bit / 64] |= (uint64_t)1 << bit % 64;
        previous = code_point;
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

    tokenizer->joins = mem_zalloc((1u << JOIN_BITS) / 64, sizeof(tokenizer->joins[0]));
    if (order == NULL || tokenizer->joins == NULL) {
        st = ERR(ST_NO_MEMORY, "%s: scores of %u tokens", load->file, count);
        goto done;
    }
    qsort(order, count, sizeof(order[0]), compare_scores);
    for (int pass = 0; st == ST_OK && pass < 2; pass++) {
        for (uint32_t i = 0; i < count; i++) {
            size_t length;
            const char *text = texts_at(&tokenizer->texts, i, &length);

            if (text_index_find(&tokenizer->index, &tokenizer->texts, text, length) != i) {
                continue; /* not mergeable */
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
tokenizer_load_pairs(struct load *load)
{
    return load->tokenizer->kind == TOKENIZER_SPM ? derive_merges(load) : read_merges(load);
}
