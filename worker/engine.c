/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine.h"

#include <inttypes.h>

#include "common/failpoint.h"
#include "common/log.h"
#include "common/mem.h"
#include "worker/engine_state.h"

static bool
sequence_has_id(const struct htab_node *node, const void *key)
{
    return HTAB_ENTRY(node, const struct sequence, node)->id == *(const uint64_t *)key;
}

struct sequence *
engine_find(const struct htab *tab, uint64_t id)
{
    struct htab_node *node = htab_find(tab, htab_mix(id), &id);

    return node == NULL ? NULL : HTAB_ENTRY(node, struct sequence, node);
}

/* --- life ---------------------------------------------------------------------------- */

static struct batch_limits
limits_of_step(const struct engine_config *config)
{
    const struct ops *ops = config->ops;
    struct batch_limits limits = {.rows = config->step_tokens,
                                  .rows_beside = config->mixed_tokens,
                                  .segs = ops->step_segs_max,
                                  .pairs = ops->step_pairs_max,
                                  .singles = ops->step_singles_max,
                                  .single_segs = ops->step_single_segs_max};

    if (config->decodes_max > 0) {
        limits.singles = config->decodes_max;
        limits.single_segs = UINT64_MAX;
    }
    return limits;
}

static enum status
allocate_step(struct engine *engine)
{
    const struct engine_config *config = &engine->config;
    void *draws;

    engine->params = mem_zalloc(config->seqs_max, sizeof(engine->params[0]));
    if (engine->params == NULL) {
        return ERR(ST_NO_MEMORY, "%u requests at once", config->seqs_max);
    }
    TRY(config->ops->alloc_host(config->ops, config->seqs_max * sizeof(engine->draws[0]), &draws));
    engine->draws = draws;
    for (int i = 0; i < 2; i++) {
        TRY(plan_init(&engine->plans[i], config->ops, limits_of_step(config), config->seqs_max,
                      config->layout.P));
    }
    engine->plan = &engine->plans[0];
    engine->next = &engine->plans[1];
    TRY(copies_init(&engine->copies, config->ops, config->layout, config->model->inv_freq));
    sums_init(&engine->sums, config->ops, kv_layout_block_bytes(&config->layout));
    TRY(upkeep_init(&engine->upkeep, config->ops, config->layout, config->is_poisoning));
    upkeep_place_kv(&engine->upkeep, config->kv, config->block_count);
    TRY(htab_init(&engine->requests, sequence_has_id));
    TRY(htab_init(&engine->kept, sequence_has_id));
    return htab_init(&engine->builds, sequence_has_id);
}

enum status
engine_new(const struct engine_config *config, struct engine **engine_out)
{
    struct engine *engine = mem_zalloc(1, sizeof(*engine));

    if (engine == NULL) {
        return ERR(ST_NO_MEMORY, "an engine");
    }
    engine->config = *config;
    engine->limits = (struct sequence_limits){.block_tokens = config->layout.P,
                                              .block_count = config->block_count,
                                              .vocab_size = config->model->V};
    list_init(&engine->order);
    list_init(&engine->gone);
    list_init(&engine->told);
    list_init(&engine->done);
    report_reset(&engine->report);
    enum status st = llama_new(&(struct llama_config){.model = config->model,
                                                      .plan = config->plan,
                                                      .weights = config->weights,
                                                      .kv = config->kv,
                                                      .layout = config->layout,
                                                      .block_count = config->block_count,
                                                      .ops = config->ops,
                                                      .rows_max = config->step_tokens,
                                                      .logits_max = config->seqs_max},
                               &engine->llama);

    if (st == ST_OK) {
        st = allocate_step(engine);
    }
    if (st != ST_OK) {
        engine_destroy(&engine);
        return st;
    }
    *engine_out = engine;
    return ST_OK;
}

enum status
engine_settle(struct engine *engine)
{
    return llama_settle(engine->llama);
}

void
engine_place_kv(struct engine *engine, void *kv, uint32_t block_count)
{
    engine->config.kv = kv;
    engine->config.block_count = block_count;
    engine->limits.block_count = block_count;
    upkeep_place_kv(&engine->upkeep, kv, block_count);
    llama_place_kv(engine->llama, kv, block_count);
}

static void
destroy_all(struct list_node *head)
{
    LIST_FOR_EACH_SAFE(n, head)
    {
        struct sequence *seq = LIST_ENTRY(n, struct sequence, link);

        list_unlink(n);
        sequence_destroy(&seq);
    }
}

void
engine_destroy(struct engine **engine)
{
    struct engine *e = *engine;

    if (e == NULL) {
        return;
    }
    destroy_all(&e->order);
    destroy_all(&e->gone);
    engine_forget_moves(e);
    destroy_all(&e->done);
    mem_free(e->kept_list);
    htab_deinit(&e->requests);
    htab_deinit(&e->kept);
    htab_deinit(&e->builds);
    copies_deinit(&e->copies);
    sums_deinit(&e->sums);
    upkeep_deinit(&e->upkeep);
    llama_destroy(&e->llama);
    report_deinit(&e->report);
    plan_deinit(&e->plans[0]);
    plan_deinit(&e->plans[1]);
    grammar_vocabulary_destroy(&e->vocabulary);
    mem_free(e->params);
    if (e->draws != NULL) {
        e->config.ops->release_host(e->config.ops, e->draws);
    }
    MEM_FREE(*engine);
}

uint32_t
engine_open(const struct engine *engine)
{
    return (uint32_t)(engine->requests.count + engine->builds.count + engine->kept.count);
}

/* --- room: all that a step may need is allocated while messages are taken in --------- */

/* With half of it to spare: requests come one by one. */
static size_t
grown(size_t now, size_t wanted)
{
    return wanted > now ? wanted + wanted / 2 : now;
}

static bool
has_step_room(const struct engine *engine)
{
    const struct llama_room *made = &engine->room_made;
    const struct llama_room *room = &engine->room;

    return engine_open(engine) <= engine->sequences_made && room->segs <= made->segs
           && room->block_ids <= made->block_ids && room->partials <= made->partials
           && room->copies <= made->copies && room->sums <= made->sums
           && room->history <= made->history;
}

enum status
engine_make_room(struct engine *engine)
{
    struct llama_room *made = &engine->room_made;

    if (has_step_room(engine)) {
        return ST_OK;
    }
    *made = (struct llama_room){
        .segs = grown(made->segs, engine->room.segs),
        .block_ids = grown(made->block_ids, engine->room.block_ids),
        .partials = grown(made->partials, engine->room.partials),
        .copies = grown(made->copies, engine->room.copies),
        .sums = grown(made->sums, engine->room.sums),
        .history = grown(made->history, engine->room.history),
    };
    engine->sequences_made = grown(engine->sequences_made, engine_open(engine));
    engine->is_next_ready = false; /* its arrays go */
    TRY(plan_reserve(&engine->plans[0], engine->sequences_made, made));
    TRY(plan_reserve(&engine->plans[1], engine->sequences_made, made));
    TRY(copies_reserve(&engine->copies, made->copies));
    sums_clear(&engine->sums);
    TRY(sums_reserve(&engine->sums, made->sums));
    return llama_reserve(engine->llama, made);
}

uint32_t
engine_rows_ahead(const struct engine *engine, const struct sequence *seq)
{
    return engine->is_next_ready ? engine->next->items[seq->item].rows : 0;
}

void
engine_count_room(struct engine *engine, const struct sequence *seq, bool is_added)
{
    struct llama_room room = sequence_room(seq, engine->limits.block_tokens);
    struct llama_room *sum = &engine->room;

    sum->segs += is_added ? room.segs : -room.segs;
    sum->block_ids += is_added ? room.block_ids : -room.block_ids;
    sum->partials += is_added ? room.partials : -room.partials;
    sum->copies += is_added ? room.copies : -room.copies;
    sum->sums += is_added ? room.sums : -room.sums;
    sum->history += is_added ? room.history : -room.history;
}

void
engine_fail(struct engine *engine, uint64_t request, const char *reason)
{
    log_warn("request_failed", "request=%" PRIu64 " reason=\"%s\"", request, reason);
    report_failed(&engine->report, request, reason);
}

void
engine_retire(struct engine *engine, struct sequence *seq)
{
    if (engine_rows_ahead(engine, seq) > 0) {
        engine->is_next_ready = false;
    }
    if (seq->has_turn && seq->link.next != &engine->order) {
        LIST_ENTRY(seq->link.next, struct sequence, link)->has_turn = true;
    }
    engine_stop_load(engine, seq);
    htab_remove(seq->is_build  ? &engine->builds
                : seq->is_kept ? &engine->kept
                               : &engine->requests,
                &seq->node);
    engine_count_room(engine, seq, false);
    list_unlink(&seq->link);
    list_push_back(&engine->gone, &seq->link);
}

void
engine_forget_last_step(struct engine *engine)
{
    if (engine->is_reported) {
        LIST_FOR_EACH_SAFE(n, &engine->gone)
        {
            (void)engine_keep_done(engine, LIST_ENTRY(n, struct sequence, link));
        }
        destroy_all(&engine->gone);
        engine_forget_moves(engine);
        report_reset(&engine->report);
        engine->is_reported = false;
    }
}

enum status
engine_bind(const struct engine *engine)
{
    return engine->config.ops->bind(engine->config.ops);
}

/* --- a step -------------------------------------------------------------------------- */

static const struct sequence *
find_build(const void *arg, uint64_t build)
{
    return engine_find(&((const struct engine *)arg)->builds, build);
}

static enum status
draw_tokens(struct engine *engine)
{
    uint32_t n = engine->plan->step.n_logits;

    for (uint32_t i = 0; i < n; i++) {
        struct sequence *seq = engine->plan->drawing[i];

        engine->params[i] = seq->sampling;
        engine->params[i].counter = seq->n_ids - seq->n_prompt;
        /* The penalty is on the query and the answer: mostly the documents' ids are not known
         * here. */
        engine->params[i].history = seq->ids + seq->n_documents;
        engine->params[i].n_history =
            seq->sampling.repetition_penalty != 1.0f ? seq->n_ids - seq->n_documents : 0;
        constrain_fill(&seq->constrain, &engine->params[i]);
    }
    return llama_draw(engine->llama, 0, n, engine->params, engine->draws);
}

/* One that is kept has a number of ours, under which kvasird may know another request. */
static void
lose(struct engine *engine, struct sequence *seq, const char *reason)
{
    if (seq->is_kept) {
        log_warn("kept_failed", "kept=%" PRIu64 " reason=\"%s\"", seq->id, reason);
        engine_drop_kept(engine, seq->id);
        return;
    }
    engine_fail(engine, seq->id, reason);
    engine_retire(engine, seq);
}

/* Waits for the tokens; when one row could not be drawn from (NaN; a device says so only now),
 * draws for each alone, so that only that request fails.  Drawing again gives the same: a draw
 * depends on seed and counter. */
static enum status
wait_for_tokens(struct engine *engine, enum status drawn)
{
    uint32_t n = engine->plan->step.n_logits;
    enum status st = drawn == ST_OK ? llama_wait(engine->llama, 0, n, engine->draws) : drawn;

    for (uint32_t i = 0; st == ST_INVALID && i < n; i++) {
        enum status one = llama_sample(engine->llama, i, 1, &engine->params[i], &engine->draws[i]);

        if (one != ST_OK && one != ST_INVALID) {
            return one;
        }
        if (one == ST_INVALID) {
            lose(engine, engine->plan->drawing[i], status_detail());
            engine->plan->drawing[i] = NULL;
        }
    }
    return st == ST_INVALID ? ST_OK : st;
}

static void
take_token(struct engine *engine, struct sequence *seq)
{
    Kvasir__V1__StepResult *result = &seq->result;
    bool is_first = seq->n_ids == seq->n_prompt;

    if (seq->is_kept || seq->is_behind) {
        engine_take_untold(engine, seq);
        return;
    }
    sequence_take(seq, engine->config.tokenizer);
    for (uint32_t i = 0; is_first && i < seq->n_segs; i++) {
        result->has_tokens_reused = true;
        result->tokens_reused += seq->segs[i].n_tokens;
    }
    result->has_own_tokens_reused = is_first;
    result->own_tokens_reused = is_first ? seq->n_reused : 0;
    report_result(&engine->report, result);
    if (result->finish != KVASIR__V1__FINISH_REASON__FINISH_NONE) {
        report_released(&engine->report, seq->id);
        engine_retire(engine, seq);
    }
}

/* The step has run: KV is there, tokens are drawn. */
static void
advance(struct engine *engine)
{
    LIST_FOR_EACH(n, &engine->order)
    {
        struct sequence *seq = LIST_ENTRY(n, struct sequence, link);

        seq->n_cached += seq->rows_running;
        seq->rows_running = 0;
        seq->is_drawing = false;
    }
    for (uint32_t i = 0; i < engine->plan->step.n_logits; i++) {
        if (engine->plan->drawing[i] != NULL) {
            engine->plan->drawing[i]->draw = engine->draws[i];
            take_token(engine, engine->plan->drawing[i]);
        }
    }
}

static void
seal(struct engine *engine, struct sequence *build)
{
    report_sealed(&engine->report, build->id);
    engine->sealed_before[engine->sealed_next++ % ENGINE_SEALED_MAX] = build->id;
    LIST_FOR_EACH(n, &engine->order)
    {
        struct sequence *reader = LIST_ENTRY(n, struct sequence, link);

        for (uint32_t i = 0; i < reader->n_segs; i++) {
            if (reader->segs[i].build == build->id) {
                reader->segs[i].build = 0;
            }
        }
        if (reader->source_build == build->id) {
            reader->source_build = 0;
        }
    }
    engine_retire(engine, build);
}

static void
seal_complete(struct engine *engine)
{
    report_sums(&engine->report, engine->sums.values, engine->sums.n);
    LIST_FOR_EACH_SAFE(n, &engine->order)
    {
        struct sequence *seq = LIST_ENTRY(n, struct sequence, link);

        if (seq->is_build && seq->n_cached == seq->n_ids) {
            seal(engine, seq);
        }
    }
}

/* Enqueues the copies whose sources are there, so that this step may read them. */
static enum status
make_copies(struct engine *engine, bool *has_copies_out)
{
    LIST_FOR_EACH(n, &engine->order)
    {
        struct sequence *seq = LIST_ENTRY(n, struct sequence, link);
        uint32_t first = seq->n_cached / engine->limits.block_tokens;

        if (seq->is_copy && seq->source_build == 0 && seq->n_cached < seq->n_ids) {
            copies_add(&engine->copies, seq->source_blocks + first, seq->blocks + first,
                       seq->n_blocks - first, seq->own_offset);
            seq->n_cached = seq->n_ids;
            engine->is_next_ready = false; /* its readers may run now */
        }
    }
    *has_copies_out = engine->copies.n > 0;
    return copies_run(&engine->copies, engine->config.kv, engine->config.block_count);
}

/* Notes the blocks of builds that this step completes; seal_complete finds the same in the same
 * order. */
static void
list_sums(struct engine *engine)
{
    uint32_t P = engine->limits.block_tokens;

    sums_clear(&engine->sums);
    LIST_FOR_EACH(n, &engine->order)
    {
        const struct sequence *seq = LIST_ENTRY(n, struct sequence, link);
        uint32_t rows = engine->plan->step.n_rows > 0 ? engine->plan->items[seq->item].rows : 0;

        if (seq->is_build && seq->n_cached + rows == seq->n_ids) {
            sums_add(&engine->sums, seq->blocks + seq->n_reused / P,
                     seq->n_blocks - seq->n_reused / P);
        }
    }
}

static enum status
run_sums(struct engine *engine)
{
    return sums_run(&engine->sums, engine->config.kv, engine->config.block_count);
}

/* Chooses the plan of this step: what was made while the last one ran, if that still holds. */
static enum status
begin_step(struct engine *engine)
{
    if (engine->is_next_ready) {
        struct plan *plan = engine->plan;

        engine->plan = engine->next;
        engine->next = plan;
        engine->is_next_ready = false;
        plan_fill(engine->plan);
        return ST_OK;
    }
    if (plan_step(engine->plan, &engine->order, find_build, engine) == 0) {
        return ST_OK;
    }
    return llama_prepare(engine->llama, &engine->plan->step);
}

/* While the device works: plans and sends the step after this one. */
static enum status
prepare_next(struct engine *engine)
{
    if (plan_step(engine->next, &engine->order, find_build, engine) == 0) {
        return ST_OK;
    }
    TRY(llama_prepare(engine->llama, &engine->next->step));
    engine->is_next_ready = true;
    return ST_OK;
}

static enum status
run_step(struct engine *engine)
{
    TRY(llama_launch(engine->llama, &engine->plan->step));
    TRY(run_sums(engine));
    enum status st = draw_tokens(engine);

    if (st == ST_OK || st == ST_INVALID) {
        plan_mark_running(engine->plan, &engine->order);
        TRY(prepare_next(engine));
        st = wait_for_tokens(engine, st);
    }
    if (st != ST_OK) {
        engine->is_next_ready = false; /* it stands on tokens that never came */
        return st;
    }
    advance(engine);
    return ST_OK;
}

/* For tests: a document of which the worker dies. */
static void
reach_builds(const struct engine *engine)
{
    LIST_FOR_EACH(n, &engine->order)
    {
        const struct sequence *seq = LIST_ENTRY(n, struct sequence, link);

        if (seq->is_build && seq->n_ids > 0 && engine->plan->items[seq->item].rows > 0) {
            FAILPOINT_VALUE(build_run, seq->ids[0]);
        }
    }
}

/* No row to compute: copies and empty builds are waited for, else there is time for upkeep. */
static enum status
run_idle(struct engine *engine, bool has_copies)
{
    Kvasir__V1__Checked *checked = NULL;

    TRY(run_sums(engine));
    if (has_copies || engine->sums.n > 0 || engine->upkeep.has_enqueued) {
        engine->upkeep.has_enqueued = false;
        return engine->config.ops->finish(engine->config.ops);
    }
    TRY(upkeep_run(&engine->upkeep, &checked));
    report_checked(&engine->report, checked);
    return ST_OK;
}

bool
engine_has_upkeep(const struct engine *engine)
{
    return upkeep_has_work(&engine->upkeep);
}

enum status
engine_step(struct engine *engine, Kvasir__V1__Step **step_out)
{
    engine_forget_last_step(engine);
    bool has_copies = false;

    TRY(engine_take_moves(engine));
    TRY(make_copies(engine, &has_copies));
    TRY(begin_step(engine));
    uint32_t rows = engine->plan->step.n_rows;

    if (failpoint_is_armed) {
        reach_builds(engine);
    }
    FAILPOINT(step_run);
    list_sums(engine);
    if (rows > 0) {
        TRY(run_step(engine));
        engine->upkeep.has_enqueued = false;
    } else {
        TRY(run_idle(engine, has_copies));
    }
    FAILPOINT(step_done);
    seal_complete(engine);
    engine_catch_up(engine);
    engine->rows_total += rows;
    *step_out = report_finish(&engine->report, rows, engine->plan->rows_built);
    if (*step_out != NULL) {
        (*step_out)->has_rows_total = true;
        (*step_out)->rows_total = engine->rows_total;
    }
    engine->is_reported = true;
    return ST_OK;
}
