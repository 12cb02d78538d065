/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_tables - the look-ups behind the tokenizer: text to id, pair of ids to merged id, and
 * the tokens that are found in raw text.  Filled at load, then only read. */
#ifndef MODEL_TOKENIZER_TABLES_H
#define MODEL_TOKENIZER_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

/* A quick hash of short text, no defence against made-up collisions. */
uint64_t text_hash(const char *text, size_t length);

/* All token texts, one after the other; id i has bytes [offsets[i], offsets[i + 1]). */
struct texts {
    char *bytes;
    uint32_t *offsets; /* [count + 1] */
    uint32_t count;
};

static inline const char *
texts_at(const struct texts *texts, uint32_t id, size_t *length_out)
{
    *length_out = texts->offsets[id + 1] - texts->offsets[id];
    return texts->bytes + texts->offsets[id];
}

/* Text to id, by open addressing. */
struct text_index {
    uint32_t *slots; /* [mask + 1] id + 1, 0 = free */
    uint32_t mask;
};

/* Room for `count` texts. */
enum status text_index_init(struct text_index *index, size_t count);
void text_index_deinit(struct text_index *index);

/* The id, or UINT32_MAX. */
uint32_t text_index_find(const struct text_index *index, const struct texts *texts,
                         const char *text, size_t length);

/* Adds a text that is absent. */
void text_index_add(struct text_index *index, const struct texts *texts, uint32_t id);

/* Two symbols side by side -> the symbol they merge to. */
struct pair_entry {
    uint64_t key;  /* left << 32 | right; UINT64_MAX = free */
    uint32_t rank; /* the smaller, the earlier */
    uint32_t merged;
};

struct pair_index {
    struct pair_entry *slots;
    uint32_t mask;
};

enum status pair_index_init(struct pair_index *index, size_t count);
void pair_index_deinit(struct pair_index *index);

/* NULL if the two do not merge. */
const struct pair_entry *pair_index_find(const struct pair_index *index, uint32_t left,
                                         uint32_t right);

/* The first rank given to a pair stays. */
void pair_index_add(struct pair_index *index, uint32_t left, uint32_t right, uint32_t rank,
                    uint32_t merged);

/* The tokens to find in raw text: a trie of their bytes. */
struct special_node {
    uint32_t first_child; /* 0 = none: node 0 is the root */
    uint32_t next_sibling;
    uint32_t id; /* UINT32_MAX: no token ends here */
    uint8_t byte;
    bool is_control; /* found only where control tokens may be written */
};

struct special_index {
    struct special_node *nodes; /* [room] */
    uint32_t count, room;
    bool starts[2][256]; /* [with control tokens][first byte] */
};

/* Room for tokens of `bytes` bytes in total. */
enum status special_index_init(struct special_index *index, size_t bytes);
void special_index_deinit(struct special_index *index);

/* False if a token of that text is there already. */
bool special_index_add(struct special_index *index, const char *text, size_t length, uint32_t id,
                       bool is_control);

/* The first token at or after `from`, the longest of those that start there; UINT32_MAX if none. */
uint32_t special_index_find(const struct special_index *index, bool with_control, const char *text,
                            size_t length, size_t from, size_t *at_out, size_t *length_out);

#endif
