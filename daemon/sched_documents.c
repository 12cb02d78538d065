/* SPDX-License-Identifier: Apache-2.0 */
/* What operators and the Documents service ask of the pool; each call is one event. */
#include "daemon/sched.h"

#include "daemon/sched_state.h"

static enum status
check_pool_exists(const struct sched *sched)
{
    return sched->pool == NULL ? ERR(ST_UNAVAILABLE, "no pool yet: no worker has attached") : ST_OK;
}

enum status
sched_pin(struct sched *sched, const struct dockey *key)
{
    sched_begin(sched);
    TRY(check_pool_exists(sched));
    return kvpool_pin(sched->pool, key);
}

enum status
sched_unpin(struct sched *sched, uint64_t now_us, const struct dockey *key)
{
    sched_begin(sched);
    TRY(check_pool_exists(sched));
    TRY(kvpool_unpin(sched->pool, key));
    sched->has_news = true;
    sched_take_turn(sched, now_us);
    return ST_OK;
}

enum status
sched_forget(struct sched *sched, uint64_t now_us, const struct dockey *key)
{
    const struct kvpool_doc *doc;

    sched_begin(sched);
    TRY(check_pool_exists(sched));
    doc = kvpool_find(sched->pool, key);
    if (doc != NULL && kvpool_doc_builder(doc) != 0) {
        return ERR(ST_UNAVAILABLE, "the document is being built: try again");
    }
    TRY(kvpool_forget(sched->pool, key));
    sched->has_news = true;
    sched_take_turn(sched, now_us);
    return ST_OK;
}

uint32_t
sched_evict(struct sched *sched, uint64_t now_us, uint32_t blocks)
{
    uint32_t gone;

    sched_begin(sched);
    if (sched->pool == NULL) {
        return 0;
    }
    gone = kvpool_evict(sched->pool, blocks);
    sched_take_turn(sched, now_us);
    return gone;
}
