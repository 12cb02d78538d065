/* SPDX-License-Identifier: Apache-2.0 */
/* Workers come and go: their lives, as the daemon tells of them. */
#include "daemon/sched_state.h"

#include <assert.h>

void
sched_make_ready(struct sched *sched, uint32_t worker, uint64_t incarnation, uint32_t seqs_max)
{
    struct worker *w = &sched->workers[worker];

    assert(worker < SCHED_WORKERS_MAX && incarnation != 0 && !w->is_ready && w->assigned == 0);
    *w = (struct worker){
        .is_known = true,
        .is_ready = true,
        .incarnation = incarnation,
        .kept = w->kept,
        .has_tier = w->has_tier,
        .survived = sched->losses,
        .seqs_max = seqs_max < SCHED_WORKER_SEQS_MAX ? seqs_max : SCHED_WORKER_SEQS_MAX,
    };
    sched->has_news = true;
}

void
sched_worker_ready(struct sched *sched, uint64_t now_us, uint32_t worker, uint64_t incarnation,
                   uint32_t seqs_max)
{
    sched_begin(sched);
    sched_make_ready(sched, worker, incarnation, seqs_max);
    sched_take_turn(sched, now_us);
}

static void
end_life(struct sched *sched, uint64_t now_us, uint32_t worker, uint64_t incarnation,
         bool is_farewell)
{
    struct worker *w = &sched->workers[worker];

    if (w->is_ready && w->incarnation == incarnation) {
        w->is_ready = false;
        sched_lose_tier(sched, worker);
        sched->counters.workers_lost++;
        if (!is_farewell) {
            sched_note_loss(sched, worker);
        }
        sched_lose_worker(sched, now_us, worker, is_farewell);
    }
}

void
sched_worker_lost(struct sched *sched, uint64_t now_us, uint32_t worker, uint64_t incarnation)
{
    assert(worker < SCHED_WORKERS_MAX);
    sched_begin(sched);
    end_life(sched, now_us, worker, incarnation, false);
    sched_take_turn(sched, now_us);
}

void
sched_worker_left(struct sched *sched, uint64_t now_us, uint32_t worker, uint64_t incarnation)
{
    assert(worker < SCHED_WORKERS_MAX);
    sched_begin(sched);
    end_life(sched, now_us, worker, incarnation, true);
    sched_take_turn(sched, now_us);
}

void
sched_worker_gone(struct sched *sched, uint64_t now_us, uint32_t worker, uint64_t incarnation)
{
    assert(worker < SCHED_WORKERS_MAX);
    sched_begin(sched);
    end_life(sched, now_us, worker, incarnation, false);
    if (sched->pool != NULL && kvpool_fence_lift(sched->pool, incarnation) > 0) {
        sched->has_news = true;
    }
    sched_take_turn(sched, now_us);
}

enum status
sched_worker_drain(struct sched *sched, uint64_t now_us, uint32_t worker, bool is_draining)
{
    sched_begin(sched);
    if (worker >= SCHED_WORKERS_MAX || !sched->workers[worker].is_ready) {
        return ERR(ST_NOT_FOUND, "worker %u is not there", worker);
    }
    sched->workers[worker].is_draining = is_draining;
    sched->has_news = true;
    sched_take_turn(sched, now_us);
    return ST_OK;
}
