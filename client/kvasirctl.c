/* SPDX-License-Identifier: Apache-2.0 */
/* kvasirctl - what an operator types; see kvasirctl.1.  Most commands are one call and one table,
 * so they are rows of `views`: method, field of the reply, columns. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/cli.h"
#include "client/docs_forget.h"
#include "client/docs_warm.h"
#include "client/keygen.h"
#include "client/pbjson.h"
#include "client/sizes.h"
#include "client/table.h"
#include "kvasir/v1/admin.pb-c.h"
#include "kvasir/v1/documents.pb-c.h"
#include "kvasir/v1/health.pb-c.h"
#include "proto/endpoints.h"

#define WATCH_MS_MIN        100
#define WHATIF_POLICIES_MAX 8

/* ---- small helpers --------------------------------------------------------------------------- */

static int
bad_input(const struct cli_args *args)
{
    (void)cli_fail(args, ST_INVALID);
    return CLI_USAGE;
}

static const ProtobufCFieldDescriptor *
field_named(const ProtobufCMessage *message, const char *name)
{
    return protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);
}

/* The rows of a reply's repeated field as a table; -o chooses other columns. */
static int
print_rows(const struct cli_args *args, const ProtobufCMessage *reply, const char *field_name,
           const char *columns)
{
    const ProtobufCFieldDescriptor *field = field_named(reply, field_name);
    const char *chosen = cli_value(args, "columns");
    ProtobufCMessage *const *rows;
    size_t count = pbjson_repeated(reply, field, &rows);

    if (table_print(field->descriptor, rows, count, chosen == NULL ? columns : chosen,
                    !cli_has(args, "no-headers"))
        != ST_OK) {
        return bad_input(args);
    }
    return CLI_OK;
}

/* Asks on a terminal before something is lost; a script means what it says. */
static bool
is_confirmed(const struct cli_args *args, const char *what)
{
    char answer[8];

    if (cli_has(args, "yes") || isatty(STDIN_FILENO) != 1) {
        return true;
    }
    (void)fprintf(stderr, "%s: really %s? [y/N] ", args->cli->program, what);
    if (fgets(answer, sizeof(answer), stdin) != NULL && (answer[0] == 'y' || answer[0] == 'Y')) {
        return true;
    }
    (void)fprintf(stderr, "%s: not done\n", args->cli->program);
    return false;
}

/* One call whose reply is only printed with --json. */
static int
act(const struct cli_args *args, enum method_id method, const ProtobufCMessage *request)
{
    struct rpc *rpc = NULL;
    const ProtobufCMessage *reply;
    enum status st = cli_connect(args, ENDPOINT_ADMIN, &rpc);
    int code =
        st != ST_OK
            ? cli_fail(args, st)
            : cli_call(args, rpc, (struct rpc_call){.method = method, .request = request}, &reply);

    if (code == CLI_OK && cli_has(args, "json")) {
        pbjson_print(stdout, CLI_SCHEMA, reply);
    }
    rpc_close(&rpc);
    return code;
}

/* ---- views: stats, docs, workers, requests, config, health, status --------------------------- */

typedef int (*print_fn)(const struct cli_args *args, struct rpc *rpc,
                        const ProtobufCMessage *reply);

/* A daemon that is there but does not serve is a failure, with --json too. */
static int
exit_of(const ProtobufCMessage *reply)
{
    const Kvasir__V1__HealthReply *health = (const void *)reply;

    return reply->descriptor == &kvasir__v1__health_reply__descriptor
                   && health->status != KVASIR__V1__SERVING_STATUS__SERVING
               ? CLI_FAILURE
               : CLI_OK;
}

/* Calls, prints, and does so again every --watch seconds. */
static int
view_with(const struct cli_args *args, struct rpc *rpc, struct rpc_call call, print_fn print)
{
    uint32_t watch_ms = 0;
    const ProtobufCMessage *reply;
    int code;

    if (cli_duration_ms(args, "watch", &watch_ms) != ST_OK) {
        return bad_input(args);
    }
    for (;;) {
        code = cli_call(args, rpc, call, &reply);
        if (code == CLI_OK && watch_ms != 0 && isatty(STDOUT_FILENO) == 1) {
            printf("\033[H\033[J");
        }
        if (code == CLI_OK && cli_has(args, "json")) {
            pbjson_print(stdout, CLI_SCHEMA, reply);
        } else if (code == CLI_OK) {
            code = print(args, rpc, reply);
        }
        if (code != CLI_OK || watch_ms == 0 || fflush(stdout) != 0) {
            return code != CLI_OK ? code : exit_of(reply);
        }
        (void)poll(NULL, 0, (int)(watch_ms < WATCH_MS_MIN ? WATCH_MS_MIN : watch_ms));
    }
}

static int
view(const struct cli_args *args, struct rpc_call call, print_fn print)
{
    struct rpc *rpc = NULL;
    enum status st = cli_connect(args, ENDPOINT_ADMIN, &rpc);
    int code = st != ST_OK ? cli_fail(args, st) : view_with(args, rpc, call, print);

    rpc_close(&rpc);
    return code;
}

#define POINT_COLUMNS "policy,kv_memory,hit_ratio,ttft_ms,is_running,uncertain"

/* Bounds and counts on one line, without the empty ends. */
static void
print_histogram(const Kvasir__V1__Histogram *histogram)
{
    size_t first = 0, end = histogram->n_counts;

    while (first < end && histogram->counts[first] == 0) {
        first++;
    }
    while (end > first && histogram->counts[end - 1] == 0) {
        end--;
    }
    if (first == end) {
        return;
    }
    printf("\n%s: %s\n", histogram->name, histogram->help);
    for (size_t i = first; i < end; i++) {
        if (i < histogram->n_bounds) {
            printf("  <= %.0f: %llu\n", histogram->bounds[i],
                   (unsigned long long)histogram->counts[i]);
        } else {
            printf("  more: %llu\n", (unsigned long long)histogram->counts[i]);
        }
    }
}

static int
print_traffic(const struct cli_args *args, const Kvasir__V1__Traffic *traffic)
{
    printf("\nThe last %llu requests cited %llu documents, %.1f%% of the tokens only once.\n",
           (unsigned long long)traffic->requests, (unsigned long long)traffic->documents,
           100 * traffic->one_time_share);
    printf("hit      %.1f%% of the document tokens; a prefix cache: %.1f%%\n",
           100 * traffic->hit_ratio, 100 * traffic->prefix_hit_ratio);
    if (traffic->has_alpha) {
        printf("alpha    %.2f (Zipf)\n", traffic->alpha);
    }
    printf("drift    %.0f%% of the traffic\n", 100 * traffic->drift);
    printf("computed %llu s ago, %.2f%% of a core\n\n",
           (unsigned long long)(traffic->age_ms / 1000), 100 * traffic->cpu_share);
    return print_rows(args, &traffic->base, "curve", POINT_COLUMNS);
}

static int
print_stats(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    (void)rpc;
    const Kvasir__V1__StatsReply *stats = (const void *)reply;
    int code = print_rows(args, reply, "gauges", "name,value,help");

    if (code == CLI_OK) {
        code = print_rows(args, reply, "counters", "name,value,help");
    }
    if (code == CLI_OK && !cli_has(args, "columns")) {
        for (size_t i = 0; i < stats->n_histograms; i++) {
            print_histogram(stats->histograms[i]);
        }
        code = stats->traffic == NULL ? CLI_OK : print_traffic(args, stats->traffic);
    }
    return code;
}

static int
run_stats(const struct cli_args *args)
{
    return view(args, (struct rpc_call){.method = METHOD_STATS}, print_stats);
}

static int
print_workers(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    (void)rpc;
    return print_rows(args, reply, "workers",
                      "worker,state,device,pid,running,credit,docs_built,docs_read,"
                      "docs_read_foreign,tokens_decoded,heartbeat_age_ms");
}

static int
run_workers(const struct cli_args *args)
{
    return view(args, (struct rpc_call){.method = METHOD_WORKERS}, print_workers);
}

static int
print_requests(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    (void)rpc;
    return print_rows(args, reply, "requests",
                      "id,state,worker,priority,documents,prompt_tokens,completion_tokens,age_ms,"
                      "preemptions");
}

static int
run_requests(const struct cli_args *args)
{
    return view(args, (struct rpc_call){.method = METHOD_REQUESTS}, print_requests);
}

static int
print_config(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    (void)rpc;
    return print_rows(args, reply, "entries", "name,value");
}

static int
run_config(const struct cli_args *args)
{
    return view(args, (struct rpc_call){.method = METHOD_CONFIG}, print_config);
}

static int
print_docs(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    const Kvasir__V1__ListReply *list = (const void *)reply;
    int code = print_rows(args, reply, "documents",
                          "key,state,tokens,tokens_resident,blocks,references,pins,hits");

    (void)rpc;
    if (code == CLI_OK && list->total > list->n_documents) {
        (void)fprintf(stderr, "%zu of %llu documents; --limit shows more\n", list->n_documents,
                      (unsigned long long)list->total);
    }
    return code;
}

static int
run_docs(const struct cli_args *args)
{
    Kvasir__V1__ListRequest request = KVASIR__V1__LIST_REQUEST__INIT;
    const char *order = cli_value(args, "order");
    uint64_t limit = 0;

    if (cli_u64(args, "limit", 1, 10000, &limit) != ST_OK) {
        return bad_input(args);
    }
    request.has_limit = limit != 0;
    request.limit = (uint32_t)limit;
    request.order = (char *)(uintptr_t)order;
    return view(args, (struct rpc_call){.method = METHOD_LIST, .request = &request.base},
                print_docs);
}

static int
print_doc(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    ProtobufCMessage *row = (ProtobufCMessage *)(uintptr_t)reply;
    const char *chosen = cli_value(args, "columns");

    (void)rpc;
    if (table_print(reply->descriptor, &row, 1,
                    chosen == NULL ? "key,state,tokens,tokens_resident,blocks,references,pins,hits"
                                   : chosen,
                    !cli_has(args, "no-headers"))
        != ST_OK) {
        return bad_input(args);
    }
    return CLI_OK;
}

/* What pays: the documents that spared the most computation. */
static int
run_docs_top(const struct cli_args *args)
{
    Kvasir__V1__ListRequest request = KVASIR__V1__LIST_REQUEST__INIT;
    char order[] = "saved";
    uint64_t limit = 20;

    if (cli_u64(args, "limit", 1, 10000, &limit) != ST_OK) {
        return bad_input(args);
    }
    request.has_limit = true;
    request.limit = (uint32_t)limit;
    request.order = order;
    return view(args, (struct rpc_call){.method = METHOD_LIST, .request = &request.base},
                print_docs);
}

static int
run_docs_get(const struct cli_args *args)
{
    Kvasir__V1__DocumentRef ref = KVASIR__V1__DOCUMENT_REF__INIT;
    uint8_t key[32];

    if (cli_parse_key(args->operands[0], key) != ST_OK) {
        return bad_input(args);
    }
    ref.has_key = true;
    ref.key = (ProtobufCBinaryData){.data = key, .len = sizeof(key)};
    return view(args, (struct rpc_call){.method = METHOD_GET, .request = &ref.base}, print_doc);
}

static int
print_what_if(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    const Kvasir__V1__WhatIfReply *what = (const void *)reply;

    (void)rpc;
    printf("%llu requests replayed; they hit %.1f%% of their document tokens",
           (unsigned long long)what->requests, 100 * what->hit_ratio);
    if (what->has_ttft_ms) {
        printf(", first token after %.1f ms", what->ttft_ms);
    }
    printf("\n\n");
    return print_rows(args, reply, "points", POINT_COLUMNS);
}

static size_t
split_policies(char *text, char *policies[WHATIF_POLICIES_MAX])
{
    size_t count = 0;
    char *word;

    while ((word = strsep(&text, ",")) != NULL && count < WHATIF_POLICIES_MAX) {
        policies[count++] = word;
    }
    return count;
}

static int
run_what_if(const struct cli_args *args)
{
    Kvasir__V1__WhatIfRequest request = KVASIR__V1__WHAT_IF_REQUEST__INIT;
    const char *memory = cli_value(args, "kv-memory"), *names = cli_value(args, "policy");
    char *policies[WHATIF_POLICIES_MAX], text[128];
    uint64_t sizes[SIZES_MAX];

    if (memory != NULL && sizes_read(memory, sizes, &request.n_kv_memory) != ST_OK) {
        return bad_input(args);
    }
    if (names != NULL) {
        (void)snprintf(text, sizeof(text), "%s", names);
        request.n_policies = split_policies(text, policies);
    }
    request.kv_memory = sizes;
    request.policies = policies;
    return view(args, (struct rpc_call){.method = METHOD_WHATIF, .request = &request.base},
                print_what_if);
}

static int
print_health(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    const Kvasir__V1__HealthReply *health = (const void *)reply;
    char status[PBJSON_CELL_BYTES];

    (void)args;
    (void)rpc;
    pbjson_cell(reply, field_named(reply, "status"), status);
    printf("%s%s%s\n", status, health->detail == NULL ? "" : ": ",
           health->detail == NULL ? "" : health->detail);
    return CLI_OK;
}

static int
run_health(const struct cli_args *args)
{
    return view(args, (struct rpc_call){.method = METHOD_HEALTH}, print_health);
}

static void
print_uptime(uint64_t ms)
{
    uint64_t s = ms / 1000;

    if (s >= 3600) {
        printf("%llu h %llu min\n", (unsigned long long)(s / 3600),
               (unsigned long long)(s % 3600 / 60));
    } else {
        printf("%llu min %llu s\n", (unsigned long long)(s / 60), (unsigned long long)(s % 60));
    }
}

/* One screen: who serves what, the pool's gauges, the workers. */
static int
print_status(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    const Kvasir__V1__StatsReply *stats = (const void *)reply;
    const ProtobufCMessage *workers;

    printf("kvasird  %s%s\nmodel    %s\nup       ", stats->version == NULL ? "?" : stats->version,
           stats->is_draining ? ", draining" : "", stats->model == NULL ? "?" : stats->model);
    print_uptime(stats->uptime_ms);
    for (size_t i = 0; i < stats->n_gauges; i++) {
        printf("%s%s %llu",
               i == 0       ? "gauges   "
               : i % 4 == 0 ? "\n         "
                            : ", ",
               stats->gauges[i]->name, (unsigned long long)stats->gauges[i]->value);
    }
    printf("%s\n", stats->n_gauges > 0 ? "\n" : "");
    int code = cli_call(args, rpc, (struct rpc_call){.method = METHOD_WORKERS}, &workers);

    return code != CLI_OK ? code
                          : print_rows(args, workers, "workers",
                                       "worker,state,device,running,credit,heartbeat_age_ms");
}

static int
run_status(const struct cli_args *args)
{
    return view(args, (struct rpc_call){.method = METHOD_STATS}, print_status);
}

/* ---- actions --------------------------------------------------------------------------------- */

static int
act_on_key(const struct cli_args *args, enum method_id method)
{
    Kvasir__V1__DocumentRef ref = KVASIR__V1__DOCUMENT_REF__INIT;
    uint32_t ttl_ms = 0;
    uint8_t key[32];

    if (cli_duration_ms(args, "ttl", &ttl_ms) != ST_OK) {
        return bad_input(args);
    }
    ref.has_ttl_ms = ttl_ms > 0;
    ref.ttl_ms = ttl_ms;

    if (cli_parse_key(args->operands[0], key) != ST_OK) {
        return bad_input(args);
    }
    ref.has_key = true;
    ref.key = (ProtobufCBinaryData){.data = key, .len = sizeof(key)};
    return act(args, method, &ref.base);
}

static int
run_docs_pin(const struct cli_args *args)
{
    return act_on_key(args, METHOD_PIN);
}

static int
run_docs_unpin(const struct cli_args *args)
{
    return act_on_key(args, METHOD_UNPIN);
}

static int
run_docs_forget(const struct cli_args *args)
{
    struct rpc *rpc = NULL;
    uint8_t key[32];

    if (cli_parse_key(args->operands[0], key) != ST_OK) {
        return bad_input(args);
    }
    if (!is_confirmed(args, "forget this document")) {
        return CLI_FAILURE;
    }
    enum status st = cli_connect(args, ENDPOINT_ADMIN, &rpc);
    int code = st != ST_OK ? cli_fail(args, st) : docs_forget(args, rpc, key);

    rpc_close(&rpc);
    return code;
}

static int
run_docs_prioritize(const struct cli_args *args)
{
    Kvasir__V1__PrioritizeRequest request = KVASIR__V1__PRIORITIZE_REQUEST__INIT;
    uint64_t priority;
    uint8_t key[32];

    if (cli_parse_key(args->operands[0], key) != ST_OK
        || cli_parse_u64("PRIORITY", args->operands[1], 0, 100, &priority) != ST_OK) {
        return bad_input(args);
    }
    request.has_key = request.has_priority = true;
    request.key = (ProtobufCBinaryData){.data = key, .len = sizeof(key)};
    request.priority = (uint32_t)priority;
    return act(args, METHOD_PRIORITIZE, &request.base);
}

static int
run_docs_evict(const struct cli_args *args)
{
    Kvasir__V1__EvictRequest request = KVASIR__V1__EVICT_REQUEST__INIT;
    struct rpc *rpc = NULL;
    const ProtobufCMessage *reply;
    uint64_t blocks;

    if (cli_parse_u64("BLOCKS", args->operands[0], 1, UINT32_MAX, &blocks) != ST_OK) {
        return bad_input(args);
    }
    if (!is_confirmed(args, "evict cached documents")) {
        return CLI_FAILURE;
    }
    request.has_blocks = true;
    request.blocks = (uint32_t)blocks;
    enum status st = cli_connect(args, ENDPOINT_ADMIN, &rpc);
    int code =
        st != ST_OK
            ? cli_fail(args, st)
            : cli_call(args, rpc,
                       (struct rpc_call){.method = METHOD_EVICT, .request = &request.base}, &reply);

    if (code == CLI_OK && cli_has(args, "json")) {
        pbjson_print(stdout, CLI_SCHEMA, reply);
    } else if (code == CLI_OK) {
        printf("%u blocks evicted\n",
               ((const Kvasir__V1__EvictReply *)(const void *)reply)->blocks);
    }
    rpc_close(&rpc);
    return code;
}

static int
drain(const struct cli_args *args, bool is_resume)
{
    Kvasir__V1__DrainRequest request = KVASIR__V1__DRAIN_REQUEST__INIT;
    uint64_t worker = 0;

    request.has_worker = strcmp(args->operands[0], "all") != 0;
    if (request.has_worker
        && cli_parse_u64("WORKER", args->operands[0], 0, UINT32_MAX, &worker) != ST_OK) {
        return bad_input(args);
    }
    if (!is_resume
        && !is_confirmed(args,
                         request.has_worker ? "drain this worker" : "drain the whole daemon")) {
        return CLI_FAILURE;
    }
    request.worker = (uint32_t)worker;
    request.has_resume = true;
    request.resume = is_resume;
    return act(args, METHOD_DRAIN, &request.base);
}

static int
run_drain(const struct cli_args *args)
{
    return drain(args, false);
}

static int
run_resume(const struct cli_args *args)
{
    return drain(args, true);
}

static int
run_requests_cancel(const struct cli_args *args)
{
    Kvasir__V1__AdminCancelRequest request = KVASIR__V1__ADMIN_CANCEL_REQUEST__INIT;

    if (cli_parse_u64("ID", args->operands[0], 0, UINT64_MAX, &request.id) != ST_OK) {
        return bad_input(args);
    }
    if (!is_confirmed(args, "cancel this request")) {
        return CLI_FAILURE;
    }
    request.has_id = true;
    return act(args, METHOD_ADMIN_CANCEL, &request.base);
}

static int
run_version(const struct cli_args *args)
{
    printf(cli_has(args, "json") ? "{" CLI_SCHEMA ",\"version\":\"%s\",\"protocol\":%d}\n"
                                 : "kvasirctl %s, protocol %d\n",
           PACKAGE_VERSION, WIRE_VERSION);
    return CLI_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct cli_option options[] = {
    {"json", 'j', NULL, "print one JSON object (schema 1), for programs"},
    {"columns", 'o', "LIST", "fields to show, e.g. worker,state; names as in --json"},
    {"no-headers", 0, NULL, "leave the line of headers out"},
    {"watch", 'w', "TIME", "print again and again, e.g. every 1s"},
    {"limit", 0, "N", "at most N documents (1000)"},
    {"order", 0, "FIELD", "hits (default), tokens or saved, the largest first"},
    {"kv-memory", 0, "SIZES", "A..B doubles from A to B, e.g. 1GiB..64GiB; or A,B,C"},
    {"policy", 0, "LIST", "eviction policies, e.g. zipf,lru"},
    {"ttl", 0, "TIME", "the pin ends by itself, e.g. after 30min"},
    {"salt", 0, "TEXT", "whose documents they are"},
    {"raw", 0, NULL, "texts as they are, not in the frame of chats"},
    {"prune", 0, NULL, "forget what the manifest does not name"},
    {"wait", 0, NULL, "until all that has room is resident"},
    {"documents", 0, NULL, "each of them"},
    {"abort", 0, NULL, "end requests that read the document, do not wait for them"},
    {"yes", 'y', NULL, "do not ask on the terminal"},
    {"runtime-dir", 'r', "DIR", "where kvasird's sockets are"},
    {"endpoint", 'e', "URL", "ZeroMQ endpoint of kvasird"},
    {"server-key", 0, "KEY", "over a network: kvasird's public key, or its file"},
    {"secret-key", 0, "FILE", "over a network: your secret key"},
    {"timeout", 0, "TIME", "give up after, e.g. 500ms, 30s (30s)"},
    {"help", 'h', NULL, "print this"},
    {"version", 'V', NULL, "print the version"},
};

#define VIEW      "json columns no-headers watch"
#define DOCS_VIEW "json columns no-headers watch limit order"

static const struct cli_command commands[] = {
    {"status", "", 0, 0, VIEW, "one screen: model, pool, workers", run_status},
    {"stats", "", 0, 0, VIEW, "all counters and gauges", run_stats},
    {"docs", "", 0, 0, DOCS_VIEW, "documents, the most used first", run_docs},
    {"docs list", "", 0, 0, DOCS_VIEW, "the same", run_docs},
    {"docs top", "", 0, 0, "json columns no-headers watch limit",
     "documents that spared the most computation", run_docs_top},
    {"docs get", "KEY", 1, 1, VIEW, "one document", run_docs_get},
    {"docs show", "KEY", 1, 1, VIEW, "the same", run_docs_get},
    {"docs warm", "MANIFEST", 1, 1, DOCS_WARM_OPTIONS,
     "keep the documents of a manifest ready; only changed ones are encoded", docs_warm_run},
    {"docs coverage", "", 0, 0, "documents json", "how much of them is resident",
     docs_coverage_run},
    {"docs pin", "KEY", 1, 1, "ttl json", "never evict it; pins are counted", run_docs_pin},
    {"docs unpin", "KEY", 1, 1, "json", "take one pin back", run_docs_unpin},
    {"docs prioritize", "KEY PRIORITY", 2, 2, "json",
     "0..100, 50 is as everybody; ten more double its value", run_docs_prioritize},
    {"docs evict", "BLOCKS", 1, 1, "json yes", "free so many blocks, the least useful first",
     run_docs_evict},
    {"docs forget", "KEY", 1, 1, "yes " DOCS_FORGET_OPTIONS,
     "drop a document and its registration, and overwrite all copies", run_docs_forget},
    {"workers", "", 0, 0, VIEW, "the workers and what they did", run_workers},
    {"workers list", "", 0, 0, VIEW, "the same", run_workers},
    {"workers drain", "WORKER|all", 1, 1, "json yes", "no new requests; running ones finish",
     run_drain},
    {"workers resume", "WORKER|all", 1, 1, "json", "take a drain back", run_resume},
    {"requests", "", 0, 0, VIEW, "the requests that wait or run", run_requests},
    {"requests list", "", 0, 0, VIEW, "the same", run_requests},
    {"requests cancel", "ID", 1, 1, "json yes", "end a request", run_requests_cancel},
    {"whatif", "", 0, 0, VIEW " kv-memory policy",
     "what the last requests would have hit with other pools", run_what_if},
    {"config", "", 0, 0, VIEW, "kvasird's options as they are", run_config},
    {"health", "", 0, 0, "json watch", "exit code 0 if requests are served", run_health},
    {"keygen", "FILE", 1, 1, "json",
     "a new key pair: the secret to FILE, the public key to FILE.pub", keygen_run},
    {"version", "", 0, 0, "json", "the version of this program", run_version},
};

static const struct cli cli = {
    .program = "kvasirctl",
    .summary = "Looks into a running kvasird and steers it.",
    .common = "runtime-dir endpoint server-key secret-key timeout help version",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .commands = commands,
    .command_count = sizeof(commands) / sizeof(commands[0]),
};

int
main(int argc, char **argv)
{
    return cli_main(&cli, argc, argv);
}
