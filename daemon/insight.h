/* SPDX-License-Identifier: Apache-2.0 */
/* insight - what the operator sees of the traffic: Admin/WhatIf, and StatsReply.traffic. */
#ifndef DAEMON_INSIGHT_H
#define DAEMON_INSIGHT_H

#include <assert.h>

#include "daemon/analyst.h"

#include "kvasir/v1/admin.pb-c.h"

struct call;
struct kvasird;

static_assert(TRAFFIC_REUSE_LEVELS == KVPOOL_RESIDENCY_LEVELS, "one list of bounds for both");

#define INSIGHT_CURVE_POINTS 5

struct insight {
    struct analyst *analyst;
    struct analyst_job *latest; /* for Stats; NULL: none yet */
    bool is_looking;            /* a job for Stats is out */
    uint64_t next_us;           /* not before */
    uint64_t requests_seen;     /* when the latest was made */
};

enum status insight_new(struct insight *insight);
void insight_deinit(struct insight *insight);

/* Answers now or, if there is something to compute, later. */
void insight_what_if(struct kvasird *d, struct call *call,
                     const Kvasir__V1__WhatIfRequest *request);

/* Some computations may be over. */
void insight_done(struct kvasird *d);

/* Has the next look at the traffic begun, if it is time. */
void insight_tick(struct kvasird *d, uint64_t now_us);

/* StatsReply.traffic, in storage that the caller provides. */
struct insight_wire {
    Kvasir__V1__Traffic traffic;
    Kvasir__V1__CachePoint points[INSIGHT_CURVE_POINTS];
    Kvasir__V1__CachePoint *list[INSIGHT_CURVE_POINTS];
    Kvasir__V1__Histogram reuse, residency;
    double bounds[TRAFFIC_REUSE_LEVELS - 1];
    uint64_t residency_counts[TRAFFIC_REUSE_LEVELS];
};

/* Fills the traffic and the histograms; the traffic is NULL in the reply if there is none yet. */
void insight_fill(const struct kvasird *d, struct insight_wire *wire);

#endif
