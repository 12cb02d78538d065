/* SPDX-License-Identifier: Apache-2.0 */
/* kvasirctl - what an operator types; see kvasirctl.1.  Most commands are one call and one table,
 * so they are rows of the table at the end; ctl.h has what they share and the larger ones. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl.h"
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

#define WHATIF_POLICIES_MAX 8
/* clang-format off */
#define DOC_COLUMNS \
    "key,state,tokens,tokens_resident,blocks,host_blocks,references,pins,hits"
/* clang-format on */

/* ---- views: docs, workers, requests, whatif -------------------------------------------------- */

static int
print_workers(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    (void)rpc;
    return ctl_print_rows(args, reply, "workers",
                          "worker,state,device,pid,running,credit,docs_built,docs_read,"
                          "docs_read_foreign,tokens_decoded,heartbeat_age_ms");
}

static int
run_workers(const struct cli_args *args)
{
    return ctl_view(args, (struct rpc_call){.method = METHOD_WORKERS}, print_workers);
}

static int
print_requests(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    (void)rpc;
    return ctl_print_rows(
        args, reply, "requests",
        "id,state,worker,priority,documents,prompt_tokens,completion_tokens,age_ms,"
        "preemptions");
}

static int
run_requests(const struct cli_args *args)
{
    return ctl_view(args, (struct rpc_call){.method = METHOD_REQUESTS}, print_requests);
}

static int
print_docs(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    const Kvasir__V1__ListReply *list = (const void *)reply;
    int code = ctl_print_rows(args, reply, "documents", DOC_COLUMNS);

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
        return ctl_bad_input(args);
    }
    request.has_limit = limit != 0;
    request.limit = (uint32_t)limit;
    request.order = (char *)(uintptr_t)order;
    return ctl_view(args, (struct rpc_call){.method = METHOD_LIST, .request = &request.base},
                    print_docs);
}

static int
print_doc(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    ProtobufCMessage *row = (ProtobufCMessage *)(uintptr_t)reply;
    const char *chosen = cli_value(args, "columns");

    (void)rpc;
    if (table_print(reply->descriptor, &row, 1, chosen == NULL ? DOC_COLUMNS : chosen,
                    ctl_style(args))
        != ST_OK) {
        return ctl_bad_input(args);
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
        return ctl_bad_input(args);
    }
    request.has_limit = true;
    request.limit = (uint32_t)limit;
    request.order = order;
    return ctl_view(args, (struct rpc_call){.method = METHOD_LIST, .request = &request.base},
                    print_docs);
}

static int
run_docs_get(const struct cli_args *args)
{
    Kvasir__V1__DocumentRef ref = KVASIR__V1__DOCUMENT_REF__INIT;
    uint8_t key[32];

    if (cli_parse_key(args->operands[0], key) != ST_OK) {
        return ctl_bad_input(args);
    }
    ref.has_key = true;
    ref.key = (ProtobufCBinaryData){.data = key, .len = sizeof(key)};
    return ctl_view(args, (struct rpc_call){.method = METHOD_GET, .request = &ref.base}, print_doc);
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
    return ctl_print_rows(args, reply, "points", CTL_POINT_COLUMNS);
}

static enum status
split_policies(char *text, char *policies[WHATIF_POLICIES_MAX], size_t *count_out)
{
    size_t count = 0;
    char *word;

    while ((word = strsep(&text, ",")) != NULL) {
        if (count == WHATIF_POLICIES_MAX) {
            return ERR(ST_INVALID, "policy: more than %d", WHATIF_POLICIES_MAX);
        }
        policies[count++] = word;
    }
    *count_out = count;
    return ST_OK;
}

static int
run_what_if(const struct cli_args *args)
{
    Kvasir__V1__WhatIfRequest request = KVASIR__V1__WHAT_IF_REQUEST__INIT;
    const char *memory = cli_value(args, "kv-memory"), *names = cli_value(args, "policy");
    char *policies[WHATIF_POLICIES_MAX], text[128];
    uint64_t sizes[SIZES_MAX];

    if (memory != NULL && sizes_read(memory, sizes, &request.n_kv_memory) != ST_OK) {
        return ctl_bad_input(args);
    }
    if (names != NULL) {
        (void)snprintf(text, sizeof(text), "%s", names);
        if (split_policies(text, policies, &request.n_policies) != ST_OK) {
            return ctl_bad_input(args);
        }
    }
    request.kv_memory = sizes;
    request.policies = policies;
    return ctl_view(args, (struct rpc_call){.method = METHOD_WHATIF, .request = &request.base},
                    print_what_if);
}

/* ---- actions --------------------------------------------------------------------------------- */

static int
act_on_key(const struct cli_args *args, enum method_id method)
{
    Kvasir__V1__DocumentRef ref = KVASIR__V1__DOCUMENT_REF__INIT;
    uint32_t ttl_ms = 0;
    uint8_t key[32];

    if (cli_duration_ms(args, "ttl", &ttl_ms) != ST_OK) {
        return ctl_bad_input(args);
    }
    ref.has_ttl_ms = ttl_ms > 0;
    ref.ttl_ms = ttl_ms;

    if (cli_parse_key(args->operands[0], key) != ST_OK) {
        return ctl_bad_input(args);
    }
    ref.has_key = true;
    ref.key = (ProtobufCBinaryData){.data = key, .len = sizeof(key)};
    return ctl_act(args, method, &ref.base);
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
        return ctl_bad_input(args);
    }
    if (!ctl_is_confirmed(args, "forget this document")) {
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
        return ctl_bad_input(args);
    }
    request.has_key = request.has_priority = true;
    request.key = (ProtobufCBinaryData){.data = key, .len = sizeof(key)};
    request.priority = (uint32_t)priority;
    return ctl_act(args, METHOD_PRIORITIZE, &request.base);
}

static int
run_docs_evict(const struct cli_args *args)
{
    Kvasir__V1__EvictRequest request = KVASIR__V1__EVICT_REQUEST__INIT;
    struct rpc *rpc = NULL;
    const ProtobufCMessage *reply;
    uint8_t key[32];
    uint64_t blocks = 0;

    request.has_key = strlen(args->operands[0]) == 2 * sizeof(key);
    request.has_blocks = !request.has_key;
    if (request.has_key
            ? cli_parse_key(args->operands[0], key) != ST_OK
            : cli_parse_u64("BLOCKS or KEY", args->operands[0], 1, UINT32_MAX, &blocks) != ST_OK) {
        return ctl_bad_input(args);
    }
    if (!ctl_is_confirmed(args,
                          request.has_key ? "evict this document" : "evict cached documents")) {
        return CLI_FAILURE;
    }
    request.key = (ProtobufCBinaryData){.data = key, .len = sizeof(key)};
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
        return ctl_bad_input(args);
    }
    if (!is_resume
        && !ctl_is_confirmed(args,
                             request.has_worker ? "drain this worker" : "drain the whole daemon")) {
        return CLI_FAILURE;
    }
    request.worker = (uint32_t)worker;
    request.has_resume = true;
    request.resume = is_resume;
    return ctl_act(args, METHOD_DRAIN, &request.base);
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
        return ctl_bad_input(args);
    }
    if (!ctl_is_confirmed(args, "cancel this request")) {
        return CLI_FAILURE;
    }
    request.has_id = true;
    return ctl_act(args, METHOD_ADMIN_CANCEL, &request.base);
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
    {"raw", 0, NULL,
     "of tables: cells parted by one blank; of warm: texts as they are, not in the frame of chats"},
    {"prune", 0, NULL, "forget what the manifest does not name"},
    {"wait", 0, NULL, "until all that has room is resident"},
    {"documents", 0, NULL, "each of them; of events: what becomes of documents, too"},
    {"level", 0, "LEVEL", "error, warn, info (default), debug or trace"},
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

#define VIEW      "json columns no-headers raw watch"
#define DOCS_VIEW "json columns no-headers raw watch limit order"

static const struct cli_command commands[] = {
    {"status", "", 0, 0, VIEW, "one screen: model, pool, workers", ctl_run_status},
    {"stats", "", 0, 0, VIEW, "all counters and gauges", ctl_run_stats},
    {"top", "", 0, 0, VIEW, "a live view: rates, pool, workers, documents that pay", ctl_run_top},
    {"docs", "", 0, 0, DOCS_VIEW, "documents, the most used first", run_docs},
    {"docs list", "", 0, 0, DOCS_VIEW, "the same", run_docs},
    {"docs top", "", 0, 0, "json columns no-headers raw watch limit",
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
    {"docs evict", "BLOCKS|KEY", 1, 1, "json yes",
     "free so many blocks, the least useful first, or those of one document", run_docs_evict},
    {"docs forget", "KEY", 1, 1, "yes " DOCS_FORGET_OPTIONS,
     "drop a document and its registration, and overwrite all copies", run_docs_forget},
    {"workers", "", 0, 0, VIEW, "the workers and what they did", run_workers},
    {"workers list", "", 0, 0, VIEW, "the same", run_workers},
    {"workers drain", "WORKER|all", 1, 1, "json yes", "no new requests; running ones finish",
     run_drain},
    {"workers resume", "WORKER|all", 1, 1, "json", "take a drain back", run_resume},
    {"requests", "", 0, 0, VIEW, "the requests that wait or run", run_requests},
    {"requests list", "", 0, 0, VIEW, "the same", run_requests},
    {"requests trace", "[ID]", 0, 1, "json watch",
     "when a request that has ended passed what (the last one)", ctl_run_requests_trace},
    {"requests cancel", "ID", 1, 1, "json yes", "end a request", run_requests_cancel},
    {"whatif", "", 0, 0, VIEW " kv-memory policy",
     "what the last requests would have hit with other pools", run_what_if},
    {"explain", "[ID]", 0, 1, "json watch",
     "why each document of a request that has ended hit or missed (the last one)", ctl_run_explain},
    {"config", "", 0, 0, VIEW, "kvasird's options as they are", ctl_run_config_show},
    {"config show", "", 0, 0, VIEW, "the same", ctl_run_config_show},
    {"config check", "[FILE]", 0, 1, "json columns no-headers raw",
     "what would change with the file of options as it is now, or with FILE", ctl_run_config_check},
    {"config reload", "", 0, 0, "json columns no-headers raw",
     "read it again, as SIGHUP does, and tell what has changed", ctl_run_config_reload},
    {"events", "", 0, 0, "json level documents", "what happens, as it happens", ctl_run_events},
    {"health", "", 0, 0, "json watch", "exit code 0 if requests are served", ctl_run_health},
    {"health detail", "", 0, 0, "json", "what is not as it should be", ctl_run_health_detail},
    {"bench", "[ARGUMENT...]", 0, SIZE_MAX, NULL, "runs kvasir-bench with these arguments",
     ctl_run_bench},
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
