/* SPDX-License-Identifier: Apache-2.0 */
/* sched_state - what the files of the scheduler share; nobody else includes this.
 *
 *   sched.c        events: who calls what; sched_documents.c the same for operators
 *   sched_admit.c  the queue, the choice of a worker, the claim, the Assign
 *   sched_wants.c  what a request wants of the pool and tells its worker, by mode
 *   sched_background.c  documents encoded in idle time
 *   sched_sharing.c  requests over the same documents kept together, among equals
 *   sched_turns.c  own blocks kept for follow-ups, and found by them
 *   sched_tier.c   blocks to the host tier and back
 *   sched_room.c   growing answers, preemption
 *   sched_blame.c  who is to blame for the death of a worker; quarantine
 *   sched_hold.c   first uses of shared documents take as long as if they were built
 *   sched_share.c  whose turn it is among tenants
 *   sched_pace.c   who has no time left
 *   sched_workers.c  their lives
 *   sched_kept.c   requests that workers have kept over a restart
 *   sched_forget.c  documents forgotten for good
 *   sched_integrity.c  documents read again; damage
 *   sched_verify.c  documents computed again
 *   sched_close.c  ends: cancel, finish, loss of a worker; builds without an owner
 *   sched_view.c   numbers for people
 *
 * Lists: `queue` holds the waiting by priority, then turn; `waiting` the same by turn; `running`
 * whoever holds a claim, by age.  Every build in progress is in `builds` and in its owner's list.
 */
#ifndef DAEMON_SCHED_STATE_H
#define DAEMON_SCHED_STATE_H

#include "common/htab.h"
#include "common/list.h"
#include "daemon/sched.h"

struct worker {
    bool is_known; /* it has been ready, in this life or an earlier one */
    bool is_ready;
    bool is_draining;
    bool is_cordoned; /* gets nothing new until a suspect has it to himself */
    uint64_t incarnation;
    uint32_t seqs_max;
    uint32_t assigned;   /* sessions, those in the background too */
    uint32_t background; /* of them; they use no credit */
    bool has_tier;       /* it can copy to the host tier and back */
    uint32_t spills;     /* that it has not answered */
    uint32_t refusals;   /* of spills, in a row; until then it is asked for no other: */
    uint64_t next_spill_us;
    uint32_t kept;               /* requests that it runs for nobody yet: sched_kept.c */
    uint64_t last_assigned;      /* turn; spreads equal choices */
    const struct session *alone; /* a suspect that shares it with nobody; NULL: none */
    uint64_t survived;           /* the last loss that it has shown to have survived */
    struct sched_worker_info info;
};

/* A document on its way from building to sealed. */
struct build {
    uint64_t id; /* the document's generation */
    struct htab_node by_id;
    struct list_node owner_link;
    struct session *owner; /* the claim that answers for it */
    struct kvpool_doc *doc;
    uint32_t worker;
    uint32_t start;           /* tokens before it were resident */
    bool is_copy;             /* of a document at another place: nothing is computed */
    bool is_dropping;         /* StopBuild is sent */
    struct kvpool_load *load; /* blocks are copied from the host tier; NULL: none, or they came */
    uint32_t loaded;          /* tokens that came from there */
};

/* Means over answers that ended well (sched_pace.c). */
struct pace {
    uint64_t answers;
    uint64_t token_us_16, tokens_16; /* sixteenths */
};

#define VERIFY_SAMPLES_MAX 32

/* A document that was found, to be computed again. */
struct verify_sample {
    struct dockey key;
    uint64_t generation;
    struct tokens *tokens; /* one reference; NULL: none */
};

struct verify {
    struct verify_sample samples[VERIFY_SAMPLES_MAX]; /* a ring */
    uint32_t first, count;
    uint64_t drawn, builds; /* so far */
    uint64_t session;       /* that computes a second copy, or has; 0: none */
    struct dockey key;      /* of the document */
    uint64_t generation, twin_generation;
    bool is_comparing;
};

/* A document that a worker reads again; one at a time. */
struct check {
    uint64_t id; /* 0: none */
    uint32_t worker;
    uint64_t incarnation;
    struct dockey key;
    uint64_t generation;
    uint32_t *blocks; /* [capacity] as they were */
    uint32_t count, capacity;
    bool is_comparison; /* with its second copy: sched_verify.c */
};

/* What a token to build takes (sched_hold.c). */
struct build_pace {
    uint64_t builds;
    double mean_us, deviation_us;
};

struct sched {
    struct sched_config config;
    struct kvpool *pool;
    struct traffic *traffic;
    struct ttft ttft;
    struct pace pace;
    struct catalog *catalog; /* of the pool; NULL: none */
    uint32_t host_places;    /* of the host tier; 0: none */
    struct catalog *host_catalog;
    double load_us_a_block; /* of the last ones from there; 0: none came yet */
    struct htab sessions;
    struct htab builds;
    struct htab blamed; /* sched_blame.c */
    struct list_node blamed_by_age;
    uint32_t quarantined_count;
    struct list_node queue, waiting, running, ended;
    struct htab uses; /* of shared documents by tenants: sched_hold.c */
    struct list_node uses_by_age, held;
    struct build_pace build_pace;
    struct htab shares;    /* of tenants: sched_share.c */
    uint64_t turn;         /* virtual time */
    bool has_pulls;        /* some that wait have a turn_pull */
    struct list_node kept; /* struct kept */
    uint32_t expected;     /* workers that are still to come back, */
    uint64_t expected_until_us;
    struct list_node pins; /* struct pin: those that end by themselves, the next one first */
    uint32_t pin_count;    /* of them */
    uint32_t waiting_count, running_count, warm_count, starving_count, background_count;
    uint64_t next_order;
    uint64_t next_turn;
    uint64_t event;           /* counts events */
    struct list_node forgets; /* sched_forget.c */
    uint32_t forget_count;
    uint64_t forget_slots;     /* a bit each: their places in the catalog that are taken */
    uint64_t erasures, erases; /* numbers of the last ones: forgets, messages */
    uint64_t unread;           /* requests from this id on may still be submitted */
    uint64_t losses;           /* the number of the last one: sched_blame.c */
    uint64_t now_us;           /* of the last report of a worker */
    struct check check;
    struct verify verify;
    uint64_t check_id;     /* of the last one */
    uint64_t check_due_us; /* the next one, not before */
    uint64_t wakeup_us;
    bool is_draining;
    bool has_news; /* something changed that may let a waiting request in */
    struct worker workers[SCHED_WORKERS_MAX];
    struct sched_action *actions;
    size_t action_count, action_capacity;
    size_t action_need; /* at most this many can follow from one event; always <= capacity */
    char message[SESSION_MESSAGE_BYTES]; /* of a refusal at the door */
    struct sched_counters counters;
};

/* A pin that ends by itself. */
struct pin {
    struct list_node link;
    struct dockey key;
    uint64_t ends_us;
};

/* sched.c */

/* Checks a submit's prompt into a session; it is in the table of sessions and in no list.  Takes
 * the prompt over, also on failure. */
enum status sched_take_in(struct sched *sched, struct sched_submit *submit,
                          struct session **session_out);

bool sched_has_session(const struct sched *sched, uint64_t id);

/* Every event begins with the one and, if it changed anything, ends with the other. */
void sched_begin(struct sched *sched);
void sched_take_turn(struct sched *sched, uint64_t now_us);

/* Room for it was made when the session came in, so this cannot fail. */
struct sched_action *sched_push(struct sched *sched, enum sched_action_kind kind,
                                const struct session *session);
/* Takes the session out of all tables; its storage lives until the next event. */
void sched_bury(struct sched *sched, struct session *session);

/* Room for that many actions more, until action_need is lowered again. */
enum status sched_reserve_actions(struct sched *sched, size_t count);

/* sched_workers.c */

/* A worker takes requests from now on. */
void sched_make_ready(struct sched *sched, uint32_t worker, uint64_t incarnation,
                      uint32_t seqs_max);

/* sched_share.c */

bool sched_share_equal(const struct htab_node *node, const void *key);
void sched_forget_shares(struct sched *sched);
/* ST_NO_MEMORY. */
enum status sched_join_share(struct sched *sched, struct session *session, const char *tenant,
                             uint32_t weight);
void sched_leave_share(struct session *session);
/* It waits: it has a turn from then on. */
void sched_take_place(struct sched *sched, struct session *session);
void sched_leave_place(struct sched *sched, struct session *session, bool has_come_in);
bool sched_is_turn_before(const struct session *a, const struct session *b);
/* What they get back takes effect on those that wait; false: their order is as before. */
bool sched_pull_turns(struct sched *sched);
/* Refuses the last request of another tenant that has more of them in the queue; false: there is
 * none. */
bool sched_give_place(struct sched *sched, uint64_t now_us, const char *tenant, uint32_t weight);

uint64_t sched_tenant_hash(const char *tenant);
const char *sched_share_name(const struct share *share);

/* sched_hold.c */

bool sched_use_equal(const struct htab_node *node, const void *key);
void sched_forget_uses(struct sched *sched);
/* A session has all that it builds. */
void sched_note_build(struct sched *sched, const struct session *session, uint64_t now_us);
/* It comes in: if it is a first use it is held. */
void sched_hold(struct sched *sched, struct session *session, uint64_t now_us);
void sched_end_hold(struct session *session);
/* Sends those whose time has come; the time of the next one, or UINT64_MAX. */
uint64_t sched_end_holds(struct sched *sched, uint64_t now_us);
/* Its first token has come. */
void sched_note_uses(struct sched *sched, const struct session *session);

/* sched_kept.c */

/* The session takes the place of what its worker has kept of it; false: nothing is kept. */
bool sched_go_on(struct sched *sched, uint64_t now_us, struct session *session);
/* It may be that a worker that is still to come back has it. */
bool sched_is_expected(const struct sched *sched, const struct session *session, uint64_t now_us);
void sched_take_kept_released(struct sched *sched, uint32_t worker, uint64_t number);
void sched_lose_kept(struct sched *sched, uint32_t worker, uint64_t incarnation);
/* Stops those for whom nobody came; the time of the next one, or UINT64_MAX. */
uint64_t sched_end_kept(struct sched *sched, uint64_t now_us);
/* Stops those that hold blocks; false: nothing that is kept does. */
bool sched_yield_kept(struct sched *sched);
/* Stops those that read the document; NULL: all. */
void sched_drop_kept(struct sched *sched, const struct dockey *key);
/* As readers of a document that is forgotten: one, how many, how many were stopped. */
struct kept;
bool sched_kept_may_read(const struct kept *kept, const struct dockey *key);
/* A bit for each worker that has one with blocks in which something erased may be. */
uint64_t sched_tainted_kept(const struct sched *sched);
uint32_t sched_count_kept(const struct sched *sched, const struct dockey *key);
uint32_t sched_abort_kept(struct sched *sched, const struct dockey *key);

/* sched_admit.c */

/* With its claim it goes to the worker. */
void sched_start(struct sched *sched, struct session *session, uint32_t worker, uint64_t now_us);
void sched_enqueue(struct sched *sched, struct session *session);
/* Its turn is earlier now; false: it is in the queue where it was. */
bool sched_move_up(struct sched *sched, struct session *session);
/* It leaves the queue: nobody waits for its documents any more. */
void sched_unawait(struct sched *sched, struct session *session);
void sched_admit(struct sched *sched, uint64_t now_us);
/* More blocks than there are?  Then status_detail() has both sizes. */
bool sched_never_fits(const struct sched *sched, struct session *session);
/* Sends it, or of one that runs alone the next document that it has to encode. */
void sched_push_assign(struct sched *sched, struct session *session);
struct build *sched_find_build(const struct sched *sched, uint64_t id);

bool sched_has_credit(const struct worker *worker);

/* sched_sharing.c */

/* Tokens of the request's documents that running requests of a worker hold too. */
uint64_t sched_shared_tokens(const struct sched *sched, const struct session *session,
                             uint32_t worker);
/* Who may pass the first in line because it shares more with what runs; NULL: nobody. */
struct session *sched_sharing_first(const struct sched *sched);

/* sched_wants.c */

/* Lists what copies are to be made from behind what is read: of those that are not there, or of
 * all. */
void sched_list_sources(const struct sched *sched, struct session *session, bool all);
/* Fill session->segments and ->builds from the claim; builds come after what they need. */
void sched_describe_segments(struct session *session);
uint32_t sched_describe_builds(struct sched *sched, struct session *session);
/* The document is sealed: whoever watches hears of it. */
void sched_announce(struct sched *sched, const struct build *build);

/* sched_background.c */

/* Its place among all that came, those in the background too (session.order has these last). */
uint64_t sched_arrival(const struct session *session);

/* Starts a session that only builds, or ends it at once: as sched_submit_background. */
void sched_start_background(struct sched *sched, struct session *session, uint64_t now_us,
                            bool may_evict);
/* Stops all that runs in the background; false if nothing does. */
bool sched_yield_background(struct sched *sched, uint64_t now_us);

/* sched_documents.c */

/* Lets pins go whose time has come; the time of the next one, or UINT64_MAX. */
uint64_t sched_end_pins(struct sched *sched, uint64_t now_us);
void sched_forget_pins(struct sched *sched);
void sched_forget_pin_ends(struct sched *sched, const struct dockey *key);

/* sched_admit.c */

/* Into the running at once; false: it stays where it is. */
bool sched_try_admit(struct sched *sched, struct session *session, uint64_t now_us);

/* sched_turns.c */

/* Adds wants for earlier turns that a request may begin with, and lists their blocks. */
void sched_find_turns(const struct sched *sched, struct session *session);
/* Leaves the own blocks of a request that has ended well to its follow-up; its worker has let go.
 */
void sched_keep_turn(struct sched *sched, struct session *session);

/* sched_room.c */

void sched_grow(struct sched *sched, uint64_t now_us);

/* sched_forget.c */

#define SCHED_FORGOTTEN_TEXT "a document of it was forgotten"

/* Has blocks overwritten that must be, and tells who waits for that. */
void sched_erase(struct sched *sched, uint64_t now_us);
void sched_take_erased(struct sched *sched, uint32_t worker, const struct sched_step *step);
void sched_lose_wipes(struct sched *sched, uint32_t worker);
void sched_end_forgets(struct sched *sched);
/* In the catalog of a new pool; those of an earlier kvasird, in an adopted one. */
void sched_note_forgets(struct sched *sched);
void sched_resume_forgets(struct sched *sched);
/* It cites a document that is being forgotten, and came before that: it may build it again, but
 * leaves nothing that others find. */
bool sched_reads_forgotten(const struct sched *sched, const struct session *session);
/* It comes; true: a Forget that ends its readers came while it was still being read. */
void sched_note_reader(struct sched *sched, const struct session *session);
bool sched_is_reader_aborted(const struct sched *sched, const struct session *session);
/* A session that builds something, or has ended. */
void sched_note_rebuild(struct sched *sched, const struct session *session);
void sched_note_reader_end(struct sched *sched, const struct session *session);
/* A Forget that ends its readers may be of what it reads. */
bool sched_is_kept_aborted(const struct sched *sched, const struct kept *kept);
/* A request that a worker has kept is there, and no more; a session takes one up. */
void sched_note_kept(struct sched *sched, const struct kept *kept);
void sched_note_kept_end(struct sched *sched, const struct kept *kept);
void sched_note_regained(struct sched *sched, struct session *session);

/* sched_integrity.c */

/* The builds that a step has sealed, with the checksums of their blocks. */
void sched_take_sealed(struct sched *sched, uint32_t worker, const struct sched_step *step);
/* Has a worker without work read a document again, if one is due. */
void sched_scrub(struct sched *sched, uint64_t now_us);
void sched_take_checked(struct sched *sched, uint64_t now_us, const struct sched_checked *checked);
/* That worker will not answer. */
void sched_lose_checks(struct sched *sched, uint32_t worker, uint64_t incarnation);
void sched_forget_checks(struct sched *sched);
/* It leaves the pool, and who reads it begins again or ends. */
void sched_drop_damaged(struct sched *sched, uint64_t now_us, struct kvpool_doc *doc,
                        uint32_t worker, uint32_t blocks);
/* Has an idle worker compare two documents of one length; false: not now. */
bool sched_compare(struct sched *sched, const struct kvpool_doc *a, const struct kvpool_doc *b);

/* sched_verify.c */

/* A request has read its documents: some of those that it found are to be computed again. */
void sched_sample_reuse(struct sched *sched, const struct session *session);
void sched_verify(struct sched *sched, uint64_t now_us);
void sched_take_compared(struct sched *sched, uint64_t now_us, uint32_t worker,
                         const struct sched_checked *checked);
void sched_lose_comparison(struct sched *sched);
void sched_forget_samples(struct sched *sched);

/* sched_blame.c */

bool sched_blame_equal(const struct htab_node *node, const void *key);
void sched_blame(struct sched *sched, uint64_t now_us, struct session *session, bool was_alone);
/* The document is sealed, or an operator says so: it is no suspect any more. */
void sched_acquit(struct sched *sched, const struct dockey *key);
void sched_forget_blame(struct sched *sched);
/* Ends a waiting request that cites a document in quarantine; false: it cites none. */
bool sched_refuse_quarantined(struct sched *sched, struct session *session, uint64_t now_us);
/* It has to run alone: for what it did, or for a document that it would have to encode. */
bool sched_is_suspicious(const struct sched *sched, const struct session *session);
/* At a loss that was no farewell: asks the others whether they work. */
void sched_note_loss(struct sched *sched, uint32_t worker);
void sched_take_probed(struct sched *sched, uint32_t worker, uint64_t probed);
void sched_begin_alone(struct sched *sched, struct session *session);
void sched_end_alone(struct sched *sched, struct session *session);
void sched_note_progress(struct sched *sched, struct session *session);

/* sched_pace.c */

/* An answer has ended well. */
void sched_pace_note(struct sched *sched, const struct session *session, uint64_t now_us);
/* Were it started now, it would hardly end before its deadline. */
bool sched_is_hopeless(const struct sched *sched, const struct session *session, uint64_t now_us);

/* sched_close.c */

/* The client's last reply; the blocks follow when the worker has let go.  `message` is copied. */
void sched_close(struct sched *sched, uint64_t now_us, struct session *session, enum sched_end end,
                 const struct sched_result *result, const char *message);
/* The same, by a result of the worker, which lets go of the request by itself. */
void sched_close_by_worker(struct sched *sched, uint64_t now_us, struct session *session,
                           enum sched_end end, const struct sched_result *result,
                           const char *message);
/* Whether a report is the one that follows the last; if not, it came twice or one is missing. */
bool sched_is_next_step(struct sched *sched, const struct worker *worker, uint64_t step);
/* Asks the worker to let go of a running request and of the builds that were only for it. */
void sched_stop_request(struct sched *sched, struct session *session);
void sched_preempt(struct sched *sched, struct session *session);
/* The worker let go of the request, or of one of its builds: have all its blocks come back? */
void sched_settle(struct sched *sched, struct session *session);
void sched_seal_build(struct sched *sched, struct build *build);
void sched_drop_build(struct sched *sched, struct build *build);
void sched_lose_worker(struct sched *sched, uint64_t now_us, uint32_t worker, bool is_farewell);

/* sched_tier.c */

/* Gives the new pool its tier.  ST_NO_MEMORY. */
enum status sched_make_tier(struct sched *sched, kvpool_may_write_fn may_write, void *arg);
/* Sends copies to whoever can make one. */
void sched_spill(struct sched *sched);
/* Lets a build that is about to be sent take what the tier has. */
void sched_begin_load(struct sched *sched, struct build *build);
/* The build is over. */
void sched_end_load(struct sched *sched, struct build *build);
void sched_take_loaded(struct sched *sched, uint32_t worker, const struct sched_step *step);
void sched_take_spilled(struct sched *sched, uint32_t worker, const struct sched_step *step);
void sched_lose_tier(struct sched *sched, uint32_t worker);

#endif
