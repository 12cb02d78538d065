/* SPDX-License-Identifier: Apache-2.0 */
/* engine_state - what the files of the engine share; nobody else includes this.
 *
 *   engine.c           life, room, a step
 *   engine_messages.c  kvasird's messages: sequences come, wait for each other, go
 *   engine_moves.c     blocks that go to the host tier and come back
 *   engine_keep.c      requests that outlive their kvasird */
#ifndef WORKER_ENGINE_STATE_H
#define WORKER_ENGINE_STATE_H

#include "common/htab.h"
#include "common/list.h"
#include "worker/copies.h"
#include "worker/engine.h"
#include "worker/llama.h"
#include "worker/mover.h"
#include "worker/plan.h"
#include "worker/report.h"
#include "worker/sequence.h"
#include "worker/sums.h"
#include "worker/upkeep.h"

struct engine {
    struct engine_config config;
    struct sequence_limits limits;
    struct grammar_vocabulary *vocabulary; /* NULL until a request brings a schema */
    struct llama *llama;
    struct copies copies; /* of the step to come */
    struct sums sums;     /* of the builds that it completes */
    struct upkeep upkeep;

    struct list_node
        order; /* every sequence: by arrival, builds before the request that needs them */
    struct list_node gone; /* ended in the last step; its message points into them */
    struct mover *mover;   /* NULL: there is no host tier */
    uint32_t n_spills;     /* that were not reported yet */
    struct list_node told; /* mover_job.link: what the last message points into */
    struct htab requests;
    struct htab builds;
    struct htab kept; /* requests that no kvasird has taken up yet, by the engine's own number */
    uint64_t last_kept;
    struct list_node done; /* answers that are whole, the oldest first; those kept are in `kept` */
    uint32_t n_done;
    uint32_t n_kept_running;                   /* of those in `kept`; they use credit */
    Kvasir__V1__Kept **kept_list;              /* of the last report of what is kept */
    struct llama_room room;                    /* sum over the open sequences */
    struct llama_room room_made;               /* what a step has room for */
    size_t sequences_made;                     /* likewise */
    uint64_t sealed_before[ENGINE_SEALED_MAX]; /* a ring */
    uint32_t sealed_next;

    struct plan plans[2];
    struct plan *plan;            /* of the step that runs, or ran last */
    struct plan *next;            /* the other one */
    bool is_next_ready;           /* it is planned and sent, up to the tokens being drawn */
    struct sample_params *params; /* [seqs_max] */
    struct sample_result *draws;  /* [seqs_max] */
    uint64_t rows_total;          /* of all steps */
    struct report report;         /* what the next message says */
    bool is_reported;             /* the message is out; the next call starts another */
};

/* engine.c */

/* The open request or build with that id, or NULL. */
struct sequence *engine_find(const struct htab *tab, uint64_t id);
/* Room for a step with all that is open now; what was planned ahead is lost if it has to grow. */
enum status engine_make_room(struct engine *engine);
/* Adds what a sequence may need to the room, or takes it away. */
void engine_count_room(struct engine *engine, const struct sequence *seq, bool is_added);
/* The rows of a sequence in the step that is planned ahead. */
uint32_t engine_rows_ahead(const struct engine *engine, const struct sequence *seq);
/* Reports that a request has failed. */
void engine_fail(struct engine *engine, uint64_t request, const char *reason);
/* Out of the tables; its memory lives until the message of the step is out. */
void engine_retire(struct engine *engine, struct sequence *seq);
/* The last message is out: what it pointed at may go. */
void engine_forget_last_step(struct engine *engine);

/* engine_moves.c */

/* The blocks of an Assign's builds that the host tier has are on their way from now on. */
enum status engine_begin_loads(struct engine *engine, const Kvasir__V1__Assign *assign);
/* None of its blocks is written any more. */
void engine_stop_load(struct engine *engine, struct sequence *seq);
void engine_stop_spills(struct engine *engine);
void engine_apply_spill(struct engine *engine, const Kvasir__V1__Spill *spill);
/* Answered when it is done.  ST_INVALID, ST_NO_MEMORY. */
enum status engine_erase_host(struct engine *engine, const Kvasir__V1__Erase *erase);
/* What the mover has finished.  ST_DEVICE: the device is broken. */
enum status engine_take_moves(struct engine *engine);
/* The message that pointed into them is out. */
void engine_forget_moves(struct engine *engine);

/* engine_messages.c */

/* Keeps the list in order of arrival; a build goes before requests of its own age. */
void engine_link_in_order(struct engine *engine, struct sequence *seq);

/* engine_keep.c */

/* Takes one that has ended into `done`, out of the list that it is in; false: it is of no use to a
 * next kvasird. */
bool engine_keep_done(struct engine *engine, struct sequence *seq);
/* Takes the token in seq->draw of one that is kept or behind. */
void engine_take_untold(struct engine *engine, struct sequence *seq);
/* Keeps what can be kept, lets go of all else, and reports it. */
enum status engine_keep_all(struct engine *engine);
/* Ends one that is kept. */
void engine_drop_kept(struct engine *engine, uint64_t kept);
/* The Assign goes on with one that is kept.  False: it does not, and begins as any other. */
enum status engine_take_up(struct engine *engine, const Kvasir__V1__Assign *assign,
                           bool *is_taken_out);
/* Tells what has been drawn of those taken up since the last step. */
void engine_catch_up(struct engine *engine);

#endif
