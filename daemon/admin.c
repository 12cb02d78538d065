/* SPDX-License-Identifier: Apache-2.0 */
/* The methods of operators, and Health. */
#include "daemon/kvasird.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "kvpool/tier.h"

#include "kvasir/v1/admin.pb-c.h"
#include "kvasir/v1/health.pb-c.h"
#include "kvasir/v1/wire.pb-c.h"

#define COUNTERS_MAX      768
#define REQUESTS_SHOW_MAX 10000
#define CONFIG_BYTES_MAX  (64u << 10)

static void
reply_empty(struct kvasird *d, struct call *call, enum status st)
{
    Kvasir__V1__Empty empty = KVASIR__V1__EMPTY__INIT;

    deliver_reply(d, call, rpc_code_of(st), st == ST_OK ? NULL : status_detail(), 0, &empty.base,
                  true);
}

/* --- Stats ------------------------------------------------------------------------------------ */

struct counter_list {
    Kvasir__V1__Counter items[COUNTERS_MAX];
    Kvasir__V1__Counter *list[COUNTERS_MAX];
    size_t count;
};

static void
add_counter(struct counter_list *counters, const char *name, uint64_t value, const char *help)
{
    Kvasir__V1__Counter *counter = &counters->items[counters->count];

    if (counters->count == COUNTERS_MAX) {
        return;
    }
    kvasir__v1__counter__init(counter);
    counter->name = (char *)(uintptr_t)name; /* only packed */
    counter->help = (char *)(uintptr_t)help;
    counter->has_value = true;
    counter->value = value;
    counters->list[counters->count++] = counter;
}

static void
add_sched_counters(const struct kvasird *d, struct counter_list *counters)
{
    const struct sched_counters *c = sched_counters(d->sched);

#define ADD(name, help) add_counter(counters, #name, c->name, help);
    SCHED_COUNTERS(ADD)
#undef ADD
}

static void
add_pool_counters(const struct kvpool_stats *s, struct counter_list *counters)
{
    const uint64_t *misses = s->doc_misses;

    add_counter(counters, "doc_hits", s->doc_hits, "documents found whole, by claims");
    add_counter(counters, "doc_misses_cold", misses[KVPOOL_MISS_COLD], "never seen");
    add_counter(counters, "doc_misses_evicted", misses[KVPOOL_MISS_EVICTED], "had to make room");
    add_counter(counters, "doc_misses_partial", misses[KVPOOL_MISS_PARTIAL], "tail was evicted");
    add_counter(counters, "doc_misses_building", misses[KVPOOL_MISS_BUILDING],
                "joined another request's build");
    add_counter(counters, "doc_misses_abandoned", misses[KVPOOL_MISS_ABANDONED],
                "the last build was stopped or lost");
    add_counter(counters, "doc_misses_forgotten", misses[KVPOOL_MISS_FORGOTTEN],
                "were to be forgotten");
    add_counter(counters, "doc_misses_damaged", misses[KVPOOL_MISS_DAMAGED],
                "were not in memory what had been written there");
    add_counter(counters, "tokens_hit", s->tokens_hit, "document tokens found, by claims");
    add_counter(counters, "tokens_missed", s->tokens_missed, "document tokens not found");
    add_counter(counters, "blocks_evicted", s->blocks_evicted, "blocks freed to make room");
    add_counter(counters, "docs_evicted", s->docs_evicted, "documents that lost their last block");
    add_counter(counters, "docs_built", s->docs_built, "documents sealed");
    add_counter(counters, "claims_refused", s->claims_refused,
                "claims that found no room and waited");
}

static struct tier_stats
tier_stats(const struct kvasird *d)
{
    const struct kvpool *pool = sched_pool(d->sched);
    const struct tier *tier = pool == NULL ? NULL : kvpool_tier(pool);
    struct tier_stats stats = {0};

    if (tier != NULL) {
        tier->ops->stat(tier, &stats);
    }
    return stats;
}

static void
add_tier_counters(const struct kvasird *d, const struct kvpool_stats *pool,
                  struct counter_list *counters)
{
    struct tier_stats s = tier_stats(d);

    add_counter(counters, "blocks_uncopied", pool->blocks_uncopied,
                "blocks evicted that left no copy in the host tier");
    add_counter(counters, "host_blocks_put", s.blocks_put, "blocks copied to the host tier");
    add_counter(counters, "host_blocks_got", s.blocks_got, "blocks asked back from there");
    add_counter(counters, "host_blocks_dropped", s.blocks_dropped,
                "blocks that made room there for some worth more");
    add_counter(counters, "host_blocks_declined", s.blocks_declined,
                "blocks that were not worth a place there");
    add_counter(counters, "host_docs_bad", s.documents_bad,
                "documents that were not there what had been written");
}

static void
add_tier_gauges(const struct kvasird *d, struct counter_list *gauges)
{
    struct tier_stats s = tier_stats(d);

    add_counter(gauges, "host_block_count", s.places, "blocks that the host tier has room for");
    add_counter(gauges, "host_blocks",
                s.places - s.places_free - s.places_quarantined - s.places_writing,
                "blocks of documents there");
    add_counter(gauges, "host_blocks_writing", s.places_writing, "blocks on their way there");
    add_counter(gauges, "host_blocks_quarantined", s.places_quarantined,
                "blocks there that a lost worker may still write");
    add_counter(gauges, "host_documents", s.documents, "documents there, with a head at the least");
}

static void
add_memo_counters(const struct kvasird *d, struct counter_list *counters)
{
    struct memo_stats memo = memo_stats(d->reader.memo);

    add_counter(counters, "texts_known", memo.hits, "texts that needed no tokenising");
    add_counter(counters, "texts_tokenized", memo.misses, "texts that were tokenised");
}

static void
add_kv_event_counters(const struct kvasird *d, struct counter_list *counters)
{
    struct kv_publisher_stats events = kv_events_stats(d->kv_events);

    add_counter(counters, "kv_events_published", events.published, "batches of KV events");
    add_counter(counters, "kv_events_dropped", events.dropped, "batches that were lost here");
    add_counter(counters, "kv_events_missed", events.missed,
                "batches that a slow subscriber did not get");
    add_counter(counters, "kv_events_replayed", events.replayed, "batches sent once more");
}

static void
add_pool_gauges(const struct kvpool_stats *s, struct counter_list *gauges)
{
    add_counter(gauges, "block_count", s->block_count, "blocks of the pool");
    add_counter(gauges, "block_tokens", s->block_tokens, "tokens in a block");
    add_counter(gauges, "blocks_free", s->blocks_free, "blocks that hold nothing");
    add_counter(gauges, "blocks_docs", s->blocks_docs, "blocks of documents");
    add_counter(gauges, "blocks_own", s->blocks_own, "blocks of queries and answers");
    add_counter(gauges, "blocks_quarantined", s->blocks_quarantined,
                "blocks that a lost worker may still write");
    add_counter(gauges, "blocks_pinned", s->blocks_pinned, "blocks of pinned documents");
    add_counter(gauges, "blocks_evictable", s->blocks_evictable, "blocks that may make room");
    add_counter(gauges, "documents", s->documents, "documents in the index");
}

static void
add_gauges(const struct kvasird *d, const struct kvpool_stats *pool, struct counter_list *gauges)
{
    struct sched_gauges now = sched_gauges(d->sched);

    add_pool_gauges(pool, gauges);
    add_tier_gauges(d, gauges);
    add_counter(gauges, "requests_queued", now.waiting, "requests that wait for room or a worker");
    add_counter(gauges, "requests_kept", now.kept,
                "requests that workers have kept over a restart and whose clients have not come");
    add_counter(gauges, "requests_running", now.running, "requests that hold blocks");
    add_counter(gauges, "requests_starving", now.starving, "running requests without a next block");
    add_counter(gauges, "docs_in_quarantine", now.docs_in_quarantine,
                "documents that are refused because workers died of them");
    add_counter(gauges, "docs_being_forgotten", now.forgets + forget_count_waiting(d),
                "documents that are being erased for good");
    add_counter(gauges, "workers_ready", now.workers_ready, "workers that take requests");
    add_counter(gauges, "calls_open", calls_count(d->calls), "calls of clients without an end yet");
    add_counter(gauges, "documents_registered", memo_stats(d->reader.registered).entries,
                "documents whose ids are kept under their key");
}

/* --- Metrics: the same, and what has labels --------------------------------------------------- */

#define TIERS        2
#define LABELLED_MAX (SCHED_WORKERS_MAX * 8 + MEASURES_FINISHES + 1 + TIERS * 4)

/* Storage of counters with one label each; their names occur once for each value. */
struct labelled {
    Kvasir__V1__CounterLabel labels[LABELLED_MAX];
    Kvasir__V1__CounterLabel *lists[LABELLED_MAX];
    char values[SCHED_WORKERS_MAX][12];
    size_t count;
};

static void
add_labelled(struct counter_list *counters, struct labelled *labelled, const char *name,
             uint64_t value, const char *help, const char *label, const char *label_value)
{
    Kvasir__V1__CounterLabel *wire = &labelled->labels[labelled->count];

    if (counters->count == COUNTERS_MAX || labelled->count == LABELLED_MAX) {
        return;
    }
    kvasir__v1__counter_label__init(wire);
    wire->name = (char *)(uintptr_t)label; /* only packed */
    wire->value = (char *)(uintptr_t)label_value;
    labelled->lists[labelled->count] = wire;
    add_counter(counters, name, value, help);
    counters->items[counters->count - 1].n_labels = 1;
    counters->items[counters->count - 1].labels = &labelled->lists[labelled->count++];
}

static void
add_workers(const struct kvasird *d, struct counter_list *counters, struct counter_list *gauges,
            struct labelled *labelled)
{
    struct sched_worker_info info;

    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        const char *value = labelled->values[i];

        if (d->peers[i].state == PEER_FREE || !sched_worker_info(d->sched, i, &info)) {
            continue;
        }
        (void)snprintf(labelled->values[i], sizeof(labelled->values[i]), "%u", i);
        add_labelled(gauges, labelled, "worker_running", info.running,
                     "requests that a worker runs", "worker", value);
        add_labelled(counters, labelled, "worker_steps", info.steps, "steps of a worker's life",
                     "worker", value);
        add_labelled(counters, labelled, "worker_docs_built", info.docs_built,
                     "documents that it encoded", "worker", value);
        add_labelled(counters, labelled, "worker_tokens_built", info.tokens_built,
                     "document tokens that it encoded", "worker", value);
        add_labelled(counters, labelled, "worker_tokens_decoded", info.tokens_decoded,
                     "tokens that it drew", "worker", value);
        add_labelled(counters, labelled, "worker_docs_read", info.docs_read,
                     "documents that its requests read", "worker", value);
        add_labelled(counters, labelled, "worker_docs_read_foreign", info.docs_read_foreign,
                     "of those, built by another worker", "worker", value);
    }
}

static void
add_finishes(const struct kvasird *d, struct counter_list *counters, struct labelled *labelled)
{
    for (int i = 0; i < MEASURES_FINISHES; i++) {
        add_labelled(counters, labelled, "request_success", d->measures.finishes[i],
                     "answers by how they ended", "finished_reason",
                     measures_finish_name((enum measures_finish)i));
    }
    add_labelled(counters, labelled, "request_success",
                 sched_counters(d->sched)->requests_cancelled
                     + sched_counters(d->sched)->deadlines_passed,
                 "answers by how they ended", "finished_reason", "abort");
}

/* The same for each level that documents lie on, the host's also when there is none. */
static void
add_tiers(const struct kvasird *d, const struct kvpool_stats *pool, struct counter_list *counters,
          struct counter_list *gauges, struct labelled *labelled)
{
    struct tier_stats host = tier_stats(d);
    const struct {
        const char *name;
        uint64_t blocks, used, documents, evicted;
    } tiers[TIERS] = {
        {"device", pool->block_count, pool->blocks_docs, pool->documents, pool->blocks_evicted},
        {"host", host.places,
         host.places - host.places_free - host.places_quarantined - host.places_writing,
         host.documents, host.blocks_dropped},
    };

    for (int i = 0; i < TIERS; i++) {
        add_labelled(gauges, labelled, "tier_blocks", tiers[i].blocks, "blocks that a level has",
                     "tier", tiers[i].name);
        add_labelled(gauges, labelled, "tier_blocks_docs", tiers[i].used,
                     "blocks of documents on it", "tier", tiers[i].name);
        add_labelled(gauges, labelled, "tier_documents", tiers[i].documents,
                     "documents on it, with a head at the least", "tier", tiers[i].name);
        add_labelled(counters, labelled, "tier_blocks_evicted", tiers[i].evicted,
                     "blocks of documents that made room on it", "tier", tiers[i].name);
    }
}

void
admin_stats(struct kvasird *d, struct call *call)
{
    static struct counter_list counters, gauges; /* one thread, and large for a stack */
    static struct insight_wire insight;
    static struct measures_wire measures;
    static struct labelled labelled;
    Kvasir__V1__Histogram *histograms[2 + MEASURES_WIRE_MAX] = {&insight.residency, &insight.reuse};
    Kvasir__V1__StatsReply reply = KVASIR__V1__STATS_REPLY__INIT;
    struct kvpool_stats pool = {0};
    char version[] = PACKAGE_VERSION;

    counters.count = gauges.count = 0;
    if (sched_pool(d->sched) != NULL) {
        kvpool_stats(sched_pool(d->sched), &pool);
    }
    add_sched_counters(d, &counters);
    add_pool_counters(&pool, &counters);
    add_tier_counters(d, &pool, &counters);
    add_memo_counters(d, &counters);
    add_kv_event_counters(d, &counters);
    add_gauges(d, &pool, &gauges);
    if (call->method == METHOD_METRICS) {
        labelled.count = 0;
        add_workers(d, &counters, &gauges, &labelled);
        add_finishes(d, &counters, &labelled);
        add_tiers(d, &pool, &counters, &gauges, &labelled);
    }
    reply.n_counters = counters.count;
    reply.counters = counters.list;
    reply.n_gauges = gauges.count;
    reply.gauges = gauges.list;
    reply.version = version;
    reply.model = d->model_path;
    reply.has_uptime_ms = true;
    reply.uptime_ms = (clock_now_us() - d->started_us) / 1000;
    reply.has_is_draining = true;
    reply.is_draining = sched_gauges(d->sched).is_draining;
    insight_fill(d, &insight);
    reply.n_histograms =
        2
        + measures_fill(&d->measures,
                        sched_pool(d->sched) == NULL ? NULL : kvpool_ages(sched_pool(d->sched)),
                        &measures, histograms + 2);
    reply.histograms = histograms;
    reply.traffic = d->insight.latest == NULL ? NULL : &insight.traffic;
    deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
}

/* --- Workers, Requests ------------------------------------------------------------------------ */

static void
fill_worker(Kvasir__V1__WorkerInfo *wire, const struct kvasird *d, uint32_t worker)
{
    const struct peer_link *peer = &d->peers[worker];
    struct sched_worker_info info = {0};

    kvasir__v1__worker_info__init(wire);
    wire->has_worker = wire->has_incarnation = wire->has_pid = wire->has_heartbeat_age_ms = true;
    wire->worker = worker;
    wire->incarnation = peer->incarnation;
    wire->pid = (uint32_t)peer->pid;
    wire->heartbeat_age_ms = (clock_now_us() - peer->heard_us) / 1000;
    wire->device = (char *)(uintptr_t)peer->device; /* only packed */
    wire->state = (char *)(uintptr_t)peers_state_name(peer->state);
    if (!sched_worker_info(d->sched, worker, &info) || info.incarnation != peer->incarnation) {
        return;
    }
    if (peer->state == PEER_READY && info.is_draining) {
        wire->state = (char *)(uintptr_t) "draining";
    }
    wire->has_running = wire->has_credit = wire->has_steps = wire->has_docs_built = true;
    wire->has_tokens_built = wire->has_docs_read = wire->has_docs_read_foreign = true;
    wire->has_tokens_decoded = true;
    wire->running = info.running;
    wire->credit = info.seqs_max > info.running ? info.seqs_max - info.running : 0;
    wire->steps = info.steps;
    wire->has_rows = info.rows > 0;
    wire->rows = info.rows;
    wire->docs_built = info.docs_built;
    wire->tokens_built = info.tokens_built;
    wire->docs_read = info.docs_read;
    wire->docs_read_foreign = info.docs_read_foreign;
    wire->tokens_decoded = info.tokens_decoded;
}

static void
send_workers(struct kvasird *d, struct call *call)
{
    Kvasir__V1__WorkersReply reply = KVASIR__V1__WORKERS_REPLY__INIT;
    Kvasir__V1__WorkerInfo infos[SCHED_WORKERS_MAX];
    Kvasir__V1__WorkerInfo *list[SCHED_WORKERS_MAX];

    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        if (d->peers[i].state != PEER_FREE) {
            fill_worker(&infos[reply.n_workers], d, i);
            list[reply.n_workers] = &infos[reply.n_workers];
            reply.n_workers++;
        }
    }
    reply.workers = list;
    deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
}

static void
fill_request(Kvasir__V1__RequestInfo *wire, const struct session *session, uint64_t now_us)
{
    struct session_usage usage = session_usage(session, 1, now_us);

    kvasir__v1__request_info__init(wire);
    wire->has_id = wire->has_priority = wire->has_documents = wire->has_prompt_tokens = true;
    wire->has_completion_tokens = wire->has_age_ms = wire->has_preemptions = true;
    wire->id = session->id;
    wire->state = (char *)(uintptr_t)session_state_name(session->state); /* only packed */
    wire->priority = session->priority;
    wire->has_worker = session->claim != NULL;
    wire->worker = session->worker;
    wire->documents = (uint32_t)session->prompt.document_count;
    wire->prompt_tokens = usage.prompt_tokens;
    wire->completion_tokens = usage.completion_tokens;
    wire->age_ms = usage.total_us / 1000;
    wire->preemptions = session->preemptions;
}

static void
send_requests(struct kvasird *d, struct call *call)
{
    Kvasir__V1__RequestsReply reply = KVASIR__V1__REQUESTS_REPLY__INIT;
    struct sched_gauges now = sched_gauges(d->sched);
    size_t count = now.waiting + now.running;
    Kvasir__V1__RequestInfo *infos;
    Kvasir__V1__RequestInfo **list;

    count = count < REQUESTS_SHOW_MAX ? count : REQUESTS_SHOW_MAX;
    infos = mem_zalloc(count, sizeof(*infos));
    list = mem_zalloc(count, sizeof(Kvasir__V1__RequestInfo *));
    if (infos == NULL || list == NULL) {
        deliver_reply(d, call, RPC_RESOURCE_EXHAUSTED, "no memory for the list", 0, NULL, true);
    } else {
        for (const struct session *s = sched_next_session(d->sched, NULL);
             s != NULL && reply.n_requests < count; s = sched_next_session(d->sched, s)) {
            fill_request(&infos[reply.n_requests], s, clock_now_us());
            list[reply.n_requests] = &infos[reply.n_requests];
            reply.n_requests++;
        }
        reply.requests = list;
        deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
    }
    mem_free(infos);
    mem_free(list);
}

/* --- the rest --------------------------------------------------------------------------------- */

/* The wish is fulfilled also when there is nothing left to cancel. */
static void
cancel_request(struct kvasird *d, struct call *call, const Kvasir__V1__AdminCancelRequest *request)
{
    bool was_open = sched_cancel(d->sched, clock_now_us(), request->id, false);

    deliver(d);
    log_info("request_cancelled", "request=%llu was_open=%d", (unsigned long long)request->id,
             was_open);
    reply_empty(d, call, ST_OK);
}

static void
evict(struct kvasird *d, struct call *call, const Kvasir__V1__EvictRequest *request)
{
    Kvasir__V1__EvictReply reply = KVASIR__V1__EVICT_REPLY__INIT;
    Kvasir__V1__DocumentRef ref = KVASIR__V1__DOCUMENT_REF__INIT;
    uint64_t now_us = clock_now_us();
    struct dockey key;
    enum status st = ST_OK;

    if (request->has_key) {
        ref.has_key = true;
        ref.key = request->key;
        st = service_read_ref(d, call, &ref, &key);
        st = st != ST_OK ? st
                         : sched_evict_document(d->sched, now_us, &key,
                                                request->has_blocks ? request->blocks : UINT32_MAX,
                                                &reply.blocks);
    } else {
        reply.blocks = sched_evict(d->sched, now_us, request->blocks);
    }
    deliver(d);
    if (st != ST_OK) {
        reply_empty(d, call, st);
        return;
    }
    reply.has_blocks = true;
    log_info("evicted", "asked=%u blocks=%u", request->blocks, reply.blocks);
    deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
}

static void
drain(struct kvasird *d, struct call *call, const Kvasir__V1__DrainRequest *request)
{
    bool is_draining = !(request->has_resume && request->resume);
    enum status st = ST_OK;

    if (request->has_worker) {
        st = sched_worker_drain(d->sched, clock_now_us(), request->worker, is_draining);
        deliver(d);
    } else {
        sched_drain(d->sched, is_draining);
        serve_status(d);
    }
    log_info("drain", "worker=%d draining=%d status=%s",
             request->has_worker ? (int)request->worker : -1, is_draining, status_name(st));
    reply_empty(d, call, st);
}

/* The options in force, as --print-config would print them: "name = value" lines between comments.
 */
static size_t
read_entries(char *text, Kvasir__V1__ConfigEntry *entries, size_t count_max)
{
    size_t count = 0;
    char *rest = text;
    char *line;

    while ((line = strsep(&rest, "\n")) != NULL && count < count_max) {
        char *separator = strstr(line, " = ");

        if (line[0] == '#' || separator == NULL) {
            continue;
        }
        *separator = '\0';
        kvasir__v1__config_entry__init(&entries[count]);
        entries[count].name = line;
        entries[count].value = separator + strlen(" = ");
        count++;
    }
    return count;
}

static void
send_config(struct kvasird *d, struct call *call)
{
    Kvasir__V1__ConfigReply reply = KVASIR__V1__CONFIG_REPLY__INIT;
    Kvasir__V1__ConfigEntry entries[COUNTERS_MAX];
    Kvasir__V1__ConfigEntry *list[COUNTERS_MAX];
    char *text = mem_zalloc(CONFIG_BYTES_MAX, 1);
    FILE *out = text == NULL ? NULL : fmemopen(text, CONFIG_BYTES_MAX - 1, "w");

    if (out == NULL) {
        deliver_reply(d, call, RPC_RESOURCE_EXHAUSTED, "no memory for the options", 0, NULL, true);
    } else {
        conf_print_sample(options_conf(&d->options), out);
        (void)fclose(out);
        reply.n_entries = read_entries(text, entries, COUNTERS_MAX);
        reply.entries = list;
        for (size_t i = 0; i < reply.n_entries; i++) {
            list[i] = &entries[i];
        }
        deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
    }
    mem_free(text);
}

void
admin_call(struct kvasird *d, struct call *call, const ProtobufCMessage *request)
{
    switch (call->method) {
    case METHOD_STATS: admin_stats(d, call); break;
    case METHOD_WORKERS: send_workers(d, call); break;
    case METHOD_REQUESTS: send_requests(d, call); break;
    case METHOD_ADMIN_CANCEL:
        cancel_request(d, call, (const Kvasir__V1__AdminCancelRequest *)request);
        break;
    case METHOD_EVICT: evict(d, call, (const Kvasir__V1__EvictRequest *)request); break;
    case METHOD_DRAIN: drain(d, call, (const Kvasir__V1__DrainRequest *)request); break;
    case METHOD_CONFIG: send_config(d, call); break;
    case METHOD_RELOAD: reload_call(d, call, (const Kvasir__V1__ReloadRequest *)request); break;
    case METHOD_EXPLAIN: explain_call(d, call, (const Kvasir__V1__ExplainRequest *)request); break;
    case METHOD_EVENTS: news_listen(d, call, (const Kvasir__V1__EventsRequest *)request); break;
    case METHOD_WHATIF: insight_what_if(d, call, (const Kvasir__V1__WhatIfRequest *)request); break;
    default:
        deliver_reply(d, call, RPC_UNIMPLEMENTED, "this daemon does not serve the method", 0, NULL,
                      true);
        break;
    }
}

void
admin_health(struct kvasird *d, struct call *call)
{
    Kvasir__V1__HealthReply reply = KVASIR__V1__HEALTH_REPLY__INIT;
    struct sched_gauges now = sched_gauges(d->sched);
    bool is_serving = now.workers_ready > 0 && !now.is_draining;
    char detail[96];
    char version[] = PACKAGE_VERSION;

    if (now.is_draining) {
        (void)snprintf(detail, sizeof(detail), "draining, %u requests to go",
                       now.waiting + now.running);
    } else if (now.workers_ready == 0) {
        (void)snprintf(detail, sizeof(detail), "no worker is ready");
    } else {
        (void)snprintf(detail, sizeof(detail), "%u workers ready", now.workers_ready);
    }
    reply.has_status = true;
    reply.status =
        is_serving ? KVASIR__V1__SERVING_STATUS__SERVING : KVASIR__V1__SERVING_STATUS__NOT_SERVING;
    reply.detail = detail;
    reply.has_protocol = true;
    reply.protocol = WIRE_VERSION;
    reply.version = version;
    deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
}
