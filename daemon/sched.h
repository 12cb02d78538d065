/* SPDX-License-Identifier: Apache-2.0 */
/* sched - the scheduler: events and the time come in, actions go out.
 *
 * It decides who is admitted, where a request runs, who gets a block and who must give one back; it
 * is the single writer of the pool.  No socket, no clock, no thread, no device.  Each function
 * below the line "events" is one event, complete in itself: when it returns, sched_take_actions()
 * lists what has to be done, in order.  Everything an action points to is borrowed until the next
 * event.
 *
 * Promises (tests/unit/test_sched_*.c and tests/sim/test_sched_sim.c hold them):
 *   - a request ends exactly once, with one SCHED_REPLY_END;
 *   - it holds all of its documents and room for a first part of its answer, or nothing: no request
 *     waits for blocks of a request that waits for it;
 *   - the oldest running request is never preempted, so something always finishes (but if a
 *     document of it was found damaged: then it begins again);
 *   - tenants that wait get work in proportion to their weights (sched_share.c);
 *   - a waiting request is passed by at most SCHED_PASSES_MAX others out of their turn;
 *   - a document that is being built is built once, however many ask for it;
 *   - a block comes back only when no living worker can still write it. */
#ifndef DAEMON_SCHED_H
#define DAEMON_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "daemon/prompt.h"
#include "daemon/session.h"
#include "daemon/ttft.h"
#include "kvpool/kvpool.h"
#include "kvpool/traffic.h"

struct sched;

/* --- limits ----------------------------------------------------------------------------------- */

#define SCHED_WORKERS_MAX     64
#define SCHED_WAITING_MAX     65536 /* upper limit of the option max-waiting */
#define SCHED_WORKER_SEQS_MAX 4096  /* credit of one worker */
#define SCHED_DOCUMENTS_MAX   KVPOOL_CLAIM_DOCS_MAX
#define SCHED_PASSES_MAX      16   /* that may overtake a waiting request out of their turn */
#define SCHED_AHEAD_MAX       16   /* waiting requests whose documents outrank all others */
#define SCHED_TRIES_MAX       8    /* blocked requests looked at a turn, for one that fits */
#define SCHED_STRIKES_MAX     2    /* workers that died of one document or request, and it alone */
#define SCHED_LOSSES_ALONE    4    /* losses after which a request stays alone to its end */
#define SCHED_BLAMED_MAX      1024 /* documents under suspicion */
#define SCHED_QUARANTINE_US   600000000u
#define SCHED_RETRY_AFTER_MS  1000
#define SCHED_SPILLS_MAX      2    /* that a worker copies into the host tier, or is about to */
#define SCHED_SHARES_MAX      4096 /* tenants whose share is known; quiet ones go first */
#define SCHED_WEIGHT_MAX      1000
#define SCHED_USES_MAX        65536 /* of shared documents by tenants, that are remembered */
#define SCHED_PINS_MAX        16384 /* that end by themselves */
#define SCHED_FORGETS_MAX     64    /* documents that are being forgotten at once */
#define SCHED_VERIFY_ROUNDING 0.05  /* kernels/kv_compare.h, KV_COMPARE_ROUNDING_BF16 */
#define SCHED_ERASES_A_TURN   4     /* messages that ask for it */
#define SCHED_BACKGROUND_MAX  4     /* documents that an idle worker encodes unasked, at once */

struct sched_config {
    uint32_t block_tokens;
    uint32_t reserve_tokens; /* of an answer, resident at admission */
    uint32_t waiting_max;    /* at most SCHED_WAITING_MAX */
    uint32_t context_max;    /* tokens of prompt and answer; 0: no limit */
    const struct evict_policy_ops *policy;
    double pin_share_max;
    bool is_constant_time;   /* first uses of shared documents: sched_hold.c */
    double quadratic_tokens; /* as in struct evict_config */
    uint64_t seed;
    const struct kvpool_watch *watch; /* of documents that stand for themselves; NULL: nobody */
    double verify_share; /* of the documents that requests found, computed again in idle time */
    bool is_bitwise;     /* a token's result never depends on its company */
    uint64_t scrub_interval_us; /* in which every document is read again about once; 0: never */
    bool check_pool;            /* kvpool_check after every event: for tests */
};

enum status sched_new(const struct sched_config *config, struct sched **sched_out);
void sched_destroy(struct sched **sched);

/* --- actions ---------------------------------------------------------------------------------- */

/* A document the worker encodes: tokens [start, n_tokens) into its blocks. */
struct sched_build {
    uint64_t build; /* the document's generation in the pool */
    const uint32_t *ids;
    uint32_t n_tokens;
    uint32_t start;
    const uint32_t *blocks;
    uint32_t block_count;
    /* With full attention: it stands behind the first segments of its session, at `position`.
     * A copy instead: of `source_blocks`, readable after `source_build`, K rotated by `position`.
     */
    uint32_t context_segments;
    uint32_t position;
    const uint32_t *source_blocks;
    uint32_t source_count; /* 0: no copy */
    uint64_t source_build;
    const struct kvpool_load *load; /* blocks from `start` on that the host tier has; NULL: none */
};

struct sched_segment {
    uint32_t n_tokens;
    uint32_t offset;
    const uint32_t *blocks;
    uint32_t block_count;
    uint64_t build; /* readable after this build of the same worker; 0: readable */
};

enum sched_action_kind {
    SCHED_SEND_ASSIGN, /* worker: session with segments[], builds[0..build_count) */
    SCHED_SEND_GRANT,  /* worker: more own blocks for a request */
    SCHED_SEND_STOP,
    SCHED_SEND_STOP_BUILD,
    SCHED_SEND_SPILL,      /* worker: copy blocks[] into places[] of the host tier */
    SCHED_SEND_ERASE,      /* worker: overwrite these blocks */
    SCHED_REPLY_FORGOTTEN, /* whoever asked: all of it is erased */
    SCHED_SEND_CHECK,      /* worker: read these blocks again */
    SCHED_SEND_PROBE,      /* worker: show that you work */
    SCHED_TELL_DAMAGED,    /* the operator: a document was not what it should be */
    SCHED_REPLY_CHUNK,     /* client: tokens */
    SCHED_REPLY_END,       /* client: the last reply */
};

/* Why a request ended. */
enum sched_end {
    SCHED_END_OK,        /* stop or length */
    SCHED_END_CANCELLED, /* asked for by the client or an operator */
    SCHED_END_DEADLINE,
    SCHED_END_NEVER_FITS, /* more than the pool or the context has */
    SCHED_END_FULL,       /* the queue, or pinned documents leave no room: retry later */
    SCHED_END_DRAINING,
    SCHED_END_FAILED,      /* a worker said so, or two of them died of it */
    SCHED_END_QUARANTINED, /* it cites a document of which workers died */
    SCHED_END_NO_MEMORY,
    SCHED_END_DAMAGED, /* what it had answered from was found damaged */
};

enum sched_finish {
    SCHED_FINISH_NONE, /* the numbers of the wire's FinishReason */
    SCHED_FINISH_STOP,
    SCHED_FINISH_LENGTH,
    SCHED_FINISH_CANCELLED,
};

/* What a step produced for one request. */
struct sched_result {
    uint64_t request;
    const uint32_t *ids;
    size_t id_count;
    const char *text;
    size_t text_bytes;
    const void *extra; /* the shell's; passed through to the chunk */
    enum sched_finish finish;
    uint32_t own_tokens;
    uint32_t tokens_read; /* document tokens the first token's attention read; 0 otherwise */
    uint32_t own_reused;  /* likewise: own tokens that were in its first blocks already */
    const char *error;    /* NULL: none */
};

/* A document that was found damaged, and is gone. */
struct sched_damage {
    struct dockey key;
    uint32_t n_tokens;
    uint32_t origin;  /* the worker that built it */
    uint32_t blocks;  /* of it that were damaged */
    uint32_t readers; /* requests that read it at that time */
};

/* What was erased. */
struct sched_forgotten {
    struct dockey key;
    uint32_t blocks, documents, remnants, host_blocks;
    uint32_t readers_waited, readers_aborted;
    bool is_unknown; /* there was nothing, and nobody brought it */
    uint64_t elapsed_us;
};

struct sched_action {
    enum sched_action_kind kind;
    uint32_t worker;      /* SEND_*: to this worker, */
    uint64_t incarnation; /* in this life */
    uint64_t request;
    const struct session *session; /* ASSIGN, END; NULL for a request refused at the door */
    uint32_t build_count;          /* ASSIGN */
    bool is_builds_only;           /* ASSIGN: the request follows when they are sealed, or never */
    uint64_t kept;                 /* ASSIGN: goes on with that one; STOP: that one; 0: none */
    uint64_t build;                /* STOP_BUILD; the number of a CHECK, an ERASE, a PROBE */
    struct sched_forgotten forgotten;
    const uint32_t *twins;      /* CHECK: [block_count] what to compare with; NULL: nothing */
    uint32_t n_tokens;          /* CHECK: in those blocks */
    struct sched_damage damage; /* DAMAGED; `worker` found it */
    const uint32_t *blocks;     /* ASSIGN: all own blocks; GRANT: the new ones */
    uint32_t block_count;
    uint64_t spill;                    /* SPILL */
    bool is_summed;                    /* SPILL: no sums are needed */
    const uint32_t *places;            /* SPILL: [block_count] */
    const struct sched_result *result; /* CHUNK; END: the last tokens, or NULL */
    enum sched_end end;                /* END */
    const char *message;               /* END: for people, "" when all is well */
    struct session_usage usage;        /* END with a session */
};

/* What the last event asks for; to be taken once, before the next event. */
const struct sched_action *sched_take_actions(struct sched *sched, size_t *count_out);

/* --- events ----------------------------------------------------------------------------------- */

/* A request, tokenised and keyed; its contents are taken over.  `id` is the caller's and unique. */
struct sched_submit {
    uint64_t id;
    uint64_t arrival_us;  /* at the daemon, before tokenising */
    uint64_t deadline_us; /* absolute */
    uint32_t priority;    /* 0..PROMPT_PRIORITY_MAX */
    const char *tenant;   /* whose share it is; NULL, "": nobody's, which is one too */
    uint32_t weight;      /* of that share, 1..SCHED_WEIGHT_MAX; 0 is 1 */
    bool has_name;        /* the call is the same in a retry: */
    bool is_retry;
    uint8_t name[SESSION_NAME_BYTES];
    struct prompt prompt;
};

void sched_submit(struct sched *sched, uint64_t now_us, struct sched_submit *submit);

/* How many more documents may be encoded in idle time now: only workers that run no request, and
 * nobody waits. */
uint32_t sched_background_room(const struct sched *sched);

/* A prompt without a query, to be encoded in idle time, below all committed work: it starts at once
 * or ends at once (SCHED_END_FULL), and it gives way as soon as a request lacks a block.  It takes
 * free blocks only, unless it `may_evict`.  Its end is told as of any request. */
void sched_submit_background(struct sched *sched, uint64_t now_us, struct sched_submit *submit,
                             bool may_evict);

/* Ends all of them, and whatever waits for its client after a restart. */
void sched_stop_background(struct sched *sched, uint64_t now_us);

/* Ends a request.  `is_client_gone`: nobody listens, so there is no reply.  An id that is unknown
 * or has ended is fine; returns whether there was something to cancel. */
bool sched_cancel(struct sched *sched, uint64_t now_us, uint64_t id, bool is_client_gone);

/* Deadlines.  To be called no later than sched_wakeup_us() says (UINT64_MAX: not at all). */
void sched_tick(struct sched *sched, uint64_t now_us);
uint64_t sched_wakeup_us(const struct sched *sched);

/* Where the pool is noted from now on, before there is one; NULL: nowhere.  Outlives the scheduler.
 */
struct catalog;
void sched_use_catalog(struct sched *sched, struct catalog *catalog);

/* The pool that is made next has a host tier of so many blocks, noted in that catalog (NULL:
 * nowhere) and filled with what it says; 0: none.  Outlives the scheduler. */
void sched_use_host_tier(struct sched *sched, uint32_t places, struct catalog *catalog);

/* The worker, which is about to be ready, has the host tier's memory mapped. */
void sched_worker_use_tier(struct sched *sched, uint32_t worker);

/* Makes the pool from that catalog, which an earlier kvasird has left. */
enum status sched_adopt_pool(struct sched *sched, uint32_t block_count,
                             kvpool_may_write_fn may_write, void *arg,
                             struct kvpool_adopted *adopted_out);

/* Tells the watch what an adopted pool holds. */
enum status sched_announce_adopted(struct sched *sched);

/* A document that a kept request reads. */
struct sched_kept_segment {
    struct dockey key;
    uint64_t generation;
    uint32_t n_tokens;
    const uint32_t *blocks; /* [block_count] */
    uint32_t block_count;
};

/* A request of an earlier kvasird that its worker has kept. */
struct sched_kept {
    uint64_t kept; /* the worker's number for it, not 0 */
    uint8_t name[SESSION_NAME_BYTES];
    uint32_t query_tokens, answer_tokens;
    bool is_done;           /* the answer is whole */
    const uint32_t *blocks; /* [block_count] its own */
    uint32_t block_count;
    const struct sched_kept_segment *segments; /* [segment_count] */
    uint32_t segment_count;
};

struct sched_back {
    uint32_t worker;
    uint64_t incarnation;
    uint32_t seqs_max;
    const struct sched_kept *kept; /* [kept_count] */
    size_t kept_count;
    uint64_t wait_us; /* for the clients of those */
};

/* A worker of an earlier kvasird is back and ready.  Of what that one gave it it has these requests
 * and nothing else, so no other fence is due to it.  False: what it says cannot be, or there is no
 * memory for it; nothing has changed, and it is to be given up. */
bool sched_worker_back(struct sched *sched, uint64_t now_us, const struct sched_back *back);

/* So many workers of an earlier kvasird are still to come back: until then, but not longer, retries
 * wait for those who may have kept what they ask for. */
void sched_expect(struct sched *sched, uint32_t workers, uint64_t until_us);

/* What happens to the pool from now on is not noted any more: the next kvasird has it as it is. */
void sched_leave_pool(struct sched *sched);

/* The first worker of the device has made the arena.  ST_INVALID: another size than before. */
enum status sched_set_pool(struct sched *sched, uint32_t block_count);

/* The arena is lost and every worker gone: forgets all documents, pinned ones as well; requests
 * wait for the next sched_set_pool. */
void sched_drop_pool(struct sched *sched);

/* Worker `worker` (below SCHED_WORKERS_MAX) takes requests.  Each life has its own incarnation. */
void sched_worker_ready(struct sched *sched, uint64_t now_us, uint32_t worker, uint64_t incarnation,
                        uint32_t seqs_max);

/* What came of a build's load: the first `blocks` are what they should be. */
struct sched_loaded {
    uint64_t build;
    uint32_t blocks;
    uint64_t copy_us;
    bool is_unread; /* the others may be as well */
};

/* The first `sum_count` blocks of a spill are in their places. */
struct sched_spilled {
    uint64_t spill;
    uint64_t *sums; /* 0: not looked at; the scheduler's to change */
    uint32_t sum_count;
    bool is_refused;
    uint64_t copy_us;
};

/* What a worker found in the blocks of a check. */
struct sched_checked {
    uint64_t check;
    const uint64_t *sums;
    size_t sum_count;
    uint64_t differing; /* of a comparison: elements that differ in a bit, */
    float relative;     /* and by how much at the worst place */
};

struct sched_step {
    uint64_t step;          /* one more than the last of this life; 0: not numbered */
    uint32_t stop_steps;    /* that the worker needed for the Stops and StopBuilds answered here */
    const uint64_t *sealed; /* builds complete on the device */
    size_t sealed_count;
    const uint64_t *sums;   /* checksums of the blocks that those builds wrote, build after build */
    size_t sum_count;       /* 0: not told */
    const uint64_t *erased; /* answers to erasures */
    size_t erased_count;
    const struct sched_checked *checked;
    size_t checked_count;
    const struct sched_result *results;
    size_t result_count;
    const uint64_t *released; /* requests whose blocks the worker will not touch any more */
    size_t released_count;
    const uint64_t *dropped; /* answers to StopBuild */
    size_t dropped_count;
    const struct sched_loaded *loaded; /* before the seals of the same builds count */
    size_t loaded_count;
    const struct sched_spilled *spilled;
    size_t spilled_count;
    const uint64_t *kept_released; /* kept requests that it will not touch any more */
    size_t kept_released_count;
    uint64_t rows_total; /* of its life; 0: not known */
    uint64_t probed;     /* the answer to a probe; 0: none */
};

/* A message of a life that is over is dropped, and one that comes twice.  False: one before it was
 * lost, and with it tokens and blocks that it told of; this one is dropped as well, and the worker
 * is to be given up: sched_worker_lost. */
bool sched_worker_step(struct sched *sched, uint64_t now_us, uint32_t worker, uint64_t incarnation,
                       const struct sched_step *step);

/* Its requests move elsewhere.  While its process may live, the blocks it could write are fenced;
 * sched_worker_gone, when that process is gone for certain, frees them.  Gone implies lost, unless
 * it has left before: it said farewell, and that counts against no request. */
void sched_worker_lost(struct sched *sched, uint64_t now_us, uint32_t worker, uint64_t incarnation);
void sched_worker_left(struct sched *sched, uint64_t now_us, uint32_t worker, uint64_t incarnation);
void sched_worker_gone(struct sched *sched, uint64_t now_us, uint32_t worker, uint64_t incarnation);

/* A draining worker gets nothing new.  A draining daemon admits nothing new. */
enum status sched_worker_drain(struct sched *sched, uint64_t now_us, uint32_t worker,
                               bool is_draining);
void sched_drain(struct sched *sched, bool is_draining);

/* Requests that may wait; those that do already, stay. */
void sched_set_waiting_max(struct sched *sched, uint32_t waiting_max);
/* How often documents are read again; from the next one on. */
void sched_set_scrub_interval(struct sched *sched, uint64_t interval_us);

/* Operators and the Documents service.  Statuses as in kvpool.h; ST_UNAVAILABLE without a pool. */
/* A pin with an end goes by itself; ttl_us 0: it stays until unpinned. */
enum status sched_pin(struct sched *sched, uint64_t now_us, const struct dockey *key,
                      uint64_t ttl_us);
/* When the last pin of a document goes by itself; 0: none does. */
uint64_t sched_pin_ends_us(const struct sched *sched, const struct dockey *key);
enum status sched_unpin(struct sched *sched, uint64_t now_us, const struct dockey *key);
/* All forms of a document are gone for everybody, and overwritten; SCHED_REPLY_FORGOTTEN with `id`
 * tells when.  `abort` ends its readers; else they are waited for.  ST_OK: begun, or there was
 * nothing but requests that waited for it (sched_is_forgetting).  ST_NOT_FOUND; ST_UNAVAILABLE;
 * ST_NO_MEMORY: too many at once. */
enum status sched_forget(struct sched *sched, uint64_t now_us, uint64_t id,
                         const struct dockey *key, bool abort);
bool sched_is_forgetting(const struct sched *sched, uint64_t id);
/* The Forget of that document that came after call `id`, which has been read only now; 0: none. */
uint64_t sched_forgotten_after(const struct sched *sched, uint64_t id, const struct dockey *key);
/* Ids are given in the order in which requests come, but some are read longer than others: those
 * below `oldest` have all been submitted by now.  Who came before a Forget is its reader, also when
 * it is submitted later. */
void sched_read_until(struct sched *sched, uint64_t now_us, uint64_t oldest);
enum status sched_prioritize(struct sched *sched, const struct dockey *key, uint32_t priority);
uint32_t sched_evict(struct sched *sched, uint64_t now_us, uint32_t blocks);
enum status sched_evict_document(struct sched *sched, uint64_t now_us, const struct dockey *key,
                                 uint32_t blocks, uint32_t *blocks_out);

/* --- looking, without touching ---------------------------------------------------------------- */

/* What an earlier process's policy had learned, out of daemon/learned's fd, into a pool that has
 * seen no request yet.  Statuses as learned_restore. */
enum status sched_restore_learned(struct sched *sched, int fd);

/* The pool, for its numbers and documents; NULL before sched_set_pool. */
const struct kvpool *sched_pool(const struct sched *sched);

const struct sched_config *sched_config(const struct sched *sched);

/* The documents of the last requests, and how long their first tokens took. */
const struct traffic *sched_traffic(const struct sched *sched);
const struct ttft *sched_ttft(const struct sched *sched);

/* Names are stable and only grow. */
#define SCHED_COUNTERS(X)                                                                          \
    X(requests_submitted, "requests that reached the scheduler")                                   \
    X(requests_finished, "answers that ended by stop or length")                                   \
    X(requests_cancelled, "requests ended by their client or an operator, or whose client went")   \
    X(requests_refused, "requests refused: too large for the pool or the context, queue full")     \
    X(requests_failed, "requests ended by an error")                                               \
    X(deadlines_passed, "requests ended by their deadline")                                        \
    X(requests_hopeless, "of those, requests not started because no time was left for an answer")  \
    X(clients_gone, "requests ended because nobody listened any more")                             \
    X(requests_displaced,                                                                          \
      "of those refused, requests whose place in the queue another tenant got")                    \
    X(requests_held, "requests held back at their tenant's first use of a shared document")        \
    X(requests_preempted, "times a request gave its blocks back to another")                       \
    X(requests_passed, "times a waiting request was overtaken by a later one")                     \
    X(requests_requeued, "requests moved away from a lost worker")                                 \
    X(requests_resumed, "requests that went on from what their client had of an earlier attempt")  \
    X(requests_regained, "of those, requests that went on where their worker had got meanwhile")   \
    X(tokens_regained, "their tokens that were drawn while there was no kvasird")                  \
    X(requests_orphaned, "requests kept by workers over a restart, for whom nobody came")          \
    X(requests_lost_twice, "requests of which two workers died, and that failed")                  \
    X(requests_quarantined, "requests refused for a document in quarantine")                       \
    X(docs_quarantined, "documents of which two workers died")                                     \
    X(workers_lost, "lives of workers that ended by silence, death or farewell")                   \
    X(loss_events, "times that workers were lost; those that die of one thing are one")            \
    X(steps, "steps that workers reported")                                                        \
    X(stop_steps_max, "most steps that a worker needed to let go of a request")                    \
    X(prompt_tokens, "tokens of documents and queries of admitted requests")                       \
    X(completion_tokens, "tokens sent to clients")                                                 \
    X(tokens_reused, "document tokens read and not built, of ended requests")                      \
    X(tokens_built, "document tokens encoded")                                                     \
    X(tokens_copied, "document tokens copied to another place (reuse mode reencode)")              \
    X(tokens_padded, "unused slots in the last blocks of documents, of ended requests")            \
    X(docs_read, "documents read by requests")                                                     \
    X(docs_read_foreign, "documents read by requests and built by another worker")                 \
    X(builds_started, "documents sent to a worker to be encoded")                                  \
    X(builds_sealed, "documents encoded")                                                          \
    X(builds_dropped, "builds stopped because nobody waited any more")                             \
    X(builds_lost, "builds lost with their worker")                                                \
    X(builds_handed_over, "builds that went on for another request")                               \
    X(messages_late, "messages of an earlier life of a worker, or that came twice, dropped")       \
    X(messages_missed, "messages of workers that never came; the worker was given up")             \
    X(docs_warmed, "documents encoded in idle time")                                               \
    X(tokens_warmed, "their tokens")                                                               \
    X(background_stopped, "documents whose encoding in idle time gave way to a request")           \
    X(pins_ended, "pins that ended by themselves")                                                 \
    X(requests_followed_up, "requests that began with blocks of an earlier turn")                  \
    X(turn_tokens_reused, "their own tokens that were not computed again")                         \
    X(copies_made, "documents copied to another place")                                            \
    X(requests_lazy, "requests whose attention ran, in reuse mode lazy")                           \
    X(requests_reencode, "the same in mode reencode")                                              \
    X(requests_prefix, "the same in mode prefix")                                                  \
    X(requests_none, "the same in mode none")                                                      \
    X(docs_lazy, "documents in the prompts of those requests, mode lazy")                          \
    X(docs_reencode, "the same in mode reencode")                                                  \
    X(docs_prefix, "the same in mode prefix")                                                      \
    X(docs_none, "the same in mode none")                                                          \
    X(tokens_reused_lazy, "their document tokens read and not computed, mode lazy")                \
    X(tokens_reused_reencode, "the same in mode reencode, copied ones too")                        \
    X(tokens_reused_prefix, "the same in mode prefix")                                             \
    X(tokens_reused_none, "the same in mode none: 0")                                              \
    X(tokens_built_lazy, "their document tokens computed, mode lazy")                              \
    X(tokens_built_reencode, "the same in mode reencode")                                          \
    X(tokens_built_prefix, "the same in mode prefix")                                              \
    X(tokens_built_none, "the same in mode none")                                                  \
    X(spills_started, "copies to the host tier sent to a worker")                                  \
    X(spills_refused, "of them, those that it could not make")                                     \
    X(loads_started, "documents sent to a worker with blocks that the host tier has")              \
    X(loads_bad, "of them, those that did not come back whole and were computed from there on")    \
    X(loads_refused, "of them, those that a worker had no memory to copy, computed likewise")      \
    X(loads_too_slow, "documents that were computed although the host tier has them: faster")      \
    X(docs_loaded, "documents of which blocks came back from the host tier")                       \
    X(tokens_loaded, "their tokens that were not computed")                                        \
    X(host_blocks_adopted, "blocks of the host tier that were there after a restart")              \
    X(host_us_out, "microseconds of copying to the host tier")                                     \
    X(host_us_in, "microseconds of copying from there")                                            \
    X(docs_forgotten, "documents forgotten for good, with copies and turns over them")             \
    X(blocks_erased, "blocks overwritten for that")                                                \
    X(docs_checked, "documents read again in idle time and compared with their checksums")         \
    X(blocks_checked, "their blocks")                                                              \
    X(checks_void, "documents that changed while they were read again")                            \
    X(docs_verified, "documents found by requests, computed again in idle time and compared")      \
    X(docs_verify_failed, "of them, those that were not the same; counted as damaged too")         \
    X(verify_skipped, "documents that were to be computed again and changed, or found no time")    \
    X(docs_damaged, "documents whose memory was not what had been written there")                  \
    X(blocks_damaged, "their blocks that were not")                                                \
    X(readers_restarted, "requests that began again because a document was damaged")               \
    X(readers_failed, "requests ended because a document was damaged that they had answered from") \
    X(messages_odd, "results for requests that a worker does not have, dropped")

struct sched_counters {
#define SCHED_COUNTER_FIELD(name, help) uint64_t name;
    SCHED_COUNTERS(SCHED_COUNTER_FIELD)
#undef SCHED_COUNTER_FIELD
};

struct sched_gauges {
    uint32_t waiting, running, starving, docs_in_quarantine; /* running: without the background */
    uint32_t workers, workers_ready; /* that are there; that take requests: without drained ones */
    uint32_t background;
    uint32_t forgets; /* documents that are being forgotten */
    uint32_t kept;    /* over a restart, and nobody has come for them yet */
    bool is_draining;
};

const struct sched_counters *sched_counters(const struct sched *sched);
struct sched_gauges sched_gauges(const struct sched *sched);

struct sched_worker_info {
    uint64_t incarnation;
    bool is_ready, is_draining;
    uint32_t running, seqs_max;
    uint64_t rows; /* tokens that went through the model */
    uint64_t steps, docs_built, tokens_built, docs_read, docs_read_foreign, tokens_decoded;
};

/* False if the worker has never been ready. */
bool sched_worker_info(const struct sched *sched, uint32_t worker,
                       struct sched_worker_info *info_out);

/* A document that ended workers, or is suspected of it. */
struct sched_blamed {
    struct dockey key;
    uint32_t n_tokens;
    uint32_t strikes; /* workers that died while they encoded it and did nothing else */
    bool is_quarantined;
    uint64_t until_us;
    char reason[SESSION_MESSAGE_BYTES / 2];
};

/* Walks the quarantined ones, the oldest first; `cursor` starts at NULL; NULL at the end. */
const struct sched_blamed *sched_next_quarantined(const struct sched *sched,
                                                  const struct sched_blamed *cursor);

/* Whether a tenant may know that a document of a shared corpus is there: it has used it since it
 * was built.  True for all of them without is_constant_time. */
bool sched_has_used(const struct sched *sched, const char *tenant, const struct dockey *document);

/* Walks the requests in no order; `cursor` starts at NULL; NULL at the end. */
const struct session *sched_next_session(const struct sched *sched, const struct session *cursor);

#endif
