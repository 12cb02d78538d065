/* SPDX-License-Identifier: Apache-2.0 */
/* forecast - what other policies and sizes of pool would have hit, and whether to believe it.
 *
 * The last requests are replayed; the first quarter only fills the pool.  What the replay of the
 * pool as it is says is compared with what it really hit.  A point is marked uncertain, with the
 * reason, when the window is too short for its size, when the replay of the real pool was off, or
 * when the traffic changes within the window. */
#ifndef KVPOOL_FORECAST_H
#define KVPOOL_FORECAST_H

#include <stdatomic.h>

#include "kvpool/traffic.h"

#define FORECAST_REQUESTS_MIN 200 /* below, nothing is said at all */

struct forecast_config {
    const struct evict_policy_ops *policy; /* in force */
    uint32_t block_count;                  /* in force */
    uint32_t block_tokens;
    double quadratic_tokens;
    double in_flight, own_blocks;  /* of the window */
    const atomic_bool *is_stopped; /* to give up early; NULL: never */
};

struct forecast_point {
    const struct evict_policy_ops *policy; /* given */
    uint32_t block_count;                  /* given: of the whole pool */
    double hit_ratio;                      /* of document tokens */
    const char *uncertain;                 /* why; NULL: it should be near */
};

struct forecast {
    double hit_ratio;      /* as it was, over the same requests as the points */
    double tokens_mean;    /* of documents, a request */
    double one_time_share; /* of the tokens: asked for once in the window */
    double drift;          /* by the zipf policy at the size in force */
    double prefix_hit_ratio;
};

/* Fills the points.  ST_UNAVAILABLE: fewer than FORECAST_REQUESTS_MIN requests, or stopped;
 * ST_NO_MEMORY. */
enum status forecast_run(const struct traffic_trace *trace, const struct forecast_config *config,
                         struct forecast_point *points, size_t point_count,
                         struct forecast *forecast_out);

/* Drift and prefix_hit_ratio of a forecast, which cost two replays more. */
enum status forecast_look(const struct traffic_trace *trace, const struct forecast_config *config,
                          struct forecast *forecast);

#endif
