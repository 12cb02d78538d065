/* SPDX-License-Identifier: Apache-2.0 */
/* The curve of Stats is made anew when the last one cost so little that all of them together stay
 * below LOOK_SHARE of one core, and when there is new traffic to look at. */
#include "daemon/insight.h"

#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/kvasird.h"
#include "daemon/offer.h"
#include "daemon/ttft.h"

#define LOOK_SHARE       0.004   /* of one core; the promise is 0.005 */
#define LOOK_US_MIN      1000000 /* between two looks */
#define LOOK_NEW_SHARE   20      /* one request in so many must be new */
#define WHATIF_SIZES_MAX 16

static const double curve_sizes[INSIGHT_CURVE_POINTS] = {0.25, 0.5, 1, 2, 4};

enum status
insight_new(struct insight *insight)
{
    return analyst_new(&insight->analyst);
}

void
insight_deinit(struct insight *insight)
{
    analyst_destroy(&insight->analyst);
    analyst_job_destroy(&insight->latest);
}

/* --- asking ----------------------------------------------------------------------------------- */

static enum status
make_job(const struct kvasird *d, uint64_t call, struct analyst_job **job_out)
{
    struct analyst_job *job;
    struct kvpool_stats stats;
    enum status st;

    if (sched_pool(d->sched) == NULL) {
        return ERR(ST_UNAVAILABLE, "no pool yet: no worker has attached");
    }
    job = mem_zalloc(1, sizeof(*job));
    if (job == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for a forecast");
    }
    st = traffic_copy(sched_traffic(d->sched), &job->window);
    if (st != ST_OK) {
        analyst_job_destroy(&job);
        return st;
    }
    kvpool_stats(sched_pool(d->sched), &stats);
    list_init(&job->link);
    job->call = call;
    job->config = (struct forecast_config){
        .policy = sched_config(d->sched)->policy,
        .block_count = stats.block_count,
        .block_tokens = stats.block_tokens,
        .quadratic_tokens = sched_config(d->sched)->quadratic_tokens,
        .in_flight = job->window.in_flight,
        .own_blocks = job->window.own_blocks,
    };
    *job_out = job;
    return ST_OK;
}

void
insight_tick(struct kvasird *d, uint64_t now_us)
{
    struct insight *insight = &d->insight;
    uint64_t requests = traffic_requests(sched_traffic(d->sched));
    struct analyst_job *job = NULL;

    if (insight->is_looking || now_us < insight->next_us || requests < FORECAST_REQUESTS_MIN
        || requests - insight->requests_seen < requests / LOOK_NEW_SHARE
        || requests == insight->requests_seen || make_job(d, 0, &job) != ST_OK) {
        return;
    }
    for (size_t i = 0; i < INSIGHT_CURVE_POINTS; i++) {
        double blocks = curve_sizes[i] * job->config.block_count;

        job->points[i] = (struct forecast_point){
            .policy = job->config.policy,
            .block_count = blocks < 1                   ? 1
                           : blocks > KVPOOL_BLOCKS_MAX ? KVPOOL_BLOCKS_MAX
                                                        : (uint32_t)blocks,
        };
    }
    job->point_count = INSIGHT_CURVE_POINTS;
    insight->requests_seen = requests;
    insight->is_looking = analyst_submit(insight->analyst, &job) == ST_OK;
}

/* Policies by sizes.  ST_INVALID names what is wrong. */
static enum status
read_points(const struct kvasird *d, const Kvasir__V1__WhatIfRequest *request,
            struct analyst_job *job)
{
    uint64_t block_bytes = handoff_arenas(d->handoff)->block_bytes;
    size_t policies = request->n_policies == 0 ? 1 : request->n_policies;
    size_t sizes = request->n_kv_memory == 0 ? 1 : request->n_kv_memory;

    if (sizes > WHATIF_SIZES_MAX || policies * sizes > ANALYST_POINTS_MAX) {
        return ERR(ST_INVALID, "%zu sizes and %zu policies: at most %d, and %d together", sizes,
                   policies, WHATIF_SIZES_MAX, ANALYST_POINTS_MAX);
    }
    for (size_t p = 0; p < policies; p++) {
        const struct evict_policy_ops *policy =
            request->n_policies == 0 ? job->config.policy : evict_policy_find(request->policies[p]);

        if (policy == NULL) {
            return ERR(ST_INVALID, "policy %s: it must be " EVICT_POLICY_NAMES,
                       request->policies[p]);
        }
        for (size_t s = 0; s < sizes; s++) {
            uint64_t blocks = request->n_kv_memory == 0 ? job->config.block_count
                                                        : request->kv_memory[s] / block_bytes;

            if (blocks == 0 || blocks > KVPOOL_BLOCKS_MAX) {
                return ERR(ST_INVALID, "kv_memory of %llu bytes: not 1..%u blocks of %llu bytes",
                           (unsigned long long)request->kv_memory[s], KVPOOL_BLOCKS_MAX,
                           (unsigned long long)block_bytes);
            }
            job->points[job->point_count++] =
                (struct forecast_point){.policy = policy, .block_count = (uint32_t)blocks};
        }
    }
    return ST_OK;
}

void
insight_what_if(struct kvasird *d, struct call *call, const Kvasir__V1__WhatIfRequest *request)
{
    struct analyst_job *job = NULL;
    enum status st = make_job(d, call->id, &job);

    if (st == ST_OK) {
        st = read_points(d, request, job);
    }
    if (st == ST_OK) {
        st = analyst_submit(d->insight.analyst, &job);
    }
    if (st != ST_OK) {
        analyst_job_destroy(&job);
        deliver_reply(d, call, rpc_code_of(st), status_detail(), 0, NULL, true);
    }
}

/* --- answering -------------------------------------------------------------------------------- */

static void
fill_point(const struct kvasird *d, const struct analyst_job *job,
           const struct forecast_point *point, Kvasir__V1__CachePoint *wire)
{
    uint64_t block_bytes = handoff_arenas(d->handoff)->block_bytes;
    double missed = (1 - point->hit_ratio) * job->forecast.tokens_mean, us;

    kvasir__v1__cache_point__init(wire);
    wire->policy = (char *)(uintptr_t)point->policy->name; /* only packed */
    wire->has_kv_memory = wire->has_blocks = wire->has_hit_ratio = wire->has_is_running = true;
    wire->kv_memory = point->block_count * block_bytes;
    wire->blocks = point->block_count;
    wire->hit_ratio = point->hit_ratio;
    wire->is_running =
        point->policy == job->config.policy && point->block_count == job->config.block_count;
    wire->has_ttft_ms = ttft_predict_us(sched_ttft(d->sched), missed, &us);
    wire->ttft_ms = wire->has_ttft_ms ? us / 1000 : 0;
    wire->uncertain = (char *)(uintptr_t)point->uncertain;
}

static void
reply_what_if(struct kvasird *d, struct call *call, const struct analyst_job *job)
{
    Kvasir__V1__WhatIfReply reply = KVASIR__V1__WHAT_IF_REPLY__INIT;
    Kvasir__V1__CachePoint points[ANALYST_POINTS_MAX];
    Kvasir__V1__CachePoint *list[ANALYST_POINTS_MAX];

    for (size_t i = 0; i < job->point_count; i++) {
        fill_point(d, job, &job->points[i], &points[i]);
        list[i] = &points[i];
    }
    reply.n_points = job->point_count;
    reply.points = list;
    reply.has_requests = reply.has_hit_ratio = true;
    reply.requests = job->requests;
    reply.hit_ratio = job->forecast.hit_ratio;
    reply.has_ttft_ms = sched_ttft(d->sched)->n > 0;
    reply.ttft_ms = ttft_mean_us(sched_ttft(d->sched)) / 1000;
    deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
}

static void
keep_look(struct insight *insight, struct analyst_job *job)
{
    insight->is_looking = false;
    insight->next_us = job->done_us + LOOK_US_MIN;
    if (job->status != ST_OK) {
        log_debug("look_failed", "detail=\"%s\"", job->message);
        analyst_job_destroy(&job);
        return;
    }
    if ((double)job->cpu_us / LOOK_SHARE > LOOK_US_MIN) {
        insight->next_us = job->done_us + (uint64_t)((double)job->cpu_us / LOOK_SHARE);
    }
    analyst_job_destroy(&insight->latest);
    insight->latest = job;
}

void
insight_done(struct kvasird *d)
{
    struct analyst_job *job;

    while ((job = analyst_take(d->insight.analyst)) != NULL) {
        struct call *call = job->call == 0 ? NULL : calls_find(d->calls, job->call);

        if (job->call == 0) {
            keep_look(&d->insight, job);
            continue;
        }
        if (call != NULL && job->status == ST_OK) {
            reply_what_if(d, call, job);
        } else if (call != NULL) {
            deliver_reply(d, call, rpc_code_of(job->status), job->message, 0, NULL, true);
        }
        analyst_job_destroy(&job);
    }
    deliver(d);
}

static void
fill_traffic(const struct kvasird *d, struct insight_wire *wire)
{
    const struct analyst_job *job = d->insight.latest;
    Kvasir__V1__Traffic *traffic = &wire->traffic;
    uint64_t due_us = d->insight.next_us - job->done_us;

    kvasir__v1__traffic__init(traffic);
    traffic->has_requests = traffic->has_documents = traffic->has_hit_ratio = true;
    traffic->has_prefix_hit_ratio = traffic->has_one_time_share = traffic->has_drift = true;
    traffic->has_age_ms = traffic->has_cpu_share = true;
    traffic->requests = job->requests;
    traffic->documents = job->documents;
    traffic->hit_ratio = job->forecast.hit_ratio;
    traffic->prefix_hit_ratio = job->forecast.prefix_hit_ratio;
    traffic->one_time_share = job->forecast.one_time_share;
    traffic->drift = job->forecast.drift;
    traffic->has_alpha = job->alpha > 0;
    traffic->alpha = job->alpha;
    traffic->age_ms = (clock_now_us() - job->done_us) / 1000;
    traffic->cpu_share = (double)job->cpu_us / (double)(due_us + job->cpu_us);
    traffic->n_curve = job->point_count;
    traffic->curve = wire->list;
    for (size_t i = 0; i < job->point_count; i++) {
        fill_point(d, job, &job->points[i], &wire->points[i]);
        wire->list[i] = &wire->points[i];
    }
}

static void
fill_histogram(Kvasir__V1__Histogram *wire, const char *name, const char *help, double *bounds,
               uint64_t *counts)
{
    kvasir__v1__histogram__init(wire);
    wire->name = (char *)(uintptr_t)name; /* only packed */
    wire->help = (char *)(uintptr_t)help;
    wire->n_bounds = TRAFFIC_REUSE_LEVELS - 1;
    wire->bounds = bounds;
    wire->n_counts = TRAFFIC_REUSE_LEVELS;
    wire->counts = counts;
}

void
insight_fill(const struct kvasird *d, struct insight_wire *wire)
{
    static uint64_t none[TRAFFIC_REUSE_LEVELS];
    const struct kvpool *pool = sched_pool(d->sched);

    for (int level = 0; level < TRAFFIC_REUSE_LEVELS - 1; level++) {
        wire->bounds[level] = (double)((UINT64_C(1) << level) - 1); /* 0, 1, 3, 7, ... */
    }
    memset(wire->residency_counts, 0, sizeof(wire->residency_counts));
    if (pool != NULL) {
        kvpool_residency(pool, wire->residency_counts);
    }
    fill_histogram(&wire->residency, "doc_residency_requests",
                   "requests that documents stayed for, of those evicted whole", wire->bounds,
                   wire->residency_counts);
    fill_histogram(&wire->reuse, "doc_reuse_requests",
                   "requests between two references of a document, in the traffic looked at",
                   wire->bounds, d->insight.latest == NULL ? none : d->insight.latest->reuse);
    if (d->insight.latest != NULL) {
        fill_traffic(d, wire);
    }
}
