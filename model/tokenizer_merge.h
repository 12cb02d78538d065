/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_merge - merges the symbols of one word: while any two neighbours merge, those of the
 * smallest rank do, the leftmost first.  Byte-level BPE ranks by the order of its merges,
 * SentencePiece by the score of what comes out. */
#ifndef MODEL_TOKENIZER_MERGE_H
#define MODEL_TOKENIZER_MERGE_H

#include "common/status.h"
#include "model/tokenizer_tables.h"

/* Storage that grows and is kept for the next time.  Zero it to start. */
struct grow {
    void *items;
    size_t bytes;
};

/* Room for `count` items of `size` bytes; what is there stays.  ST_NO_MEMORY. */
enum status grow_reserve(struct grow *grow, size_t count, size_t size);
void grow_deinit(struct grow *grow);

/* Working memory for long words; zero it to start. */
struct merger {
    struct grow links;
    struct grow heap;
};

void merger_deinit(struct merger *merger);

/* Merges symbols[0..*count) in place and sets *count.  O(n log n) for n symbols.  ST_NO_MEMORY. */
enum status merge_symbols(struct merger *merger, const struct pair_index *pairs, uint32_t *symbols,
                          size_t *count);

#endif
