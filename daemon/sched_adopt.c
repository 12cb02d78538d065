/* SPDX-License-Identifier: Apache-2.0 */
/* The pool: made, taken over from the scheduler before this one, told of, dropped.  Requests come
 * back by themselves, as retries of their clients, and find their documents, or what workers have
 * kept of them (sched_kept.c). */
#include "daemon/sched_state.h"

#include <assert.h>

#include "daemon/learned.h"

void
sched_use_catalog(struct sched *sched, struct catalog *catalog)
{
    assert(sched->pool == NULL);
    sched->catalog = catalog;
}

static enum status
make_pool(struct sched *sched, uint32_t block_count, kvpool_may_write_fn may_write, void *arg)
{
    struct kvpool_config config = {
        .block_count = block_count,
        .block_tokens = sched->config.block_tokens,
        .policy = sched->config.policy,
        .seed = sched->config.seed,
        .pin_share_max = sched->config.pin_share_max,
        .catalog = sched->catalog,
        .watch = sched->config.watch,
        .quadratic_tokens = sched->config.quadratic_tokens,
    };

    TRY(kvpool_new(&config, &sched->pool));
    enum status st = sched_make_tier(sched, may_write, arg);

    if (st != ST_OK) {
        sched_end_forgets(sched);
        kvpool_destroy(&sched->pool);
    }
    sched->has_news = true;
    return st;
}

static bool
may_not_write(void *arg, uint64_t incarnation)
{
    (void)arg;
    (void)incarnation;
    return false;
}

enum status
sched_set_pool(struct sched *sched, uint32_t block_count)
{
    struct kvpool_stats stats;

    if (sched->pool != NULL) {
        kvpool_stats(sched->pool, &stats);
        return stats.block_count == block_count
                   ? ST_OK
                   : ERR(ST_INVALID, "arena of %u blocks: the pool has %u", block_count,
                         stats.block_count);
    }
    TRY(make_pool(sched, block_count, may_not_write, NULL));
    sched_note_forgets(sched);
    return ST_OK;
}

enum status
sched_adopt_pool(struct sched *sched, uint32_t block_count, kvpool_may_write_fn may_write,
                 void *arg, struct kvpool_adopted *adopted_out)
{
    assert(sched->pool == NULL && sched->catalog != NULL);
    TRY(make_pool(sched, block_count, may_write, arg));
    TRY(kvpool_adopt(sched->pool, may_write, arg, adopted_out));
    sched_resume_forgets(sched);
    return ST_OK;
}

enum status
sched_announce_adopted(struct sched *sched)
{
    return sched->pool == NULL ? ST_OK : kvpool_announce_adopted(sched->pool);
}

enum status
sched_restore_learned(struct sched *sched, int fd)
{
    return learned_restore(fd, sched->pool);
}

void
sched_leave_pool(struct sched *sched)
{
    sched->catalog = NULL;
    if (sched->pool != NULL) {
        kvpool_leave_catalog(sched->pool);
    }
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
