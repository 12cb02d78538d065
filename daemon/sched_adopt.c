/* SPDX-License-Identifier: Apache-2.0 */
/* What a scheduler takes over from the one before it: the pool.  Requests come back by themselves,
 * as retries of their clients, and find their documents. */
#include "daemon/sched_state.h"

#include <assert.h>

#include "daemon/learned.h"

void
sched_use_catalog(struct sched *sched, struct catalog *catalog)
{
    assert(sched->pool == NULL);
    sched->catalog = catalog;
}

enum status
sched_adopt_pool(struct sched *sched, uint32_t block_count, kvpool_may_write_fn may_write,
                 void *arg, struct kvpool_adopted *adopted_out)
{
    assert(sched->pool == NULL && sched->catalog != NULL);
    TRY(sched_set_pool(sched, block_count));
    TRY(kvpool_adopt(sched->pool, may_write, arg, adopted_out));
    return ST_OK;
}

enum status
sched_restore_learned(struct sched *sched, int fd)
{
    return learned_restore(fd, sched->pool);
}

void
sched_worker_reset(struct sched *sched, uint64_t now_us, uint64_t incarnation)
{
    sched_begin(sched);
    if (sched->pool != NULL && kvpool_fence_lift(sched->pool, incarnation) > 0) {
        sched->has_news = true;
    }
    sched_take_turn(sched, now_us);
}

void
sched_drop_pool(struct sched *sched)
{
    assert(list_is_empty(&sched->running) && sched->catalog == NULL);
    LIST_FOR_EACH(node, &sched->waiting)
    {
        sched_unawait(sched, LIST_ENTRY(node, struct session, age_link));
    }
    kvpool_destroy(&sched->pool);
}

void
sched_set_waiting_max(struct sched *sched, uint32_t waiting_max)
{
    sched->config.waiting_max = waiting_max;
}
