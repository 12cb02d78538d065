/* SPDX-License-Identifier: Apache-2.0 */
/* tier - where copies of documents go that the pool has no room for: the seam of a further level.
 *
 * A tier keeps heads of documents: blocks [0, n) under the document's key, each in a numbered place
 * and with a checksum.  A key names contents, so a copy never grows old.  Here are only the books;
 * the bytes are moved by workers, and what came back is checked against the sum before anybody
 * reads it: a bad copy is a miss, never an answer.
 *
 * A document grows from its head on (put), loses its tail first (to one that is worth more), and is
 * read meanwhile (get).  Places that a process may be writing are nobody else's until put_end; when
 * that process is lost, until fence_lift.
 *
 * Single writer, no clock; as kvpool.h. */
#ifndef KVPOOL_TIER_H
#define KVPOOL_TIER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "kvpool/dockey.h"

struct tier;
struct tier_doc; /* a document in it; lives while it is in the tier, read or written */

struct tier_block {
    uint32_t place;
    uint64_t sum;
};

struct tier_put {
    struct dockey key;
    uint32_t n_tokens; /* of the whole document */
    uint32_t first;    /* what `lookup` said: blocks before it are there */
    uint32_t count;
    uint64_t writer; /* the incarnation that is going to write the places */
};

struct tier_stats {
    uint32_t places, places_free, places_quarantined;
    uint32_t places_writing; /* promised, and not readable yet */
    uint32_t documents;
    uint64_t blocks_put, blocks_got;
    uint64_t blocks_dropped;  /* for something worth more */
    uint64_t blocks_declined; /* not taken: everything here was worth more, or in use */
    uint64_t documents_bad;   /* read back, and not what they should be */
};

struct tier_ops {
    const char *name; /* "host" */
    void (*destroy)(struct tier **tier);

    /* Blocks of the document's head that can be read; 0: it is not there. */
    uint32_t (*lookup)(const struct tier *, const struct dockey *key);

    /* Blocks [first, first + count), which `lookup` has, are about to be read: they stay where they
     * are until get_end.  Cannot fail. */
    struct tier_doc *(*get)(struct tier *, const struct dockey *key, uint32_t first, uint32_t count,
                            struct tier_block *blocks_out);
    /* `is_bad`: something was not what it should be, and the document is forgotten. */
    void (*get_end)(struct tier *, struct tier_doc *doc, bool is_bad);

    /* Finds places for blocks that are about to be written: for all, or for as many of the first
     * ones as are worth it.  Returns how many, with *doc_out; 0: none.  One put a document. */
    uint32_t (*put)(struct tier *, const struct tier_put *put, uint32_t *places_out,
                    struct tier_doc **doc_out);
    /* The first `count` of them are written and can be read, with these sums; the others' places
     * are free, or in quarantine until fence_lift if `fence` is not 0. */
    void (*put_end)(struct tier *, struct tier_doc *doc, uint32_t count, const uint64_t *sums,
                    uint64_t fence);

    /* Forgets the document; false: it was not there.  Whoever reads or writes it ends as usual. */
    bool (*remove)(struct tier *, const struct dockey *key);

    /* Erasure, as kvpool_erase.c says: the document leaves, and no place that holds any of it, also
     * one that is free by now, is anybody's before it is overwritten.  Adds how many to
     * *blocks_out.  ST_NO_MEMORY with nothing changed. */
    enum status (*erase)(struct tier *, const struct dockey *key, uint64_t erasure,
                         uint32_t *blocks_out);
    bool (*is_erasing)(const struct tier *, const struct dockey *key);
    const uint32_t *(*next_erasure)(struct tier *, uint64_t erase, uint64_t eraser,
                                    uint32_t *count_out);
    uint32_t (*erased)(struct tier *, uint64_t erase);
    void (*lose_eraser)(struct tier *, uint64_t eraser);

    /* The process behind `fence` is gone for certain. */
    void (*fence_lift)(struct tier *, uint64_t fence);

    void (*stat)(const struct tier *, struct tier_stats *stats_out);

    /* What is noted of it for a next process stays as it is from now on. */
    void (*leave)(struct tier *);

    /* Tokens of the whole document; 0: it is not there. */
    uint32_t (*tokens)(const struct tier *, const struct dockey *key);

    /* Walks the documents, as kvpool_next_doc. */
    bool (*next)(const struct tier *, uint32_t *cursor, struct dockey *key_out,
                 uint32_t *n_tokens_out, uint32_t *blocks_out);

    /* Aborts with a message if the books do not agree.  For tests. */
    void (*check)(const struct tier *);
};

/* What every tier begins with. */
struct tier {
    const struct tier_ops *ops;
};

#endif
