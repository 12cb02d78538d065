/* SPDX-License-Identifier: Apache-2.0 */
/* How long documents stay, how long they lay idle before they went, and how long it is from one use
 * to the next, in seconds: for operators.  Policies count in claims and never see this. */
#include <string.h>

#include "kvpool/kvpool.h"
#include "kvpool/pool_state.h"

void
ages_init(struct kvpool_ages *ages)
{
    *ages = (struct kvpool_ages){
        .lifetime_s = {.bounds = &histogram_age_s},
        .idle_s = {.bounds = &histogram_age_s},
        .reuse_gap_s = {.bounds = &histogram_age_s},
    };
}

void
kvpool_set_now(struct kvpool *pool, uint64_t now_us)
{
    pool->now_us = now_us;
}

static double
seconds_since(const struct kvpool *pool, uint64_t since_us)
{
    return (double)(pool->now_us - since_us) / 1e6;
}

void
ages_come(const struct kvpool *pool, struct kvpool_doc *doc)
{
    doc->came_us = doc->used_us = pool->now_us;
}

/* A document that was taken over has no beginning; from its first use on it has a last one. */
void
ages_use(struct kvpool *pool, struct kvpool_doc *doc)
{
    if (doc->used_us != 0 && doc->tokens_ready > 0) {
        histogram_add(&pool->ages.reuse_gap_s, seconds_since(pool, doc->used_us));
    }
    doc->used_us = pool->now_us;
}

void
ages_go(struct kvpool *pool, const struct kvpool_doc *doc)
{
    if (doc->came_us != 0) {
        histogram_add(&pool->ages.lifetime_s, seconds_since(pool, doc->came_us));
    }
    if (doc->used_us != 0) {
        histogram_add(&pool->ages.idle_s, seconds_since(pool, doc->used_us));
    }
}

const struct kvpool_ages *
kvpool_ages(const struct kvpool *pool)
{
    return &pool->ages;
}
