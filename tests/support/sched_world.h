/* SPDX-License-Identifier: Apache-2.0 */
/* sched_world - the real scheduler among fake clients and fake workers, on a fake clock.
 *
 * A fake worker keeps the contract of worker.proto: it takes its messages, encodes a few tokens of
 * each document, gives one token to each request whose documents are sealed and that has room, and
 * answers every Stop.  It may be killed, silenced or delayed at any point.  After every event the
 * world checks what no test wants to repeat:
 *   - a block is never given out while a living worker may still write it for somebody else;
 *   - a request's tokens arrive in order, none lost, none twice, over preemptions and lost workers;
 *   - a request ends once;
 *   - whoever reads a document's block finds there what was computed for it, also when it has been
 *   in
 *     the host tier meanwhile, whose memory may be spoiled at any time;
 *   - the oldest running request is not preempted;
 *   - the pool's own invariants. */
#ifndef TESTS_SUPPORT_SCHED_WORLD_H
#define TESTS_SUPPORT_SCHED_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/sched.h"

#define WORLD_REQUESTS_MAX 4096
#define WORLD_WORKERS_MAX  8
#define WORLD_NEVER_US     UINT64_MAX

struct world;

struct world_config {
    uint32_t block_count, block_tokens, reserve_tokens, waiting_max, context_max;
    uint32_t workers, seqs_max;
    uint32_t host_places;                  /* of the host tier; 0: none */
    uint32_t build_tokens;                 /* of each document a step */
    const struct evict_policy_ops *policy; /* NULL: lru */
    double verify_share;                   /* of the documents found, computed again */
    double rounding;   /* 0: a token's bits depend on nothing; else how far off what differs is */
    uint64_t scrub_us; /* 0: nothing is read again */
    bool is_constant_time; /* as in struct sched_config */
    bool is_quiet;         /* no invariant checks: for the benchmark */
};

struct world_ask {
    const uint32_t *docs; /* ids; document d has world_doc_tokens(d) tokens */
    uint32_t doc_count;
    uint32_t query, max_tokens;
    uint32_t priority;
    const char *tenant;  /* NULL: nobody's */
    uint32_t weight;     /* of its share; 0: 1 */
    bool is_shared;      /* its documents are of a shared corpus */
    uint64_t timeout_us; /* 0: none */
    bool is_warm;
    enum reuse_mode reuse;
    const uint32_t *query_ids; /* [query]; NULL: all the same */
    bool keep_turn;
};

struct world_request {
    bool is_ended;
    enum sched_end end;
    char message[SESSION_MESSAGE_BYTES];
    uint32_t tokens;     /* received, */
    uint64_t first_us;   /* the first one then */
    uint32_t stops_seen; /* times it was told to a worker to stop it */
    uint32_t assigns;
    uint32_t last_worker;
    struct session_usage usage;
};

struct world *world_new(struct world_config config);
void world_destroy(struct world *world); /* also checks that the pool is clean if all has ended */

struct sched *world_sched(struct world *world);
uint64_t world_now(const struct world *world);
void world_pass(struct world *world, uint64_t us); /* the clock goes on, and ticks */

/* Tokens of document `doc`: doc / 1000, so the id says it. */
uint32_t world_doc_tokens(uint32_t doc);
struct dockey world_doc_key(uint32_t doc);

uint64_t world_submit(struct world *world, struct world_ask ask);
/* One document, `query` tokens behind it, and nothing special. */
uint64_t world_ask_about(struct world *world, uint32_t doc, uint32_t query, uint32_t max_tokens);
/* Offers a document to be encoded in idle time; its end is that of the request returned. */
uint64_t world_warm(struct world *world, uint32_t doc, bool may_evict);
/* A bit of the host tier's memory flips. */
void world_spoil(struct world *world, uint32_t place);
/* From now on the worker has no memory to copy from there. */
void world_starve(struct world *world, uint32_t worker);
/* Nor, or again, to copy anything there. */
void world_refuse(struct world *world, uint32_t worker, bool is_refusing);
/* A bit of a block flips. */
void world_damage(struct world *world, uint32_t block);
/* Documents that were found damaged, and that were erased; what the last one of these was. */
uint32_t world_damaged(const struct world *world);
uint32_t world_erased(const struct world *world);
uint32_t world_brought_back(const struct world *world); /* of these, before it was told */
struct sched_forgotten world_forgotten(const struct world *world);
/* Documents.Forget of a request with that id. */
enum status world_forget(struct world *world, uint32_t doc, bool abort);
/* The same by a call of that number, and requests of lower ones still come until one says not. */
enum status world_forget_as(struct world *world, uint64_t id, uint32_t doc, bool abort);
void world_read_until(struct world *world, uint64_t oldest);
/* What operators do to a document: pin it (for ttl_us, 0: until unpinned), unpin it, forget it,
 * give it another priority.  Refusals are fine; what was refused had no effect. */
enum world_wish {
    WORLD_PIN,
    WORLD_UNPIN,
    WORLD_FORGET,
    WORLD_PRIORITIZE,
    WORLD_WISHES,
};
enum status world_steer(struct world *world, enum world_wish wish, uint32_t doc, uint32_t number);

bool world_cancel(struct world *world, uint64_t id, bool is_client_gone);
const struct world_request *world_get(const struct world *world, uint64_t id);

/* One step of a worker: takes its mail, works, reports.  False if it had nothing to do. */
bool world_step(struct world *world, uint32_t worker);
/* The same in halves: what a step reports may be delivered later, or never. */
void world_work(struct world *world, uint32_t worker);
void world_deliver(struct world *world, uint32_t worker);

/* The oldest report that waits comes twice: now, and when it is delivered. */
void world_repeat(struct world *world, uint32_t worker);
/* It never comes; with the next one the scheduler finds out, and the worker is given up. */
void world_lose(struct world *world, uint32_t worker);
/* The next one comes before it; likewise. */
void world_reorder(struct world *world, uint32_t worker);

/* Steps all living workers until nobody has anything to do or `steps_max` is reached; the rounds.
 */
uint32_t world_run(struct world *world, uint32_t steps_max);

void world_start(struct world *world, uint32_t worker);    /* a new life */
void world_silence(struct world *world, uint32_t worker);  /* the daemon gives it up; it lives */
void world_evict(struct world *world, uint32_t blocks);    /* as an operator may */
void world_kill(struct world *world, uint32_t worker);     /* its process is gone for certain */
void world_farewell(struct world *world, uint32_t worker); /* it says so and is gone */
bool world_is_alive(const struct world *world, uint32_t worker);

uint32_t world_builds_started(const struct world *world, uint32_t doc);
uint32_t world_open(const struct world *world); /* requests that have not ended */
struct kvpool_stats world_pool(struct world *world);

/* Nothing is referenced, private, quarantined or being built. */
void world_check_clean(struct world *world);

#endif
