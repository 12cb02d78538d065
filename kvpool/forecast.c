/* SPDX-License-Identifier: Apache-2.0 */
#include "kvpool/forecast.h"

#include <math.h>

#include "common/mem.h"

#define WARM_SHARE      4    /* one request in so many only fills the pool */
#define REQUESTS_FEW    2000 /* counted ones, below which chance is several points */
#define OFF_MAX         0.03 /* the replay of the real pool may be so far off */
#define CHANGE_MAX      0.04 /* and the halves of a window from each other */
#define FIRST_SHARE_MAX 0.02 /* of the tokens: first seen, though they would still be there */

static const char *const too_few = "few requests so far";
static const char *const too_large = "the requests looked at do not fill this pool";
static const char *const is_off = "a replay of the running pool differs from what it hit";
static const char *const is_changing = "the traffic changes";

static enum status
replay(const struct replay_trace *trace, const struct forecast_config *config,
       const struct evict_policy_ops *policy, uint32_t block_count, struct replay_result *result)
{
    uint32_t own_blocks = (uint32_t)config->own_blocks;
    struct replay_config replay_config = {
        .policy = policy,
        .block_count = block_count > own_blocks ? block_count - own_blocks : 1,
        .block_tokens = config->block_tokens,
        .quadratic_tokens = config->quadratic_tokens,
        .in_flight = config->in_flight < 1 ? 1 : (uint32_t)lround(config->in_flight),
        .uncounted = trace->request_count / WARM_SHARE,
        .is_stopped = config->is_stopped,
    };

    return replay_run(trace, &replay_config, result);
}

static double
ratio(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : (double)part / (double)whole;
}

static const char *
doubt(const struct replay_result *result, double off)
{
    double early = ratio(result->tokens_hit_early, result->tokens_early);
    double late =
        ratio(result->tokens_hit - result->tokens_hit_early, result->tokens - result->tokens_early);

    if (result->requests < REQUESTS_FEW) {
        return too_few;
    }
    /* What is first seen now may have been seen before the window, and such a pool would have it.
     */
    if (!result->was_full && ratio(result->tokens_first, result->tokens) > FIRST_SHARE_MAX) {
        return too_large;
    }
    if (fabs(off) > OFF_MAX) {
        return is_off;
    }
    return fabs(late - early) > CHANGE_MAX ? is_changing : NULL;
}

static double
one_time_share(const struct traffic_trace *t)
{
    const struct replay_trace *trace = &t->trace;
    uint64_t once = 0, all = 0;
    uint32_t *seen = mem_zalloc(trace->doc_count, sizeof(*seen));

    for (uint32_t i = 0; seen != NULL && i < trace->starts[trace->request_count]; i++) {
        uint32_t doc = trace->docs[i];

        all += trace->tokens[doc];
        once += seen[doc] == 0 ? trace->tokens[doc] : 0;
        once -= seen[doc] == 1 ? trace->tokens[doc] : 0;
        seen[doc] += seen[doc] < 2;
    }
    mem_free(seen);
    return ratio(once, all);
}

enum status
forecast_run(const struct traffic_trace *trace, const struct forecast_config *config,
             struct forecast_point *points, size_t point_count, struct forecast *forecast_out)
{
    uint32_t requests = trace->trace.request_count;
    struct replay_result as_it_is;
    double off;

    if (requests < FORECAST_REQUESTS_MIN) {
        return ERR(ST_UNAVAILABLE, "only %u requests with documents so far, %d are needed",
                   requests, FORECAST_REQUESTS_MIN);
    }
    TRY(replay(&trace->trace, config, config->policy, config->block_count, &as_it_is));
    *forecast_out = (struct forecast){
        .hit_ratio = traffic_hit_ratio(trace, requests / WARM_SHARE, requests),
        .tokens_mean = ratio(as_it_is.tokens, as_it_is.requests),
        .one_time_share = one_time_share(trace),
    };
    off = ratio(as_it_is.tokens_hit, as_it_is.tokens) - forecast_out->hit_ratio;
    for (size_t i = 0; i < point_count; i++) {
        struct replay_result result = as_it_is;

        if (points[i].policy != config->policy || points[i].block_count != config->block_count) {
            TRY(replay(&trace->trace, config, points[i].policy, points[i].block_count, &result));
        }
        points[i].hit_ratio = ratio(result.tokens_hit, result.tokens);
        points[i].uncertain = doubt(&result, off);
    }
    return ST_OK;
}

enum status
forecast_look(const struct traffic_trace *trace, const struct forecast_config *config,
              struct forecast *forecast)
{
    struct replay_trace prefixes;
    struct replay_result result;
    enum status st;

    TRY(replay(&trace->trace, config, &evict_zipf, config->block_count, &result));
    forecast->drift = result.drift;
    TRY(replay_prefixes(&trace->trace, &prefixes));
    st = replay(&prefixes, config, &evict_lru, config->block_count, &result);
    replay_trace_deinit(&prefixes);
    forecast->prefix_hit_ratio = ratio(result.tokens_hit, result.tokens);
    return st;
}
