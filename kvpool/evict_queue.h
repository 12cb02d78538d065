/* SPDX-License-Identifier: Apache-2.0 */
/* evict_queue - the queues of S3-FIFO and ARC: documents in order, of which some cannot go now.
 *
 * Both policies order all documents, also those in use.  Walking past a thousand documents in use
 * at every eviction would be slow, so one that cannot go is taken out when it is met at the old
 * end, and put back there when it can: its turn had come.  One that a waiting request needs is
 * sheltered in the same way, and offered when no other is left.
 *
 * Uses evict_doc.link, .place and .mark (the number of its queue; 0: none). */
#ifndef KVPOOL_EVICT_QUEUE_H
#define KVPOOL_EVICT_QUEUE_H

#include "kvpool/evict.h"
#include "kvpool/ghosts.h"

struct evict_queue {
    struct list_node oldest_first;
    uint64_t blocks; /* of whole documents, those taken out included */
};

struct evict_queues {
    struct evict_queue queue[3]; /* 1 and 2; 0 is not used */
    struct list_node sheltered;
};

void evict_queues_init(struct evict_queues *queues);

/* Moves a document to the young end of queue `number`, from another one or from nowhere. */
void evict_queues_move(struct evict_queues *queues, struct evict_doc *doc, uint8_t number);

/* Takes it out of its queue, if it is in one. */
void evict_queues_remove(struct evict_queues *queues, struct evict_doc *doc);

/* Its is_evictable or is_awaited has changed. */
void evict_queues_update(struct evict_queues *queues, struct evict_doc *doc);

/* The oldest that can go and is not awaited; NULL if there is none. */
struct evict_doc *evict_queues_oldest(struct evict_queues *queues, uint8_t number);

/* Writes up to `max` of those that can go and are not awaited, the oldest first; how many. */
uint32_t evict_queues_list(const struct evict_queues *queues, uint8_t number,
                           struct evict_doc **docs_out, uint32_t max);

/* When neither queue has one: an awaited document, or NULL. */
struct evict_doc *evict_queues_last_resort(struct evict_queues *queues);

/* A memory of evicted documents in order, with the blocks they had. */
struct evict_past {
    struct ghosts *ghosts; /* the reason is the number of blocks */
    uint32_t capacity;
    uint64_t blocks;
};

enum status evict_past_init(struct evict_past *past, uint32_t block_count);
void evict_past_deinit(struct evict_past *past);
void evict_past_add(struct evict_past *past, const struct evict_doc *doc);
bool evict_past_has(const struct evict_past *past, const struct evict_doc *doc);
/* Forgets it; whether it was known. */
bool evict_past_take(struct evict_past *past, const struct evict_doc *doc);
/* Forgets the oldest until at most `blocks` are left. */
void evict_past_trim(struct evict_past *past, uint64_t blocks);

#endif
