/* SPDX-License-Identifier: Apache-2.0 */
/* pool_state - the insides of the pool, shared by kvpool.c (which changes them) and kvpool_view.c
 * (which only looks).  Nobody else includes this. */
#ifndef KVPOOL_POOL_STATE_H
#define KVPOOL_POOL_STATE_H

#include "common/htab.h"
#include "common/list.h"
#include "kvpool/blocks.h"
#include "kvpool/ghosts.h"
#include "kvpool/kvpool.h"

/* A document was computed over another one (dockey_hash), and is found by that. */
struct stem {
    struct list_node link; /* in pool->cites */
    struct kvpool_doc *doc;
    uint64_t of;
};

struct kvpool_doc {
    struct htab_node node;       /* in pool->index while is_indexed */
    struct list_node check_link; /* in pool->to_check while it has sealed blocks */
    struct list_node link;   /* in pool->detached when not; among the fresh ones during a claim */
    struct evict_doc policy; /* key, n_tokens, blocks_resident == run->count, is_evictable */
    struct block_run *run; /* room for the whole document, so that it never moves under a reader */
    uint32_t tokens_ready; /* sealed; the tokens of the resident blocks when nobody builds */
    uint32_t references;   /* one a want of a live claim */
    uint32_t pins;
    uint32_t origin;     /* worker of the last sealed build */
    uint64_t builder;    /* 0 = nobody is building */
    uint64_t generation; /* of the last build */
    uint64_t source;     /* dockey_hash of the document that it is of, or a copy of; BLOCKS_ANY:
                            after a restart, of a form that was computed behind others */
    struct list_node stem_link; /* in pool->stems by `source`, if that is not itself, or in
                                   pool->stems_any */
    struct stem *cites;   /* [cite_count] of a turn, or of such a form: what it was computed over */
    uint32_t cite_count;  /* a turn with cites NULL may be over any */
    uint32_t blocks_told; /* leading blocks that the watch knows */
    uint64_t hits;
    struct spill *spill;       /* its blocks are being copied into the tier; NULL: they are not */
    uint64_t declined_at;      /* claims when the tier did not want it; 0: never */
    uint64_t came_us, used_us; /* 0: not known */
    uint32_t *ids;             /* [n_tokens] of a turn, owned; NULL for any other */
    uint64_t came;             /* claims before it was sealed */
    uint64_t mark; /* serial of the last claim that looked at it: finds repeats within one claim */
    bool is_indexed;
    bool is_admitted;            /* the policy has heard of its first sealed blocks */
    bool is_abandoned;           /* its build was lost */
    bool is_adopted;             /* from an earlier kvasird, and not read again since */
    uint32_t at;                 /* in pool->docs while is_indexed */
    uint32_t counted_references; /* scratch of kvpool_check */
};

struct kvpool_claim {
    struct list_node link; /* in pool->claims */
    struct block_run *own; /* private blocks */
    uint64_t lender;       /* the incarnation that may write them; 0: nobody yet */
    uint64_t owner;        /* the document that they hold something of, as in blocks.h */
    uint32_t doc_count;
    struct kvpool_doc *docs[]; /* [doc_count] a reference each; repeats and all */
};

struct kvpool {
    struct kvpool_config config;
    struct blocks blocks;
    struct htab index;        /* kvpool_doc.node by key */
    struct kvpool_doc **docs; /* [index.count] for walks that go on later; NULL: a replay's */
    struct list_node *stems;  /* [stem_mask + 1] kvpool_doc.stem_link, by source */
    struct list_node *cites;  /* [stem_mask + 1] stem.link, by `of` */
    uint64_t stem_mask;
    struct list_node stems_any; /* stem_link of what may be of any */
    struct htab awaited;        /* by key, with a count; kvpool_await.c */
    struct list_node detached;  /* kvpool_doc.link: out of the index, still referenced */
    struct list_node claims;    /* kvpool_claim.link */
    struct list_node to_check;  /* kvpool_doc.check_link, whose turn it is first */
    struct ghosts *ghosts;      /* enum kvpool_miss by key */
    struct evict_policy *policy;
    struct tier *tier;       /* NULL: none */
    struct list_node spills; /* spill.link */
    uint64_t spill_id;       /* of the last one */
    bool may_spill;          /* something changed since there was nothing to copy */
    uint64_t generation;
    uint64_t claims_made;
    uint64_t residency[KVPOOL_RESIDENCY_LEVELS];
    uint64_t now_us; /* 0: nobody says */
    struct kvpool_ages ages;
    uint64_t mark;
    uint32_t blocks_docs;
    uint32_t blocks_own;
    uint32_t blocks_evictable;
    uint32_t blocks_pinned;
    struct kvpool_stats counted; /* only the uint64_t counters are kept here */
};

/* kvpool.c: a record without blocks, NULL if there is no memory; and its end. */
struct kvpool_doc *kvpool_doc_new(const struct kvpool *pool, const struct dockey *key,
                                  uint32_t n_tokens);
void kvpool_doc_free(struct kvpool_doc *doc);
/* kvpool_index.c: makes it; frees it with all that is in it. */
enum status kvpool_index_init(struct kvpool *pool);
void kvpool_index_deinit(struct kvpool *pool);
/* Into the index, where its key is not yet; ST_NO_MEMORY.  And out of it, which is all that happens
 * to the document. */
enum status kvpool_index_add(struct kvpool *pool, struct kvpool_doc *doc);
void kvpool_index_remove(struct kvpool *pool, struct kvpool_doc *doc);
/* Out of the index; it ends now or with its last reference. */
void kvpool_detach_forgotten(struct kvpool *pool, struct kvpool_doc *doc);
/* kvpool_stems.c: into the table, after whatever changes what the document stems from, and out of
 * it.  What a form was computed behind is known, if it was not: ST_NO_MEMORY. */
enum status kvpool_stems_init(struct kvpool *pool);
void kvpool_stems_deinit(struct kvpool *pool);
void kvpool_stem(struct kvpool *pool, struct kvpool_doc *doc);
void kvpool_unstem(struct kvpool_doc *doc);
bool kvpool_stem_is_right(const struct kvpool_doc *doc);
void kvpool_doc_set_source(struct kvpool *pool, struct kvpool_doc *doc, uint64_t source);
enum status kvpool_doc_set_cites(struct kvpool *pool, struct kvpool_doc *doc, const uint64_t *cites,
                                 uint32_t count);
enum status kvpool_doc_note_behind(struct kvpool *pool, struct kvpool_doc *doc,
                                   const struct kvpool_want *want);
/* Any document in the index that is, or stems from, the one with that key; NULL: none does. */
struct kvpool_doc *kvpool_find_stemming(struct kvpool *pool, const struct dockey *key);
/* Brings is_evictable, the count of evictable blocks and the policy up to date. */
void kvpool_doc_update_evictable(struct kvpool *pool, struct kvpool_doc *doc);

/* kvpool_catalog.c: what has to be noted; without a catalog they do nothing. */
void kvpool_note_build(struct kvpool *pool, const struct kvpool_doc *doc, const uint32_t *ids);
void kvpool_note_seal(struct kvpool *pool, const struct kvpool_doc *doc);
void kvpool_note_leave(struct kvpool *pool, const struct kvpool_doc *doc);
void kvpool_note_pins(struct kvpool *pool, const struct kvpool_doc *doc);
void kvpool_note_own(struct kvpool *pool, const struct kvpool_claim *claim, uint32_t from);

/* ST_INVALID with both sizes if a request of `blocks` blocks can never fit. */
enum status kvpool_check_size(const struct kvpool *pool, uint64_t blocks);

/* kvpool.c: of a document that is_evictable; with its last block it leaves. */
void kvpool_evict_tail(struct kvpool *pool, struct kvpool_doc *doc, uint32_t count);

/* kvpool_ages.c */
void ages_init(struct kvpool_ages *ages);
void ages_come(const struct kvpool *pool, struct kvpool_doc *doc); /* it is sealed */
void ages_use(struct kvpool *pool, struct kvpool_doc *doc);
void ages_go(struct kvpool *pool, const struct kvpool_doc *doc); /* evicted whole */

/* kvpool_watch.c: of the document's blocks only the first `keep` are left. */
void kvpool_tell_removed(struct kvpool *pool, struct kvpool_doc *doc, uint32_t keep);

/* kvpool_view.c: the document is about to be gone. */
void kvpool_note_residency(struct kvpool *pool, const struct kvpool_doc *doc);

/* kvpool_tier.c: the document lost blocks, or leaves (`is_forgotten`: so must its copy). */
void kvpool_tier_cut(struct kvpool *pool, struct kvpool_doc *doc, uint32_t blocks_before);
void kvpool_tier_leave(struct kvpool *pool, struct kvpool_doc *doc, bool is_forgotten);
void kvpool_tier_deinit(struct kvpool *pool);

/* kvpool_await.c */
enum status kvpool_create_policy(struct kvpool *pool);
bool awaited_equal(const struct htab_node *node, const void *key);
bool await_is_awaited(const struct kvpool *pool, const struct dockey *key);
void await_deinit(struct kvpool *pool);

#define CHECK_TRIES_MAX 16 /* documents passed over in a search for one to check */

static inline bool
doc_is_building(const struct kvpool_doc *doc)
{
    return doc->builder != 0;
}

#endif
