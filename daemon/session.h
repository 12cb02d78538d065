/* SPDX-License-Identifier: Apache-2.0 */
/* session - one request from its arrival to the return of its last block, as a state table.
 *
 *   state        admit     preempt      close      release   lose
 *   waiting      running   -            ended      -         -
 *   running      -         preempting   closing    -         waiting
 *   preempting   -         -            closing    waiting   waiting
 *   closing      -         -            closing    ended     ended
 *
 * `close`: the client has its last reply (finished, cancelled, deadline, failed).  `release`: the
 * worker has said that it touches none of the request's blocks any more.  `lose`: its worker is
 * silent or dead. Only running, preempting and closing hold a claim on the pool. */
#ifndef DAEMON_SESSION_H
#define DAEMON_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/htab.h"
#include "common/list.h"
#include "common/status.h"
#include "daemon/prompt.h"
#include "kvpool/kvpool.h"

#define SESSION_NAME_BYTES    32
#define SESSION_WORKER_NONE   UINT32_MAX
#define SESSION_SOURCE_NONE   UINT32_MAX
#define SESSION_TURNS_MAX     64 /* earlier turns that a follow-up reads */
#define SESSION_MESSAGE_BYTES 256
#define SESSION_TOKENS_MAX    (1u << 30) /* of one prompt */

enum session_state {
    SESSION_WAITING,
    SESSION_RUNNING,
    SESSION_PREEMPTING, /* Stop is sent; goes back to the queue when its blocks are back */
    SESSION_CLOSING,    /* the client has its end; the worker still holds blocks */
    SESSION_ENDED,
    SESSION_STATES,
};

enum session_event {
    SESSION_ADMIT,
    SESSION_PREEMPT,
    SESSION_CLOSE,
    SESSION_RELEASE,
    SESSION_LOSE,
    SESSION_EVENTS,
};

/* What the first admission found; a later one (after a preemption) must not count as a hit. */
struct session_document {
    uint32_t tokens_ready;
    enum kvpool_miss reason;
    bool is_copied; /* found, but elsewhere: a copy is made of it (mode reencode) */
};

struct sched_segment;
struct sched_build;
struct share;

struct session {
    uint64_t id;
    struct htab_node by_id;
    struct list_node queue_link; /* waiting: by priority, then age */
    struct list_node age_link;   /* waiting or running, by age */
    enum session_state state;

    struct prompt prompt;
    struct share *share; /* its tenant's; NULL: in the background */
    uint64_t turn;       /* sched_share.c; 0: it has none yet */
    uint64_t turn_cost;  /* until it comes in: what its tenant gets back if it never does, */
    uint64_t turn_pull;  /* and what its turn is about to be earlier for those that went so */
    uint64_t order;      /* age: lower is older; kept over preemptions */
    uint32_t priority;
    bool has_name; /* over a restart of kvasird it is known by that */
    bool is_retry;
    uint8_t name[SESSION_NAME_BYTES];
    uint64_t kept;      /* the worker's number for what it goes on with; 0: it begins */
    bool is_regained;   /* it has gone on so: its times say nothing */
    bool is_background; /* encodes a document in idle time; never waits, gives way to all others */
    uint64_t hold_until_us;     /* sched_hold.c; 0: it is no first use */
    struct list_node hold_link; /* in sched->held */
    bool is_held;               /* the worker has no more than its builds */
    uint32_t tokens_hidden;
    uint32_t passed; /* those with a later turn admitted before this one */
    uint64_t arrival_us, deadline_us;
    uint64_t admitted_us, first_token_us; /* 0: not yet */
    uint32_t doc_tokens;                  /* of its documents, repeated ones repeatedly */

    /* What it wants of the pool: first what its attention reads, then what copies are made from
     * (listed anew at each admission).  `doc` is valid while there is a claim. */
    struct kvpool_want *wants; /* [wants_max] */
    uint32_t segment_count, want_count, wants_max;
    uint64_t *behind; /* [2 * segment_count] mode prefix: kvpool_want.behind, of all but the last */
    uint32_t *sources; /* [segment_count] the want that a segment is copied from, or _SOURCE_NONE */
    bool is_awaited;   /* the pool knows that the first segment_count of them are needed soon */
    /* Its first own blocks, if earlier turns have left them; wants behind all others. */
    uint32_t *turn_blocks; /* [turn_block_count] */
    uint32_t turn_block_count, turn_tokens;
    bool has_answered; /* it ended well, so its own blocks are worth keeping */
    struct kvpool_claim *claim;
    struct sched_segment *segments; /* [segment_count], for the Assign */
    struct sched_build *builds;     /* [wants_max], for the Assign */
    struct list_node owned_builds;  /* struct build: what it is building */
    uint32_t drops_pending;         /* StopBuilds that the worker has not answered */
    bool is_sent;                   /* the worker was told of its own blocks */
    bool is_released;               /* the worker let go of the request itself */

    uint32_t worker;
    uint64_t incarnation;
    uint32_t own_tokens;   /* in its own segment, as last reported */
    bool is_starving;      /* needs a block that is not there */
    uint64_t result_event; /* the event that brought its last result: one a step */

    uint32_t *sent_ids; /* [max_tokens] */
    uint32_t sent_count;
    uint64_t sent_text_bytes;

    struct session_document *documents; /* [document_count] */
    uint32_t tokens_read;               /* by the attention of the first token */
    uint32_t tokens_built;
    uint32_t tokens_copied;
    uint32_t tokens_loaded;    /* from the host tier */
    uint32_t turn_tokens_read; /* own tokens that its first step found written */
    uint32_t preemptions, losses;
    uint32_t strikes;    /* workers that died of it alone, without progress in between */
    uint32_t loss_point; /* sent_count when it lost its last worker */
    bool is_suspect;     /* runs alone until it has passed that point */
    bool is_alone;       /* does so now */
    char message[SESSION_MESSAGE_BYTES];
};

/* Takes over the prompt's contents, also on failure.  ST_INVALID: too many tokens; ST_NO_MEMORY. */
enum status session_new(uint64_t id, struct prompt *prompt, struct session **session_out);

/* It must hold no claim and be in no list.  NULL is fine. */
void session_destroy(struct session **session);

/* Moves to the next state of the table; asserts that there is one. */
void session_move(struct session *session, enum session_event event);

const char *session_state_name(enum session_state state);

/* Only builds documents: no own tokens, nothing to stream. */
bool session_is_warm(const struct session *session);

/* Tokens its own segment may come to hold: query and whole answer. */
uint32_t session_own_tokens_max(const struct session *session);

/* Logical position of its own first token. */
uint32_t session_own_offset(const struct session *session);

/* Numbers for the client, counted from what workers reported. */
struct session_usage {
    uint32_t prompt_tokens, query_tokens, completion_tokens;
    uint32_t tokens_reused, tokens_built, tokens_padded, tokens_copied;
    uint32_t tokens_loaded; /* of tokens_reused: from the host tier */
    uint32_t turn_tokens_reused;
    uint32_t tokens_hidden; /* of tokens_reused: its client is not to know */
    uint64_t queue_us, ttft_us, total_us;
    uint32_t worker, preemptions;
    uint64_t seed;
};

struct session_usage session_usage(const struct session *session, uint32_t block_tokens,
                                   uint64_t now_us);

#endif
