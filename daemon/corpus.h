/* SPDX-License-Identifier: Apache-2.0 */
/* corpus - the documents that a client wants to have ready, and which of them to encode next.
 *
 * A document is known by a name (its id within a salt).  Registered again with the same tokens it
 * is unchanged, with others it takes the old one's place.  In idle time documents that are not
 * resident are encoded by weight x benefit per byte: how often they are expected to be asked for,
 * times the computation that one answer saves, over the blocks that they take.  A pinned document
 * is pinned as soon as it is resident, until its time is over.
 *
 * Pure: no clock, no socket; it looks at the pool and changes nothing there.  Not thread-safe. */
#ifndef DAEMON_CORPUS_H
#define DAEMON_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/htab.h"
#include "common/list.h"
#include "common/status.h"
#include "daemon/tokens.h"
#include "kvpool/kvpool.h"

#define CORPUS_DOCUMENTS_MAX     (1u << 20)
#define CORPUS_VERSION_BYTES_MAX 64

struct corpus;

enum corpus_state {
    CORPUS_WAITING,
    CORPUS_BUILDING,
    CORPUS_RESIDENT,
    CORPUS_NO_ROOM, /* left out: it lacks free blocks, or is larger than the pool */
    CORPUS_STATES,
};

const char *corpus_state_name(enum corpus_state state);

struct corpus_document {
    struct htab_node by_name, by_number;
    struct list_node link; /* by number */
    uint64_t number;       /* ascending; never used again */
    struct dockey name, key;
    struct dockey scope; /* whose: the same for all of a salt */
    char *id;            /* owned; may be NULL */
    char version[CORPUS_VERSION_BYTES_MAX + 1];
    struct tokens *tokens; /* one reference */
    double weight;
    bool is_pinned;       /* wanted */
    uint64_t pin_ends_us; /* 0: never */
    bool has_pin;         /* in the pool, by us */
    enum corpus_state state;
    double score;
    size_t place; /* corpus.c's */
};

struct corpus_config {
    size_t bytes_max;        /* of token ids */
    double quadratic_tokens; /* cost of n tokens ~ n + n^2 / (2 * this); 0: ~ n */
    uint32_t block_tokens;
};

enum status corpus_new(const struct corpus_config *config, struct corpus **corpus_out);
void corpus_destroy(struct corpus **corpus);

struct corpus_put {
    struct dockey name, key, scope;
    const char *id;      /* may be NULL */
    const char *version; /* "" if there is none; at most CORPUS_VERSION_BYTES_MAX */
    struct tokens *tokens;
    double weight; /* above 0 */
    bool is_pinned;
    uint64_t pin_ends_us;
};

enum corpus_change {
    CORPUS_NEW,
    CORPUS_UNCHANGED, /* the same tokens; weight, version and pin are those of the put */
    CORPUS_CHANGED,
};

struct corpus_result {
    enum corpus_change change;
    struct dockey old_key; /* CHANGED */
    bool is_old_unused;    /* no other name means it */
    bool had_pin;          /* the old one */
    bool must_unpin;       /* UNCHANGED, but a pin is not wanted any more */
};

/* ST_NO_MEMORY, with the limit. */
enum status corpus_put(struct corpus *corpus, const struct corpus_put *put,
                       struct corpus_result *result_out);

/* Drops every name of a document; how many. */
uint32_t corpus_forget(struct corpus *corpus, const struct dockey *key);

enum corpus_task {
    CORPUS_BUILD, /* its state is BUILDING now; corpus_ended follows */
    CORPUS_PIN,   /* corpus_pinned follows */
};

/* The next thing to do, best first; NULL: nothing, or nothing more before corpus_look_again.  With
 * `may_build` false only pins. */
struct corpus_document *corpus_next(struct corpus *corpus, const struct kvpool *pool,
                                    uint64_t now_us, bool may_build, enum corpus_task *task_out);
void corpus_look_again(struct corpus *corpus);

void corpus_ended(struct corpus *corpus, uint64_t number, enum corpus_state state);
void corpus_pinned(struct corpus_document *document, bool is_pinned);

struct corpus_document *corpus_find_number(struct corpus *corpus, uint64_t number);

/* Walks by number; `cursor` starts at NULL; NULL at the end. */
const struct corpus_document *corpus_walk(const struct corpus *corpus,
                                          const struct corpus_document *cursor);

struct corpus_summary {
    uint64_t count, tokens;
    uint64_t count_resident, tokens_resident;
    uint64_t count_waiting, tokens_waiting;
    uint64_t count_pinned, count_no_room;
};

struct corpus_summary corpus_summary(const struct corpus *corpus, const struct kvpool *pool);

#endif
