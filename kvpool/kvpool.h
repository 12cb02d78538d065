/* SPDX-License-Identifier: Apache-2.0 */
/* kvpool - which blocks hold which document, who refers to them, and what may be forgotten.
 *
 * Pure bookkeeping over block ids 0..block_count-1: no lock, no clock, no device memory, one writer
 * (kvasird's scheduler thread).  The life of a document:
 *
 *     absent -> building -> sealed -> (tail evicted) -> absent
 *
 * Only sealed blocks can be hit.  Attention inside a document is causal, so the head stays valid
 * when the tail is evicted, and only what is missing is built again.
 *
 * A request holds one `claim`: a reference on each of its documents and its own private blocks.
 * A claim is made whole or not at all; look-up, check and reference are one step.  Exactly the
 * shortfall is evicted. */
#ifndef KVPOOL_KVPOOL_H
#define KVPOOL_KVPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/histogram.h"
#include "common/status.h"
#include "kvpool/dockey.h"
#include "kvpool/evict.h"

struct catalog;
struct kvpool;
struct kvpool_doc;
struct kvpool_claim;
struct tier;
struct tier_doc;

#define KVPOOL_ANY            UINT64_MAX /* of a document: it may be any */
#define KVPOOL_BLOCKS_MAX     (1u << 28)
#define KVPOOL_CLAIM_DOCS_MAX 4096
#define KVPOOL_SPILL_AHEAD    4  /* one part in so many is free, or copied before it must go */
#define KVPOOL_SPILL_BLOCKS   64 /* of one spill */

/* Who is told which blocks may be hit, and which no longer (kvpool_watch.c): whole blocks of the
 * documents that kvpool_announce names, in order.  Everything is borrowed for the call. */
struct kvpool_watch {
    void *arg;
    /* Blocks [first, first + count) of the document and their tokens. */
    void (*stored)(void *arg, const struct dockey *key, uint32_t first, uint32_t count,
                   const uint32_t *ids);
    void (*removed)(void *arg, const struct dockey *key, uint32_t first, uint32_t count);
    /* The same of copies in the tier; NULL: never mind. */
    void (*copied)(void *arg, const struct dockey *key, uint32_t first, uint32_t count);
    void (*uncopied)(void *arg, const struct dockey *key, uint32_t first, uint32_t count);
};

struct kvpool_config {
    uint32_t block_count;  /* 1..KVPOOL_BLOCKS_MAX */
    uint32_t block_tokens; /* a power of two */
    const struct evict_policy_ops *policy;
    uint64_t seed;
    double pin_share_max; /* of the blocks; pins beyond it are refused */
    /* Where every change is noted in the same turn, for the next process; NULL: nowhere.  Empty, or
     * kvpool_adopt follows.  Outlives the pool. */
    struct catalog *catalog;
    const struct kvpool_watch *watch; /* NULL: nobody is told; outlives the pool */
    double quadratic_tokens;          /* as in struct evict_config */
    bool is_replay; /* nobody asks why a document is missing, or what is in a block */
};

enum kvpool_miss {
    KVPOOL_HIT = 0,        /* every token resident and sealed */
    KVPOOL_MISS_COLD,      /* never seen (or too long ago to remember) */
    KVPOOL_MISS_EVICTED,   /* seen before, forgotten to make room */
    KVPOOL_MISS_PARTIAL,   /* the head is resident, the tail was evicted */
    KVPOOL_MISS_BUILDING,  /* another request is building it: joined */
    KVPOOL_MISS_ABANDONED, /* its last build was lost with a worker or cancelled */
    KVPOOL_MISS_FORGOTTEN, /* an operator or client asked to forget it */
    KVPOOL_MISS_DAMAGED,   /* its memory was not what had been written there */
    KVPOOL_MISS_REASONS,
};

/* One document that a request cites; the same key may occur several times in one request. */
struct kvpool_want {
    struct dockey key;
    uint32_t n_tokens;   /* 0 is fine: no block, no document, always a hit */
    const uint32_t *ids; /* of its tokens, borrowed for the call, for the catalog; may be NULL */
    bool is_optional;    /* what is resident of it is enough; nothing is built */
    bool is_uncounted;   /* a copy: the document it is made from is wanted too, and counts */
    /* dockey_hash of the document itself, where `key` names a form of it: no tier gets it; or 0 */
    uint64_t source;
    /* A form that was computed behind others: dockey_hash of each of these, and of its form there
     * ([behind_count], borrowed for the call).  It goes with any of them. */
    const uint64_t *behind;
    uint32_t behind_count;
    /* Written by kvpool_claim: */
    struct kvpool_doc *doc;  /* NULL for an empty document; borrowed until the claim is released */
    uint32_t tokens_ready;   /* sealed tokens at the time of the claim */
    bool must_build;         /* this claim builds tokens [tokens_ready, n_tokens) */
    enum kvpool_miss reason; /* KVPOOL_MISS_BUILDING: wait for kvpool_doc_is_ready */
};

enum status kvpool_new(const struct kvpool_config *config, struct kvpool **pool_out);
void kvpool_destroy(struct kvpool **pool); /* claims must have been released */

/* Blocks that hold `tokens` tokens; UINT32_MAX if that is too large a number. */
uint32_t kvpool_blocks_for(const struct kvpool *pool, uint64_t tokens);

/* Whether the documents (repeats count once) and `own_tokens` private tokens of a request could
 * ever be resident together, were the pool empty.  ST_INVALID: never; the detail has both sizes. */
enum status kvpool_fits(const struct kvpool *pool, const struct kvpool_want *wants,
                        size_t want_count, uint64_t own_tokens);

/* Claims all documents of a request and `own_blocks` private blocks, evicting exactly the
 * shortfall.  `builder` is the caller's id of who will build what is missing, not 0; kept in the
 * document.  On failure nothing has changed and the wants' `doc` are NULL.
 * ST_NO_MEMORY: not now (detail: needed, free, evictable blocks).
 * ST_INVALID: never: more blocks than the pool has (detail: both sizes), two wants of one key with
 * different n_tokens, or more than KVPOOL_CLAIM_DOCS_MAX wants. */
enum status kvpool_claim(struct kvpool *pool, struct kvpool_want *wants, size_t want_count,
                         uint32_t own_blocks, uint64_t builder, struct kvpool_claim **claim_out);

/* Adds private blocks, evicting if needed; all or none.  ST_NO_MEMORY: too few are to be had. */
enum status kvpool_claim_grow(struct kvpool *pool, struct kvpool_claim *claim, uint32_t blocks);

/* What will be written to the private blocks has something of these documents (dockey_hash), so
 * they are erased with any of them, also when they are free.  Before anybody may write them. */
void kvpool_claim_own(struct kvpool *pool, struct kvpool_claim *claim, const uint64_t *documents,
                      size_t count);

/* The private blocks in order; borrowed until the next grow or release. */
const uint32_t *kvpool_claim_blocks(const struct kvpool_claim *claim, uint32_t *count_out);

/* The process of this incarnation may write the private blocks from now on, those to come too, and
 * the blocks that the claim builds: noted in the catalog, so that the next kvasird fences them. */
void kvpool_lend(struct kvpool *pool, struct kvpool_claim *claim, uint64_t builder,
                 uint64_t incarnation);

/* Drops the references and frees the private blocks.  Nobody may write them any more: release after
 * the worker said so, or with `fence` != 0 (the worker's incarnation): then the private blocks are
 * quarantined until kvpool_fence_lift(fence).  Blocks that the claim only read need no fence: a
 * late reader's results are dropped.  A document that this claim was building and that is not
 * sealed must have been abandoned before, or handed over with kvpool_doc_set_builder. */
void kvpool_claim_release(struct kvpool *pool, struct kvpool_claim **claim, uint64_t fence);

/* --- documents -------------------------------------------------------------------------------- */

/* Blocks of the document in token order, resident and to be built alike; borrowed while referenced.
 * The array neither moves nor changes meanwhile: a referenced document loses no block, and one that
 * is claimed with its tail missing gets the whole tail within that claim. */
const uint32_t *kvpool_doc_blocks(const struct kvpool_doc *doc, uint32_t *count_out);
const struct dockey *kvpool_doc_key(const struct kvpool_doc *doc);
uint32_t kvpool_doc_tokens(const struct kvpool_doc *doc);
uint32_t kvpool_doc_tokens_ready(const struct kvpool_doc *doc);
bool kvpool_doc_is_ready(const struct kvpool_doc *doc);     /* sealed whole */
bool kvpool_doc_is_abandoned(const struct kvpool_doc *doc); /* it will never be: claim anew */
uint64_t kvpool_doc_builder(const struct kvpool_doc *doc);  /* 0 if nobody is building */
uint32_t kvpool_doc_pins(const struct kvpool_doc *doc);
uint64_t kvpool_doc_generation(const struct kvpool_doc *doc); /* unique a build */

/* The build is complete on the device: all tokens may be hit from now on.  `origin` is the worker
 * that built it, kept for the counters.  Only for a document that is being built; fine after a
 * forget. */
void kvpool_doc_seal(struct kvpool *pool, struct kvpool_doc *doc, uint32_t origin);
uint32_t kvpool_doc_origin(const struct kvpool_doc *doc);

/* The build will not complete.  The document leaves the index at once: a later want of the key
 * starts afresh.  Its sealed head, if any, is dropped with it.  Blocks return when the last
 * reference goes, then to quarantine if `fence` is not 0 and has not been lifted meanwhile.  Only
 * for a document that is being built; fine after a forget. */
void kvpool_doc_abandon(struct kvpool *pool, struct kvpool_doc *doc, uint64_t fence);

/* Builder changes hands (its first claim was cancelled, others wait for the same work). */
void kvpool_doc_set_builder(struct kvpool_doc *doc, uint64_t builder);

/* Look without touching any policy state.  NULL if absent. */
struct kvpool_doc *kvpool_find(const struct kvpool *pool, const struct dockey *key);

/* Forgets a document: leaves the index now, pins or not; blocks return with the last reference.  A
 * build goes on for those who wait for it.  ST_NOT_FOUND. */
enum status kvpool_forget(struct kvpool *pool, const struct dockey *key);

/* The document is not what it should be: as forgotten, copies in a tier too, and that is the reason
 * of its next miss. */
void kvpool_drop_damaged(struct kvpool *pool, struct kvpool_doc *doc);

/* A pin keeps a sealed document's blocks until unpinned or forgotten.  Pins count.  ST_NOT_FOUND;
 * ST_UNAVAILABLE while not sealed whole; ST_NO_MEMORY beyond pin_share_max (detail: both sizes). */
enum status kvpool_pin(struct kvpool *pool, const struct dockey *key);
enum status kvpool_unpin(struct kvpool *pool, const struct dockey *key);

/* --- advice to the policy --------------------------------------------------------------------- */

/* A request that waits cites these documents, here or not: until kvpool_unawait with the same wants
 * they go only when nothing else is left.  ST_NO_MEMORY: not noted, so not to be taken back. */
enum status kvpool_await(struct kvpool *pool, const struct kvpool_want *wants, size_t want_count);
void kvpool_unawait(struct kvpool *pool, const struct kvpool_want *wants, size_t want_count);

/* How much an operator cares, 0..EVICT_PRIORITY_MAX; EVICT_PRIORITY_DEFAULT is as everybody, ten
 * more double a document's value, ten less halve it.  Here or not, and as long as the policy
 * remembers the document.  ST_INVALID: out of range; ST_UNAVAILABLE: the policy knows none. */
enum status kvpool_prioritize(struct kvpool *pool, const struct dockey *key, uint32_t priority);

/* What the policy has learned, to be kept over a restart: the next part of it, see evict.h.
 * kvpool_policy_save_max bounds its bytes; 0 if the policy keeps nothing, and then nothing is
 * saved. */
size_t kvpool_policy_save_max(const struct kvpool *pool);
void kvpool_policy_save(const struct kvpool *pool, struct evict_saving *saving, void *bytes,
                        size_t max, uint32_t records);
/* For a pool that has seen no claim yet; documents may have been adopted, before or after: they
 * find their history by their key.  ST_INVALID with nothing changed: another policy's, or damaged.
 */
enum status kvpool_policy_restore(struct kvpool *pool, const void *bytes, size_t size);

/* The policy itself, for what it can show. */
const struct evict_policy *kvpool_policy(const struct kvpool *pool);

/* Evicts `blocks` blocks, or as many as can go; returns how many.  For operators and tests. */
uint32_t kvpool_evict(struct kvpool *pool, uint32_t blocks);

/* Frees up to `blocks` of the document's, from its tail.  ST_NOT_FOUND; ST_UNAVAILABLE: it is
 * pinned or in use. */
enum status kvpool_evict_doc(struct kvpool *pool, const struct dockey *key, uint32_t blocks,
                             uint32_t *blocks_out);

/* --- turns: what a request leaves for its follow-up ------------------------------------------- */

/* Private blocks [first, first + count) of a claim become a sealed document of whole blocks, which
 * remembers its ids ([count * block_tokens], copied).  `key` must not be in the index.  The worker
 * must have let go of the claim.  ST_NO_MEMORY with nothing changed. */
enum status kvpool_keep_own(struct kvpool *pool, struct kvpool_claim *claim, uint32_t first,
                            uint32_t count, const struct dockey *key, const uint32_t *ids,
                            uint32_t origin);

/* The documents (dockey_hash) that a turn was computed over.  ST_NO_MEMORY: it may be any. */
enum status kvpool_turn_set_cites(struct kvpool *pool, const struct dockey *key,
                                  const uint64_t *cites, uint32_t count);

/* The ids of such a document, borrowed as long as it is there; NULL for any other. */
const uint32_t *kvpool_doc_ids(const struct kvpool_doc *doc);

/* --- integrity (kvpool_integrity.c) ----------------------------------------------------------- */

/* The checksum of a sealed block (kernels/kv_checksum.h); 0: not known. */
uint64_t kvpool_block_content(const struct kvpool *pool, uint32_t block);

/* Those of blocks [first, first + count) of a document; before its seal, or later. */
void kvpool_doc_set_contents(struct kvpool *pool, const struct kvpool_doc *doc, uint32_t first,
                             const uint64_t *sums, uint32_t count);

/* The document whose turn it is to be read again, all of them in a circle; NULL: none now.  After a
 * restart the adopted ones come first. */
struct kvpool_doc *kvpool_next_to_check(struct kvpool *pool);
bool kvpool_doc_is_adopted(const struct kvpool_doc *doc); /* and not compared since */

/* What reading its first `count` blocks again gave, at some time while it was of this generation.
 * False: it is in other blocks now, so that says nothing.  Blocks without a sum get theirs; counts
 * those that are not what they should be. */
bool kvpool_doc_compare(struct kvpool *pool, struct kvpool_doc *doc, const uint32_t *blocks,
                        const uint64_t *sums, uint32_t count, uint32_t *damaged_out);

/* --- erasure (kvpool_erase.c) ----------------------------------------------------------------- */

/* What is there of a document. */
struct kvpool_forgotten {
    uint32_t documents;   /* itself, copies at other places, turns computed over it */
    uint32_t remnants;    /* blocks of none of these that hold it: free, fenced, lost */
    uint32_t blocks;      /* that will be overwritten, with those */
    uint32_t host_blocks; /* of a tier, that will be overwritten */
};

/* All of it leaves the index now, pins or not; its blocks are overwritten before anybody else gets
 * them, those of documents with references when the last one goes.  `erasure`: the caller's number,
 * of no fence and no other erasure.  ST_NOT_FOUND: nothing is there. */
enum status kvpool_erase(struct kvpool *pool, const struct dockey *key, uint64_t erasure,
                         struct kvpool_forgotten *forgotten_out);

/* The same for all that is of none of the documents in the index: free blocks, fenced ones, what is
 * read and out of the index; and for copies in a tier.  ST_NO_MEMORY. */
enum status kvpool_erase_remnants(struct kvpool *pool, const struct dockey *key, uint64_t erasure,
                                  struct kvpool_forgotten *forgotten_out);

/* Whether a document is, or stems from, the one with that key. */
bool kvpool_doc_stems_from(const struct kvpool_doc *doc, const struct dockey *key);

/* The document (dockey_hash) that a document's blocks have something of; KVPOOL_ANY: of several. */
uint64_t kvpool_doc_owner(const struct kvpool_doc *doc);

/* All forms of a damaged document are dropped as damaged, turns over it and what is being built of
 * it too: what was made of it may be as wrong.  How many. */
uint32_t kvpool_drop_stemming(struct kvpool *pool, const struct dockey *key);

/* It has taken blocks with something of a document that was erased since: they are erased in its
 * end, unless whoever writes them has wiped them all by then.  Its own; or those of its documents
 * too. */
bool kvpool_claim_is_tainted(const struct kvpool_claim *claim, bool with_documents);
/* The last erasure has found such blocks. */
bool kvpool_has_tainted(const struct kvpool *pool, uint64_t erasure);

/* There are blocks with something of the document that are to be overwritten, for whatever erasure.
 */
bool kvpool_is_erasing(const struct kvpool *pool, const struct dockey *key);

/* The next blocks to be overwritten: by the process of incarnation `eraser`, asked by message
 * `erase`.  Borrowed until kvpool_erased says that it is done.  NULL: none. */
const uint32_t *kvpool_next_erasure(struct kvpool *pool, uint64_t erase, uint64_t eraser,
                                    uint32_t *count_out);
/* The same of the tier's: places. */
const uint32_t *kvpool_next_tier_erasure(struct kvpool *pool, uint64_t erase, uint64_t eraser,
                                         uint32_t *count_out);
/* They are free now; how many. */
uint32_t kvpool_erased(struct kvpool *pool, uint64_t erase);
/* That process is lost: another is to be asked, once it is gone. */
void kvpool_lose_eraser(struct kvpool *pool, uint64_t eraser);

/* --- a further level (kvpool_tier.c) ---------------------------------------------------------- */

/* Copies go there and come back from now on; the pool's, destroyed with it. */
void kvpool_use_tier(struct kvpool *pool, struct tier *tier);
struct tier *kvpool_tier(const struct kvpool *pool); /* NULL: none */

/* What a block of a document is worth in a tier, as the policy sees it; for tier_host_config.  The
 * policy ranks both levels if kvpool_ranks_tiers says so. */
double kvpool_worth(const void *pool, const struct dockey *key);
bool kvpool_ranks_tiers(const struct kvpool *pool);

/* Sealed blocks to be copied into the tier by the process `writer`, before they are evicted. */
struct kvpool_spill {
    uint64_t id;
    uint32_t count;
    bool is_summed;                  /* the pool knows the sums of all of them */
    const uint32_t *blocks, *places; /* [count] borrowed until the end of the spill */
};

/* The next blocks that ought to be copied: of who would be evicted next and has no copy, as long as
 * less than KVPOOL_SPILL_AHEAD of the pool is free or copied.  False: none now.  The blocks are not
 * held: an eviction takes them whenever it wants, and what it took does not count as copied. */
bool kvpool_spill_next(struct kvpool *pool, uint64_t writer, struct kvpool_spill *spill_out);

/* The writer has copied the first `count` blocks, which have these sums (0: not looked at), and
 * touches the others' places no more.  False: there is no such spill of that writer. */
bool kvpool_spill_end(struct kvpool *pool, uint64_t id, uint64_t writer, uint32_t count,
                      uint64_t *sums);

/* The writer is lost: the places are free after kvpool_fence_lift(writer). */
void kvpool_spills_lost(struct kvpool *pool, uint64_t writer);

/* The copies that a build can take instead of computing. */
struct kvpool_load {
    struct tier_doc *copy;
    uint32_t count;   /* blocks, behind those that are ready */
    uint32_t *places; /* [count] */
    uint64_t *sums;   /* [count] what they must be */
};

/* How many blocks of a document that is being built, behind those that are ready, have copies. */
uint32_t kvpool_loadable(const struct kvpool *pool, const struct kvpool_doc *doc);
/* Holds their places until kvpool_load_end.  ST_NO_MEMORY. */
enum status kvpool_load_begin(struct kvpool *pool, const struct kvpool_doc *doc,
                              struct kvpool_load **load_out);
/* `is_bad`: not what they should be; the copy is forgotten.  NULL is fine. */
void kvpool_load_end(struct kvpool *pool, struct kvpool_load **load, bool is_bad);

/* --- fences ----------------------------------------------------------------------------------- */

/* The process behind `fence` is gone for certain: its quarantined blocks are free.  Returns how
 * many.  What is released later is released with fence 0. */
uint32_t kvpool_fence_lift(struct kvpool *pool, uint64_t fence);

/* --- after a restart -------------------------------------------------------------------------- */

struct kvpool_adopted {
    uint32_t documents, blocks; /* back in the index, sealed */
    uint32_t blocks_dropped;    /* in the catalog, but not part of a document's head, or torn */
    uint32_t blocks_fenced;     /* some process may still write them: in quarantine */
};

/* Whether the process of this incarnation may still write its blocks. */
typedef bool (*kvpool_may_write_fn)(void *arg, uint64_t incarnation);

/* Fills a pool that is empty with what its catalog says, record by record: each document's head
 * that verifies.  What is lent to a process that may still write goes to quarantine under its
 * incarnation as the fence.  ST_NO_MEMORY: the pool is of no use then. */
enum status kvpool_adopt(struct kvpool *pool, kvpool_may_write_fn may_write, void *arg,
                         struct kvpool_adopted *adopted_out);

/* Notes nothing any more: the catalog stays as it is, for the next process. */
void kvpool_leave_catalog(struct kvpool *pool);

/* A worker has kept a request over the restart: its private blocks, fenced by kvpool_adopt under
 * its incarnation, become those of a claim that has none yet, in that order.  ST_INVALID with
 * nothing changed: not all of them are fenced so; ST_NO_MEMORY. */
enum status kvpool_claim_regain(struct kvpool *pool, struct kvpool_claim *claim, uint64_t fence,
                                const uint32_t *blocks, uint32_t count);

/* --- telling others -------------------------------------------------------------------------- */

/* Tells the watch of a document's sealed blocks that it has not heard of; their end it hears by
 * itself.  `ids`: all of the document's tokens.  For one out of the index nothing is told. */
void kvpool_announce(struct kvpool *pool, struct kvpool_doc *doc, const uint32_t *ids);

/* The same for all documents of an adopted pool whose tokens the catalog knows.  ST_NO_MEMORY. */
enum status kvpool_announce_adopted(struct kvpool *pool);

/* --- numbers ---------------------------------------------------------------------------------- */

struct kvpool_stats {
    uint32_t block_count, block_tokens;
    uint32_t blocks_free;
    uint32_t blocks_docs; /* sealed, building, or out of the index and still referenced */
    uint32_t blocks_own;  /* private to requests */
    uint32_t blocks_quarantined;
    uint32_t blocks_pinned;
    uint32_t blocks_evictable;
    uint32_t documents; /* in the index */
    uint64_t doc_hits;  /* wants, each counted once, when its claim succeeded */
    uint64_t doc_misses[KVPOOL_MISS_REASONS]; /* [KVPOOL_HIT] stays 0 */
    uint64_t tokens_hit, tokens_missed;
    uint64_t blocks_evicted, docs_evicted;
    uint64_t blocks_uncopied; /* of them, those that left no copy in the tier there is */
    uint64_t docs_built;      /* sealed builds */
    uint64_t turns_kept;      /* of requests' own blocks */
    uint64_t claims_refused;  /* for want of blocks */
};

void kvpool_stats(const struct kvpool *pool, struct kvpool_stats *stats_out);

#define KVPOOL_RESIDENCY_LEVELS 24 /* 0, 1, 2..3, 4..7, ... claims */

/* How many documents that were evicted whole had stayed for so many claims. */
void kvpool_residency(const struct kvpool *pool, uint64_t counts_out[KVPOOL_RESIDENCY_LEVELS]);

/* In seconds, if somebody says what time it is. */
struct kvpool_ages {
    struct histogram lifetime_s;  /* from sealed to evicted, of documents that went whole */
    struct histogram idle_s;      /* from its last use to evicted */
    struct histogram reuse_gap_s; /* between two uses while it is here */
};

/* The time of what follows; the pool reads no clock. */
void kvpool_set_now(struct kvpool *pool, uint64_t now_us);
const struct kvpool_ages *kvpool_ages(const struct kvpool *pool);

struct kvpool_doc_info {
    struct dockey key;
    uint32_t n_tokens, tokens_ready, blocks_resident, references, pins;
    uint32_t blocks_copied; /* of its head, into the tier */
    bool is_building;
    uint64_t hits;
};

#define KVPOOL_ALIKE_IDS 8

struct kvpool_alike {
    struct dockey key;
    uint32_t n_tokens;
    uint32_t first_difference;                                /* as many tokens are the same */
    uint32_t here[KVPOOL_ALIKE_IDS], there[KVPOOL_ALIKE_IDS]; /* what follows in both */
    uint32_t here_count, there_count;
};

/* The resident document that begins with the most tokens of this one.  False: there is none, this
 * one is not resident, or its tokens are not known.  Looks at every document: for operators. */
bool kvpool_most_alike(const struct kvpool *pool, const struct dockey *key,
                       struct kvpool_alike *out);

/* Of the document with this key, or false: it is not here. */
bool kvpool_doc_info(const struct kvpool *pool, const struct dockey *key,
                     struct kvpool_doc_info *info_out);

/* Walks the documents in no order; `cursor` starts at KVPOOL_WALK.  False at the end.  Documents
 * may come and go meanwhile: one that is here all the time is shown, and perhaps twice. */
#define KVPOOL_WALK UINT32_MAX
bool kvpool_next_doc(const struct kvpool *pool, uint32_t *cursor, struct kvpool_doc_info *info_out);

/* Checks every invariant (each block has exactly one owner, counts agree, ...) and aborts with a
 * message if one is broken.  O(pool); tests and `--check-pool`. */
void kvpool_check(const struct kvpool *pool);

#endif
