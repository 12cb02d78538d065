/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/stress/accounts.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "client/kvasir.h"
#include "client/rpc.h"
#include "common/clock.h"
#include "proto/endpoints.h"

#include "kvasir/v1/admin.pb-c.h"

#define SETTLE_LIMIT_US (600ull * 1000 * 1000)
#define LOOK_EVERY_MS   2

static bool
open_admin(const char *runtime_dir, struct rpc **rpc_out)
{
    char url[ENDPOINT_URL_MAX];

    if (endpoint_url(runtime_dir, ENDPOINT_ADMIN, url) != ST_OK
        || rpc_open(url, rpc_out) != ST_OK) {
        printf("FAULT: %s\n", status_detail());
        return false;
    }
    return true;
}

static bool
call_admin(struct rpc *rpc, enum method_id method, const ProtobufCMessage *request,
           const ProtobufCMessage **reply_out)
{
    struct rpc_call call = {
        .method = method, .request = request, .timeout_ms = RPC_UNARY_TIMEOUT_MS};
    enum rpc_code code = rpc_call(rpc, &call, reply_out);

    if (code != RPC_OK) {
        printf("FAULT: %s: %s: %s\n", method_get(method)->path, rpc_code_name(code),
               rpc_message(rpc));
    }
    return code == RPC_OK;
}

/* UINT64_MAX, which no sum survives, if there is none of that name. */
static uint64_t
value_of(const Kvasir__V1__StatsReply *stats, const char *name)
{
    for (size_t i = 0; i < stats->n_counters; i++) {
        if (strcmp(stats->counters[i]->name, name) == 0) {
            return stats->counters[i]->value;
        }
    }
    for (size_t i = 0; i < stats->n_gauges; i++) {
        if (strcmp(stats->gauges[i]->name, name) == 0) {
            return stats->gauges[i]->value;
        }
    }
    printf("FAULT: Admin.Stats has no \"%s\"\n", name);
    return UINT64_MAX;
}

static uint64_t
sum_of(const Kvasir__V1__StatsReply *stats, const char *const *names)
{
    uint64_t sum = 0;

    for (; *names != NULL; names++) {
        sum += value_of(stats, *names);
    }
    return sum;
}

static const char *const at_rest[] = {"requests_running",
                                      "requests_queued",
                                      "requests_starving",
                                      "blocks_own",
                                      "blocks_quarantined",
                                      "blocks_pinned",
                                      NULL};
static const char *const owners[] = {"blocks_free", "blocks_docs", NULL};
static const char *const ends[] = {"requests_finished", "requests_cancelled", "requests_refused",
                                   "requests_failed",   "deadlines_passed",   NULL};
static const char *const builds[] = {"builds_sealed", "builds_dropped", "builds_lost", NULL};
static const char *const wants[] = {"doc_hits",
                                    "doc_misses_cold",
                                    "doc_misses_evicted",
                                    "doc_misses_partial",
                                    "doc_misses_building",
                                    "doc_misses_abandoned",
                                    "doc_misses_forgotten",
                                    NULL};

static bool
is_equal(const char *what, uint64_t a, uint64_t b)
{
    if (a != b) {
        printf("FAULT: %s: %" PRIu64 " and %" PRIu64 "\n", what, a, b);
    }
    return a == b;
}

static bool
check_sums(const Kvasir__V1__StatsReply *stats)
{
    bool is_good = true;

    is_good &= is_equal("blocks free or of documents, and blocks", sum_of(stats, owners),
                        value_of(stats, "block_count"));
    is_good &= is_equal("blocks of documents, and evictable ones", value_of(stats, "blocks_docs"),
                        value_of(stats, "blocks_evictable"));
    is_good &= is_equal("requests ended, and submitted", sum_of(stats, ends),
                        value_of(stats, "requests_submitted"));
    is_good &= is_equal("builds ended, and started", sum_of(stats, builds),
                        value_of(stats, "builds_started"));
    is_good &= is_equal("odd messages", value_of(stats, "messages_odd"), 0);
    return is_good;
}

static bool
wait_for_rest(struct rpc *admin, const Kvasir__V1__StatsReply **stats_out)
{
    uint64_t limit_us = clock_now_us() + SETTLE_LIMIT_US;
    const ProtobufCMessage *reply;

    while (call_admin(admin, METHOD_STATS, NULL, &reply)) {
        *stats_out = (const void *)reply;
        /* The one open call is this one. */
        if (sum_of(*stats_out, at_rest) == 0 && value_of(*stats_out, "calls_open") == 1) {
            return true;
        }
        if (clock_now_us() > limit_us) {
            for (const char *const *name = at_rest; *name != NULL; name++) {
                printf("FAULT: %s does not become 0: %" PRIu64 "\n", *name,
                       value_of(*stats_out, *name));
            }
            printf("FAULT: calls_open %" PRIu64 "\n", value_of(*stats_out, "calls_open"));
            return false;
        }
        (void)poll(NULL, 0, LOOK_EVERY_MS);
    }
    return false;
}

static bool
check_references(const char *runtime_dir)
{
    struct kvasir_options options = {.runtime_dir = runtime_dir};
    const struct kvasir_document_info *infos;
    struct kvasir *client;
    bool is_good = true;
    size_t count = 0;

    if (kvasir_open(&options, &client) != KVASIR_OK) {
        printf("FAULT: %s\n", kvasir_open_error());
        return false;
    }
    if (kvasir_list(client, 0, NULL, &infos, &count, NULL) != KVASIR_OK) {
        printf("FAULT: %s\n", kvasir_error(client));
        is_good = false;
    }
    for (size_t i = 0; i < count; i++) {
        if (infos[i].references != 0 || infos[i].pins != 0
            || strcmp(infos[i].state, "building") == 0) {
            printf("FAULT: a document with %u references, %u pins, %s\n", infos[i].references,
                   infos[i].pins, infos[i].state);
            is_good = false;
        }
    }
    kvasir_close(&client);
    return is_good;
}

bool
accounts_settle(const char *runtime_dir, struct accounts *accounts_out)
{
    const Kvasir__V1__StatsReply *stats;
    struct rpc *admin;
    bool is_good;

    *accounts_out = (struct accounts){0};
    if (!open_admin(runtime_dir, &admin)) {
        return false;
    }
    is_good = wait_for_rest(admin, &stats) && check_sums(stats);
    if (is_good) {
        *accounts_out = (struct accounts){
            .wants = sum_of(stats, wants),
            .preempted = value_of(stats, "requests_preempted"),
            .requeued = value_of(stats, "requests_requeued"),
            .docs_evicted = value_of(stats, "docs_evicted"),
            .handed_over = value_of(stats, "builds_handed_over"),
            .builds_dropped = value_of(stats, "builds_dropped"),
        };
        is_good = check_references(runtime_dir);
    }
    rpc_close(&admin);
    return is_good;
}

bool
accounts_evict(const char *runtime_dir, uint32_t blocks)
{
    Kvasir__V1__EvictRequest request = KVASIR__V1__EVICT_REQUEST__INIT;
    struct rpc *admin;
    bool is_good;

    if (!open_admin(runtime_dir, &admin)) {
        return false;
    }
    request.has_blocks = true;
    request.blocks = blocks;
    is_good = call_admin(admin, METHOD_EVICT, &request.base, NULL);
    rpc_close(&admin);
    return is_good;
}
