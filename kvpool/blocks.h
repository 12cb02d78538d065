/* SPDX-License-Identifier: Apache-2.0 */
/* blocks - which block ids are free, and runs of those that are not.
 *
 * Every id is on the free stack or in exactly one run.  A run belongs to a document, to a claim, or
 * to quarantine: the blocks of a process that may still write them, until its fence is lifted, or
 * those that have to be overwritten before anybody else gets them.
 * Quarantine links the runs themselves, so giving blocks up never allocates and cannot fail.
 * Private to the pool. */
#ifndef KVPOOL_BLOCKS_H
#define KVPOOL_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"
#include "common/status.h"

#define BLOCKS_ANY UINT64_MAX /* of a document: it may be any; KVPOOL_ANY */

struct block_run {
    struct list_node link; /* in quarantine */
    uint64_t fence;        /* who may still write the blocks; 0 = nobody */
    uint64_t erasure;      /* they have to be overwritten for this one; 0: for none */
    uint64_t taint;        /* likewise, unless blocks_settle comes first */
    uint64_t erase;        /* the message that asks for it, and */
    uint64_t eraser;       /* who was asked; 0: nobody yet */
    uint32_t count;
    uint32_t capacity;
    uint32_t ids[]; /* [capacity], the first `count` are owned */
};

struct blocks {
    uint32_t total;
    uint32_t free_count;
    uint32_t quarantined;
    uint32_t *free_ids;          /* [total], a stack of free_count; */
    uint32_t untouched;          /* the lowest of them have held nothing yet */
    struct list_node quarantine; /* of block_run.link, with a fence */
    struct list_node erasing;    /* likewise, without one and with an erasure */
    bool has_history;            /* of blocks: the next three, else NULL */
    uint64_t *contents;          /* [total] checksums of sealed blocks; 0: not known */
    uint64_t *owners; /* [total] the document that a block holds something of, or did if it is free;
                         0: of none, BLOCKS_ANY: of several */
    uint64_t *before; /* [total] likewise its owner before, until the present one has written over
                         all of it for certain.  The catalog has both in one */
    struct catalog *catalog; /* NULL: none; the record of a block that becomes free is cleared */
};

/* Without a history nobody may ask what a block holds or held.  ST_NO_MEMORY. */
enum status blocks_init(struct blocks *blocks, uint32_t total, bool has_history);

/* Frees the stack and what is in quarantine.  A zeroed struct is fine. */
void blocks_deinit(struct blocks *blocks);

/* An empty run with room for `capacity` ids.  ST_NO_MEMORY. */
enum status block_run_new(uint32_t capacity, struct block_run **run_out);

/* Makes room for `capacity` ids; the run may move.  ST_NO_MEMORY with nothing changed. */
enum status block_run_reserve(struct block_run **run, uint32_t capacity);

/* Appends `count` free ids to a run that has room for them; they will hold something of `owner`. */
void blocks_take(struct blocks *blocks, struct block_run *run, uint32_t count, uint64_t owner);

/* The run's blocks from the one on hold something of that document. */
void blocks_own(struct blocks *blocks, const struct block_run *run, uint32_t from, uint64_t owner);

/* Whoever got the ids has written over them: nothing of an owner before is left. */
void blocks_settle(struct blocks *blocks, struct block_run *run);

/* After a restart: what the catalog says that a block may hold, and `owner` for certain (0: it is
 * in no document). */
void blocks_adopt(struct blocks *blocks, uint32_t id, uint64_t owner);

/* Frees the last `count` ids of the run. */
void blocks_give_back(struct blocks *blocks, struct block_run *run, uint32_t count);

/* Ends the run: its ids are free, or with run->fence != 0 in quarantine.  NULL is fine. */
void blocks_end_run(struct blocks *blocks, struct block_run **run);

/* Takes blocks out of quarantine into a run that has room for them, in that order.  They must be
 * there under `fence`, each in a run of its own; false: some are not, and nothing has changed.
 * `is_wanted` is scratch, [total] of false.  What had to be overwritten still has to be. */
bool blocks_regain(struct blocks *blocks, uint64_t fence, const uint32_t *ids, uint32_t count,
                   struct block_run *run, bool *is_wanted);

/* --- erasure ---------------------------------------------------------------------------------- */

/* Takes the free blocks that held `owner` out of the stack, to be overwritten for `erasure`;
 * *count_out of them.  ST_NO_MEMORY with nothing changed. */
enum status blocks_take_remnants(struct blocks *blocks, uint64_t owner, uint64_t erasure,
                                 uint32_t *count_out);

/* The same for runs in quarantine that hold any such block, when their fences are lifted; how many
 * blocks. */
uint32_t blocks_mark_fenced(struct blocks *blocks, uint64_t owner, uint64_t erasure);

/* The next run that nobody has been asked to overwrite; NULL: none.  Message `erase` asks the
 * process `eraser` for it: he may write the blocks from then on. */
const struct block_run *blocks_next_erasure(struct blocks *blocks, uint64_t erase, uint64_t eraser);

/* Overwritten, as that message asked: free.  Returns how many; 0: there is no such message. */
uint32_t blocks_erased(struct blocks *blocks, uint64_t erase);

/* That process does not answer any more; while it may live its blocks have its fence. */
void blocks_lose_eraser(struct blocks *blocks, uint64_t eraser);

/* A run that somebody has: if nobody writes over what it may hold of an owner before, it has to be
 * overwritten in its end. */
void blocks_taint(const struct blocks *blocks, struct block_run *run, uint64_t owner,
                  uint64_t erasure);

/* There are blocks with something of `owner` to be overwritten, whoever asked for it. */
bool blocks_are_erasing(const struct blocks *blocks, uint64_t owner);

/* Frees what is in quarantine under `fence`, unless it has to be overwritten first; returns how
 * many ids. */
uint32_t blocks_lift(struct blocks *blocks, uint64_t fence);

#endif
