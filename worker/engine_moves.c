/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of the host tier: builds that wait for theirs, and spills, both done by the mover beside
 * the steps.
 *
 * A load that did not come back whole is no failure of anything: the build goes on from where the
 * good blocks end, by computing. */
#include "worker/engine.h"

#include <inttypes.h>
#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "worker/engine_state.h"

void
engine_use_mover(struct engine *engine, struct mover *mover)
{
    engine->mover = mover;
    engine->limits.place_count = mover_places(mover);
}

void
engine_set_wake(struct engine *engine, void (*wake)(void *arg), void *arg)
{
    if (engine->mover != NULL) {
        mover_set_wake(engine->mover, wake, arg);
    }
}

static void
begin_load(struct engine *engine, struct sequence *seq)
{
    struct mover_job *job =
        seq->n_host == 0 ? NULL : mover_job_new(MOVER_LOAD, seq->id, seq->n_host);

    if (job == NULL) {
        return; /* without memory for it, it computes them */
    }
    memcpy(job->blocks, seq->blocks + seq->n_cached / engine->limits.block_tokens,
           seq->n_host * sizeof(job->blocks[0]));
    memcpy(job->places, seq->host_places, seq->n_host * sizeof(job->places[0]));
    memcpy(job->sums, seq->host_sums, seq->n_host * sizeof(job->sums[0]));
    seq->is_loading = true;
    mover_submit(engine->mover, job);
}

/* The mover works beside the operations' order, so nothing that was enqueued before may still be on
 * its way to these blocks. */
enum status
engine_begin_loads(struct engine *engine, const Kvasir__V1__Assign *assign)
{
    bool has_finished = false;

    for (size_t i = 0; i < assign->n_builds; i++) {
        struct sequence *seq = engine_find(&engine->builds, assign->builds[i]->build);

        if (seq == NULL || seq->n_host == 0) {
            continue;
        }
        if (!has_finished) {
            TRY(engine->config.ops->finish(engine->config.ops));
            has_finished = true;
        }
        begin_load(engine, seq);
    }
    return ST_OK;
}

void
engine_stop_load(struct engine *engine, struct sequence *seq)
{
    if (seq->is_loading) {
        mover_cancel_load(engine->mover, seq->id);
        seq->is_loading = false;
    }
}

void
engine_stop_spills(struct engine *engine)
{
    if (engine->mover != NULL) {
        mover_cancel_spills(engine->mover);
        engine->n_spills = 0;
    }
}

static enum status
check_ids(const uint32_t *ids, size_t count, uint32_t limit, const char *what)
{
    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= limit) {
            return ERR(ST_INVALID, "%s %zu is %" PRIu32 ": there are %" PRIu32, what, i, ids[i],
                       limit);
        }
    }
    return ST_OK;
}

static enum status
submit_spill(struct engine *engine, const Kvasir__V1__Spill *spill)
{
    size_t n = spill->n_block_ids;
    struct mover_job *job;

    if (engine->mover == NULL) {
        return ERR(ST_INVALID, "this worker has no host tier");
    }
    if (n == 0 || n != spill->n_host_block_ids || n > engine->limits.block_count) {
        return ERR(ST_INVALID, "%zu blocks to %zu places of the host tier", n,
                   spill->n_host_block_ids);
    }
    TRY(check_ids(spill->block_ids, n, engine->limits.block_count, "block"));
    TRY(check_ids(spill->host_block_ids, n, engine->limits.place_count, "place"));
    job = mover_job_new(MOVER_SPILL, spill->spill, (uint32_t)n);
    if (job == NULL) {
        return ERR(ST_INVALID, "a spill of %zu blocks: no memory", n);
    }
    memcpy(job->blocks, spill->block_ids, n * sizeof(job->blocks[0]));
    memcpy(job->places, spill->host_block_ids, n * sizeof(job->places[0]));
    job->is_summed = spill->is_summed;
    engine->n_spills++;
    mover_submit(engine->mover, job);
    return ST_OK;
}

void
engine_apply_spill(struct engine *engine, const Kvasir__V1__Spill *spill)
{
    if (submit_spill(engine, spill) != ST_OK) {
        log_warn("spill_refused", "spill=%" PRIu64 " reason=\"%s\"", spill->spill, status_detail());
        report_spilled(&engine->report, spill->spill, NULL, "refused");
    }
}

enum status
engine_erase_host(struct engine *engine, const Kvasir__V1__Erase *erase)
{
    size_t n = erase->n_host_block_ids;
    struct mover_job *job;

    if (engine->mover == NULL) {
        return ERR(ST_INVALID, "this worker has no host tier");
    }
    TRY(check_ids(erase->host_block_ids, n, engine->limits.place_count, "place"));
    job = mover_job_new(MOVER_ERASE, erase->erase, (uint32_t)n);
    if (job == NULL) {
        return ERR(ST_NO_MEMORY, "an erasure of %zu places", n);
    }
    memcpy(job->places, erase->host_block_ids, n * sizeof(job->places[0]));
    engine->n_spills++;
    mover_submit(engine->mover, job);
    return ST_OK;
}

static enum status
end_load(struct engine *engine, const struct mover_job *job)
{
    struct sequence *seq = engine_find(&engine->builds, job->id);
    uint64_t cached;

    if (seq == NULL) {
        return ST_OK; /* it was given up, and nobody asks any more */
    }
    cached = seq->n_cached + (uint64_t)job->done * engine->limits.block_tokens;
    seq->n_cached = cached < seq->n_ids ? (uint32_t)cached : seq->n_ids;
    seq->is_loading = false;
    engine->is_next_ready = false; /* it has rows now, or who waits for it has */
    if (job->done < job->n) {
        if (job->is_unread) {
            log_warn("load_refused", "build=%" PRIu64 " detail=\"%s\" computing=%" PRIu32, job->id,
                     job->error, seq->n_ids - seq->n_cached);
        } else {
            log_error("host_block_bad", "build=%" PRIu64 " detail=\"%s\" computing=%" PRIu32,
                      job->id, job->error, seq->n_ids - seq->n_cached);
        }
        TRY(upkeep_wipe(&engine->upkeep, job->blocks + job->done, job->n - job->done));
    }
    report_loaded(&engine->report, job);
    return ST_OK;
}

enum status
engine_take_moves(struct engine *engine)
{
    struct mover_job *job = NULL;

    if (engine->mover == NULL) {
        return ST_OK;
    }
    for (;;) {
        TRY(mover_take(engine->mover, &job));
        if (job == NULL) {
            return ST_OK;
        }
        list_push_back(&engine->told, &job->link); /* the message points into it */
        switch (job->kind) {
        case MOVER_LOAD: TRY(end_load(engine, job)); break;
        case MOVER_SPILL:
            engine->n_spills--;
            report_spilled(&engine->report, job->id, job, NULL);
            break;
        case MOVER_ERASE:
            engine->n_spills--;
            report_erased(&engine->report, job->id);
            break;
        }
    }
}

void
engine_forget_moves(struct engine *engine)
{
    LIST_FOR_EACH_SAFE(node, &engine->told)
    {
        struct mover_job *job = LIST_ENTRY(node, struct mover_job, link);

        list_unlink(node);
        mem_free(job);
    }
}
