/* SPDX-License-Identifier: Apache-2.0 */
/* The operator asks what other pools would have hit, and sees what the traffic says. */
#include <string.h>

#include "client/rpc.h"
#include "kvasir/v1/admin.pb-c.h"
#include "proto/endpoints.h"
#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define REQUESTS 320
#define DOCS     3 /* a request */
#define TOKENS   64

static const ProtobufCMessage *
call(struct rpc *rpc, enum method_id method, const ProtobufCMessage *request, enum rpc_code code)
{
    const ProtobufCMessage *reply = NULL;
    struct rpc_call c = {
        .method = method, .request = request, .timeout_ms = (uint32_t)process_patience_ms()};
    enum rpc_code got = rpc_call(rpc, &c, &reply);

    ck_assert_msg(got == code, "%s: %s", rpc_code_name(got), rpc_message(rpc));
    return reply;
}

/* Documents 1..60, the first ones much more often; the same for every run. */
static void
ask_around(struct host *host, uint32_t requests)
{
    uint64_t state = 12345;

    for (uint32_t r = 0; r < requests; r++) {
        struct asking_doc docs[DOCS];
        struct question question = {
            .docs = docs, .doc_count = DOCS, .query_seed = r, .max_tokens = 1};
        struct answer answer;

        for (uint32_t i = 0; i < DOCS; i++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
            uint32_t a = (uint32_t)(state >> 33) % 20, b = (uint32_t)(state >> 48) % 20;

            docs[i] = (struct asking_doc){.n_tokens = TOKENS, .seed = 1 + i * 20 + a * b / 20};
        }
        ask_ok(host, &question, &answer);
    }
}

static struct rpc *
open_admin(struct host *host)
{
    char url[ENDPOINT_URL_MAX];
    struct rpc *rpc = NULL;

    ck_assert_int_eq(endpoint_url(host_dir(host), ENDPOINT_ADMIN, url), ST_OK);
    ck_assert_int_eq(rpc_open(url, &rpc), ST_OK);
    return rpc;
}

START_TEST(whatif_tells_more_for_more_memory_and_what_is_for_what_is)
{
    struct host *host = host_start(&(struct host_options){.workers = 1, .kv_memory = "1MiB"});
    struct rpc *rpc = open_admin(host);
    Kvasir__V1__WhatIfRequest request = KVASIR__V1__WHAT_IF_REQUEST__INIT;
    uint64_t sizes[] = {256u << 10, 1u << 20, 16u << 20};
    char zipf[] = "zipf", lru[] = "lru", odd[] = "mru";
    char *policies[] = {zipf, lru};
    const Kvasir__V1__WhatIfReply *reply;
    double hit, asked;

    request.n_kv_memory = 3;
    request.kv_memory = sizes;
    request.n_policies = 2;
    request.policies = policies;
    (void)call(rpc, METHOD_WHATIF, &request.base, RPC_UNAVAILABLE); /* too early to tell */
    ask_around(host, REQUESTS);
    hit = (double)host_counter(host, "tokens_hit");
    asked = hit + (double)host_counter(host, "tokens_missed");
    reply = (const Kvasir__V1__WhatIfReply *)call(rpc, METHOD_WHATIF, &request.base, RPC_OK);
    ck_assert_uint_eq(reply->requests, REQUESTS);
    ck_assert_uint_eq(reply->n_points, 6);
    for (size_t i = 0; i < 6; i++) {
        const Kvasir__V1__CachePoint *point = reply->points[i];

        printf("%s %llu: %.3f, %.3f ms, %s\n", point->policy, (unsigned long long)point->kv_memory,
               point->hit_ratio, point->ttft_ms,
               point->uncertain == NULL ? "certain" : point->uncertain);
        ck_assert_str_eq(point->policy, policies[i / 3]);
        ck_assert(i % 3 == 0 || point->hit_ratio >= reply->points[i - 1]->hit_ratio);
        ck_assert(point->has_ttft_ms);
    }
    printf("was %.3f, over all %.3f\n", reply->hit_ratio, hit / asked);
    ck_assert(reply->points[1]->is_running && !reply->points[0]->is_running);
    ck_assert_double_eq_tol(reply->points[1]->hit_ratio, reply->hit_ratio, 0.03);
    ck_assert_double_eq_tol(reply->hit_ratio, hit / asked, 0.1); /* that has the cold start in it */
    ck_assert_double_ge(reply->points[0]->ttft_ms, reply->points[2]->ttft_ms);
    policies[1] = odd;
    (void)call(rpc, METHOD_WHATIF, &request.base, RPC_INVALID_ARGUMENT);
    rpc_close(&rpc);
    host_stop(&host);
}
END_TEST

static uint64_t
sum_of(const Kvasir__V1__StatsReply *stats, const char *name)
{
    uint64_t sum = 0;
    size_t i = 0;

    while (i < stats->n_histograms && strcmp(stats->histograms[i]->name, name) != 0) {
        i++;
    }
    ck_assert_msg(i < stats->n_histograms, "no histogram %s", name);
    for (size_t j = 0; j < stats->histograms[i]->n_counts; j++) {
        sum += stats->histograms[i]->counts[j];
    }
    return sum;
}

START_TEST(stats_tell_what_the_traffic_says)
{
    struct host *host = host_start(&(struct host_options){.workers = 1, .kv_memory = "1MiB"});
    struct rpc *rpc = open_admin(host);
    const Kvasir__V1__StatsReply *stats;
    uint64_t reused, residency;

    ask_around(host, REQUESTS);
    do { /* the look at the traffic runs in the background */
        stats = (const Kvasir__V1__StatsReply *)call(rpc, METHOD_STATS, NULL, RPC_OK);
    } while (stats->traffic == NULL);
    ck_assert_uint_ge(stats->traffic->requests, 200);
    ck_assert_uint_eq(stats->traffic->n_curve, 5);
    for (size_t i = 1; i < 5; i++) {
        ck_assert_double_ge(stats->traffic->curve[i]->hit_ratio + 0.02,
                            stats->traffic->curve[i - 1]->hit_ratio);
    }
    ck_assert_double_lt(stats->traffic->prefix_hit_ratio, stats->traffic->hit_ratio);
    ck_assert_double_le(stats->traffic->cpu_share, 0.005);
    reused = sum_of(stats, "doc_reuse_requests");
    residency = sum_of(stats, "doc_residency_requests");
    ck_assert_uint_gt(reused, 400);
    ck_assert_uint_eq(residency, host_counter(host, "docs_evicted"));
    ck_assert_uint_eq(sum_of(stats, "doc_lifetime_seconds"), residency);
    ck_assert_uint_eq(sum_of(stats, "doc_idle_before_evict_seconds"), residency);
    ck_assert_uint_gt(sum_of(stats, "doc_reuse_gap_seconds"), 0);
    rpc_close(&rpc);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("whatif", whatif_tells_more_for_more_memory_and_what_is_for_what_is,
           stats_tell_what_the_traffic_says)
