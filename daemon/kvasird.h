/* SPDX-License-Identifier: Apache-2.0 */
/* kvasird - the process's parts in one place; everything here belongs to the scheduler's thread.
 *
 * The files around it: main.c and start.c start and
 * stop, serve.c is the loop, service.c answers clients,
 * admin.c operators, peers.c talks with workers, deliver.c carries out what the scheduler decided.
 * Tokeniser threads (ingest) see `reader` only, which does not change once they run. */
#ifndef DAEMON_KVASIRD_H
#define DAEMON_KVASIRD_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/access.h"
#include "daemon/calls.h"
#include "daemon/corpus.h"
#include "daemon/estate.h"
#include "daemon/handoff.h"
#include "daemon/host_memory.h"
#include "daemon/ingest.h"
#include "daemon/insight.h"
#include "daemon/kv_events.h"
#include "daemon/learned.h"
#include "daemon/measures.h"
#include "daemon/news.h"
#include "daemon/options.h"
#include "daemon/peers.h"
#include "daemon/read_prompt.h"
#include "daemon/recent.h"
#include "daemon/registry.h"
#include "daemon/router.h"
#include "daemon/sched.h"
#include "daemon/tenants.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "proto/endpoints.h"
#include "proto/wire.h"

#include "kvasir/v1/admin.pb-c.h"
#include "kvasir/v1/documents.pb-c.h"
#include "kvasir/v1/rag.pb-c.h"

/* Documents of the corpus on their way, and how fast they went of late. */
struct warming {
    uint32_t open;
    uint64_t started_us; /* since when at least one is open */
    uint64_t busy_us, tokens;
    uint64_t look_again_us;
    bool has_warned;
};

struct kvasird {
    int argc; /* as main got them, for reload_options */
    char **argv;
    struct options options;
    char dir[ENDPOINT_PATH_MAX];
    char model_path[PATH_MAX]; /* as workers open it too */
    int lock_fd;               /* flock: one daemon a directory */
    int signal_fd;

    struct checkpoint *checkpoint;
    struct model_config model; /* with its fingerprint */
    uint8_t checkpoint_identity[32];
    struct reader reader;

    struct sched *sched;
    struct corpus *corpus;
    struct warming warming;
    struct ingest *ingest;
    struct insight insight;
    struct router *router;
    struct kv_events *kv_events; /* NULL: nobody is told */
    struct tenants *tenants;
    struct access *access; /* of those who come over a network; NULL without */
    struct calls *calls;
    struct handoff *handoff;
    uint64_t busy_until_us;                    /* no sleep before */
    struct estate estate;                      /* the pool's, once there is one */
    struct host_memory host;                   /* of the host tier */
    struct peer_link peers[SCHED_WORKERS_MAX]; /* by worker number */

    struct wire_arena *arena;           /* of the message in hand */
    struct wire_buffer header, payload; /* of the reply in hand */

    struct measures measures;
    struct recent recent;
    struct list_node listings; /* that are being made */
    struct list_node forgets;  /* that wait for what came before them to be read */
    struct news *news;
    uint64_t started_us;
    uint64_t next_beat_us;
    struct learned_saving saving;           /* of what was learned, */
    uint64_t next_save_us;                  /* and when its next part is due */
    uint64_t watchdog_us, next_watchdog_us; /* how often we say that we get on; 0: nobody asks */
    uint64_t stop_by_us;                    /* 0: not stopping; then: drained or late, we go */
    bool must_stop;
    bool has_said_farewell;
    bool leaves_pool; /* to the next kvasird, with the workers; else all ends with us */
};

/* --- start.c: everything before and after the loop -------------------------------------------- */

/* Makes the runtime directory ours: made with mode 0750, locked, stale sockets removed. */
enum status start_directory(struct kvasird *d);
/* Opens the checkpoint: config, tokenizer, template, fingerprints. */
enum status start_model(struct kvasird *d);
/* Scheduler, tokeniser threads, sockets. */
enum status start_parts(struct kvasird *d);
/* Reads the keys of --curve-clients again; what is wrong leaves the old ones in force. */
void start_reload_access(struct kvasird *d);
/* Ends open calls and undoes all of that, as far as it was done. */
void start_undo(struct kvasird *d);

/* --- adopt.c: what outlives a kvasird --------------------------------------------------------- */

/* Takes over what an earlier kvasird left: the pool, and the workers that still live. */
enum status adopt_pool(struct kvasird *d);
/* The first worker has made the arenas: from now on they are kept, with their catalog. */
void adopt_new_pool(struct kvasird *d, const struct handoff_event *event);
/* What the policy has learned, for the next kvasird: its next part when that is due, and all of it
 * before we leave. */
void adopt_save_some(struct kvasird *d, uint64_t now_us);
void adopt_save_learned(struct kvasird *d);
/* A worker's process, for the next kvasird. */
void adopt_note_worker(struct kvasird *d, const struct handoff_event *event);
void adopt_drop_worker(struct kvasird *d, uint32_t worker);
/* No worker lives: what the host tier has no record of is overwritten. */
void adopt_erase_free_host(const struct kvasird *d);

/* --- reload.c --------------------------------------------------------------------------------- */

/* Reads the options again, and takes those that may change now. */
void reload_options(struct kvasird *d);
/* The same for an operator; answers. */
void reload_call(struct kvasird *d, struct call *call, const Kvasir__V1__ReloadRequest *request);

/* --- deliver.c: actions of the scheduler, replies --------------------------------------------- */

/* Carries out what the last event asked for, and what follows from it. */
void deliver(struct kvasird *d);

/* One reply of a call.  The last one (`is_last`) closes it: the pointer is dead after that. */
void deliver_reply(struct kvasird *d, struct call *call, uint32_t code, const char *message,
                   uint32_t retry_after_ms, const ProtobufCMessage *payload, bool is_last);

/* A request's numbers, without its documents. */
void deliver_fill_usage(Kvasir__V1__Usage *wire, const struct session_usage *usage);

/* An answer for which no call was opened. */
void deliver_refusal(struct kvasird *d, const struct address *to, uint64_t client_id, uint32_t code,
                     const char *message);

/* --- service.c: the methods of clients -------------------------------------------------------- */

void service_message(struct kvasird *d, const struct message *message);
void service_ingested(struct kvasird *d);

/* Whoever has set call->is_in_hand is done with it: lost calls are closed now. */
void service_let_go(struct kvasird *d, uint64_t id);

/* Ends a call with a failure; those that may pass tell when to try again. */
void service_reply_status(struct kvasird *d, struct call *call, enum status st,
                          const char *message);

/* Whose documents a call names. */
struct service_scope {
    struct registry_scope registry;
    uint8_t salt[TENANT_SALT_BYTES]; /* what registry.salt is of a tenant */
};

/* A tenant's, or those of the salt that it says; false: of all. */
bool service_scope(const struct kvasird *d, const struct call *call, bool has_salt,
                   ProtobufCBinaryData salt, struct service_scope *scope_out);

/* One document as usage and Probe report it; borrows from `document`. */
void service_fill_document(Kvasir__V1__DocumentUsage *usage, uint32_t index,
                           const struct prompt_document *document, uint32_t tokens_ready,
                           enum kvpool_miss reason);

/* "hit", "cold", ... */
const char *service_miss_name(enum kvpool_miss reason);

/* The document that a reference names, if the caller may know of it. */
enum status service_read_ref(const struct kvasird *d, const struct call *call,
                             const Kvasir__V1__DocumentRef *ref, struct dockey *key_out);

/* --- forget_calls.c --------------------------------------------------------------------------- */

/* Answers, now or later; `message` is what the request was unpacked from. */
void forget_call(struct kvasird *d, struct call *call, const Kvasir__V1__ForgetRequest *request,
                 const struct message *message);
/* A Register has been read: true if its document has been forgotten by a call after it, so that it
 * is not to be known. */
bool forget_registered(struct kvasird *d, const struct call *call,
                       const struct prompt_document *document);
/* A message has been read: who waited for it goes on. */
void forget_after(struct kvasird *d, const struct ingest_job *job);
uint32_t forget_count_waiting(const struct kvasird *d);
void forget_deinit(struct kvasird *d);
/* A document is erased: whoever asked is told. */
void forget_reply(struct kvasird *d, const struct sched_action *action);

/* --- listing.c: what is told about documents -------------------------------------------------- */

void listing_get(struct kvasird *d, struct call *call, const struct dockey *key);
void listing_list(struct kvasird *d, struct call *call, const Kvasir__V1__ListRequest *request);
/* The next part of a list that is being made: d->listings. */
void listing_pump(struct kvasird *d);
void listing_deinit(struct kvasird *d);

/* --- corpus_calls.c: documents to have ready ---------------------------------------------------
 */

enum status corpus_register(struct kvasird *d, const struct prompt_document *document,
                            const struct registration *registration, bool *is_unchanged_out);
/* Warm in the background: a registered document becomes one of the corpus.  Answers. */
void corpus_warm(struct kvasird *d, struct call *call, const struct dockey *key,
                 const Kvasir__V1__DocumentRef *ref);
/* Answers the method Corpus. */
void corpus_describe(struct kvasird *d, struct call *call,
                     const Kvasir__V1__CorpusRequest *request);
/* Offers documents to idle workers and pins what has come; once a turn of the loop. */
void corpus_pump(struct kvasird *d);
/* The end of a request of ours; false: it is somebody's. */
bool corpus_take_end(struct kvasird *d, const struct sched_action *action);

/* --- explain.c: what became of a request ------------------------------------------------------ */

void explain_call(struct kvasird *d, struct call *call, const Kvasir__V1__ExplainRequest *request);

/* --- admin.c: the methods of operators -------------------------------------------------------- */

/* Answers; the call is closed afterwards. */
void admin_call(struct kvasird *d, struct call *call, const ProtobufCMessage *request);
void admin_health(struct kvasird *d, struct call *call);
void admin_stats(struct kvasird *d, struct call *call);

/* --- model_calls.c: what is served, and ids back to text -------------------------------------- */

void model_describe(struct kvasird *d, struct call *call);
void model_detokenize(struct kvasird *d, struct call *call,
                      const Kvasir__V1__DetokenizeRequest *request);

/* --- serve.c: the loop ------------------------------------------------------------------------ */

/* Until it is told to stop and has drained. */
enum status serve(struct kvasird *d);

/* Something has come: more may follow, see --busy-poll. */
void serve_is_busy(struct kvasird *d);

/* Tells those who listen to KV events what has changed. */
void serve_tell_events(struct kvasird *d);

/* Tells the service manager how things stand. */
void serve_status(struct kvasird *d);

#endif
