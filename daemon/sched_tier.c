/* SPDX-License-Identifier: Apache-2.0 */
/* The host tier: which worker copies what there, and which builds take their blocks from there.
 *
 * What is copied is the pool's to say (kvpool_spill_next); here it only gets a worker, a few copies
 * at a time, so that a load never stands behind many.  A build whose blocks have copies is sent
 * with them, unless computing is expected to be faster; the worker checks what it took and computes
 * what was not whole.  So a copy that fails is a miss that costs time, never an answer. */
#include "daemon/sched_state.h"

#include <assert.h>

#include "common/mem.h"
#include "kvpool/tier_host.h"

#define LOAD_SMOOTHING 0.1
#define REFUSED_US     1000000u /* until a worker that had no memory is asked again; doubles */
#define REFUSALS_MAX   6        /* so often */
#define DOUBT          0.98     /* a speed that is not tried is believed a little less each time */

void
sched_use_host_tier(struct sched *sched, uint32_t places, struct catalog *catalog)
{
    assert(sched->pool == NULL);
    sched->host_places = places;
    sched->host_catalog = catalog;
}

enum status
sched_make_tier(struct sched *sched, kvpool_may_write_fn may_write, void *arg)
{
    bool is_ranked = kvpool_ranks_tiers(sched->pool);
    struct tier_host_config config = {
        .places = sched->host_places,
        .block_tokens = sched->config.block_tokens,
        .seed = sched->config.seed,
        .worth = is_ranked ? kvpool_worth : NULL,
        .arg = sched->pool,
        .watch = sched->config.watch,
        .catalog = sched->host_catalog,
    };
    struct tier *tier = NULL;
    uint32_t blocks = 0;

    if (sched->host_places == 0) {
        return ST_OK;
    }
    TRY(tier_host_new(&config, &tier));
    if (sched->host_catalog != NULL) {
        enum status st = tier_host_adopt(tier, may_write, arg, &blocks);

        if (st != ST_OK) {
            tier->ops->destroy(&tier);
            return st;
        }
    }
    sched->counters.host_blocks_adopted += blocks;
    kvpool_use_tier(sched->pool, tier);
    return ST_OK;
}

void
sched_worker_use_tier(struct sched *sched, uint32_t worker)
{
    assert(worker < SCHED_WORKERS_MAX && !sched->workers[worker].is_ready);
    sched->workers[worker].has_tier = true;
}

/* --- there ------------------------------------------------------------------------------------ */

static uint32_t
choose_spiller(const struct sched *sched)
{
    uint32_t best = SESSION_WORKER_NONE;

    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        const struct worker *worker = &sched->workers[i];

        if (worker->is_ready && worker->has_tier && worker->spills < SCHED_SPILLS_MAX
            && sched->now_us >= worker->next_spill_us
            && (best == SESSION_WORKER_NONE || worker->spills < sched->workers[best].spills)) {
            best = i;
        }
    }
    return best;
}

void
sched_spill(struct sched *sched)
{
    struct kvpool_spill spill;
    uint32_t worker;

    while (sched->pool != NULL && (worker = choose_spiller(sched)) != SESSION_WORKER_NONE
           && kvpool_spill_next(sched->pool, sched->workers[worker].incarnation, &spill)) {
        struct sched_action *action = sched_push(sched, SCHED_SEND_SPILL, NULL);

        action->worker = worker;
        action->incarnation = sched->workers[worker].incarnation;
        action->spill = spill.id;
        action->blocks = spill.blocks;
        action->places = spill.places;
        action->is_summed = spill.is_summed;
        action->block_count = spill.count;
        sched->workers[worker].spills++;
        sched->counters.spills_started++;
    }
}

void
sched_take_spilled(struct sched *sched, uint32_t worker, const struct sched_step *step)
{
    struct worker *w = &sched->workers[worker];

    for (size_t i = 0; i < step->spilled_count; i++) {
        const struct sched_spilled *spilled = &step->spilled[i];

        if (!kvpool_spill_end(sched->pool, spilled->spill, w->incarnation, spilled->sum_count,
                              spilled->sums)) {
            sched->counters.messages_odd++;
            continue;
        }
        w->spills--;
        w->refusals = !spilled->is_refused         ? 0
                      : w->refusals < REFUSALS_MAX ? w->refusals + 1
                                                   : REFUSALS_MAX;
        if (spilled->is_refused) { /* it would refuse the next one as well, for a while */
            w->next_spill_us = sched->now_us + ((uint64_t)REFUSED_US << (w->refusals - 1));
            sched->counters.spills_refused++;
        }
        sched->counters.host_us_out += spilled->copy_us;
    }
}

/* --- and back --------------------------------------------------------------------------------- */

/* Bytes over the link's speed against tokens over the model's, both as last seen; what is not known
 * is tried. */
static bool
is_load_faster(struct sched *sched, uint32_t blocks)
{
    double tokens = (double)blocks * sched->config.block_tokens;
    double with = 0, without = 0;
    bool is_faster;

    if (!ttft_predict_us(&sched->ttft, tokens, &with)
        || !ttft_predict_us(&sched->ttft, 0, &without)) {
        return true;
    }
    is_faster = blocks * sched->load_us_a_block <= with - without;
    sched->load_us_a_block *= is_faster ? 1 : DOUBT;
    sched->counters.loads_too_slow += !is_faster;
    return is_faster;
}

void
sched_begin_load(struct sched *sched, struct build *build)
{
    const struct worker *worker = &sched->workers[build->worker];
    uint32_t blocks = kvpool_loadable(sched->pool, build->doc);

    if (!worker->has_tier || build->is_copy || blocks == 0 || !is_load_faster(sched, blocks)) {
        return;
    }
    if (kvpool_load_begin(sched->pool, build->doc, &build->load) == ST_OK) {
        sched->counters.loads_started++;
    }
}

void
sched_end_load(struct sched *sched, struct build *build)
{
    kvpool_load_end(sched->pool, &build->load, false);
}

static void
take_loaded(struct sched *sched, struct build *build, const struct sched_loaded *loaded)
{
    uint32_t asked = build->load->count;
    uint32_t blocks = loaded->blocks < asked ? loaded->blocks : asked;
    uint64_t tokens = (uint64_t)blocks * sched->config.block_tokens;
    uint64_t missing = kvpool_doc_tokens(build->doc) - build->start;

    build->loaded = (uint32_t)(tokens < missing ? tokens : missing);
    if (blocks > 0) {
        double us = (double)loaded->copy_us / blocks;

        sched->load_us_a_block +=
            sched->load_us_a_block == 0 ? us : (us - sched->load_us_a_block) * LOAD_SMOOTHING;
    }
    sched->counters.host_us_in += loaded->copy_us;
    bool is_bad = blocks < asked && !loaded->is_unread;

    sched->counters.loads_bad += is_bad;
    sched->counters.loads_refused += blocks < asked && !is_bad;
    kvpool_load_end(sched->pool, &build->load, is_bad);
}

void
sched_take_loaded(struct sched *sched, uint32_t worker, const struct sched_step *step)
{
    for (size_t i = 0; i < step->loaded_count; i++) {
        struct build *build = sched_find_build(sched, step->loaded[i].build);

        if (build == NULL || build->worker != worker || build->load == NULL) {
            sched->counters.messages_odd++;
            continue;
        }
        take_loaded(sched, build, &step->loaded[i]);
    }
}

void
sched_lose_tier(struct sched *sched, uint32_t worker)
{
    if (sched->pool != NULL) {
        kvpool_spills_lost(sched->pool, sched->workers[worker].incarnation);
    }
    sched->workers[worker].spills = sched->workers[worker].refusals = 0;
    sched->workers[worker].next_spill_us = 0;
    sched->workers[worker].has_tier = false;
}
