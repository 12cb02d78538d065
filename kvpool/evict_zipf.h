/* SPDX-License-Identifier: Apache-2.0 */
/* evict_zipf - the insides of the zipf policy, shared by evict_zipf.c (which decides) and
 * zipf_state.c (which saves and restores); and what an operator may see of it. */
#ifndef KVPOOL_EVICT_ZIPF_H
#define KVPOOL_EVICT_ZIPF_H

#include "kvpool/evict.h"
#include "kvpool/evict_heap.h"
#include "kvpool/zipf_calibration.h"

#define ZIPF_FRESH_MAX 64 /* documents of the last request that may become samples */

struct evict_policy {
    struct evict_config config;
    struct zipf_clock clock;
    struct zipf_memory memory;
    struct zipf_calibration calibration;
    struct evict_heap heap;
    struct evict_doc *draining; /* the last victim, until it is gone or used again */
    uint64_t random;
    double sample_credit;
    double built_per_request;       /* moving average */
    uint32_t built;                 /* in this request */
    uint32_t next_refresh;          /* heap index */
    uint32_t fresh_seen;            /* documents of this request, */
    uint32_t fresh[ZIPF_FRESH_MAX]; /* and a random choice of their records */
};

struct zipf_view {
    double weight[ZIPF_EXPERTS];
    double drift;        /* share of predicted traffic credited to the fast and the gap expert */
    uint32_t remembered; /* documents, here or not */
};

/* Of a policy that evict_zipf made. */
struct zipf_view evict_zipf_view(const struct evict_policy *policy);

/* Scores all anew, after what scores rest on was replaced. */
void evict_zipf_rescore(struct evict_policy *policy);

size_t zipf_state_max(const struct evict_policy *policy);
void zipf_state_save(const struct evict_policy *policy, struct evict_saving *saving, void *bytes,
                     size_t max, uint32_t records);
enum status zipf_state_restore(struct evict_policy *policy, const void *bytes, size_t size);

#endif
