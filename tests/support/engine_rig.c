/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/engine_rig.h"

#include <stdio.h>
#include <string.h>

#include <check.h>

#include "common/mem.h"
#include "model/tiny_model.h"
#include "worker/load_weights.h"

#define CHECKED(call)                                                                              \
    do {                                                                                           \
        enum status st_ = (call);                                                                  \
        ck_assert_msg(st_ == ST_OK, "%s: %s", #call, status_detail());                             \
    } while (0)

struct rig_config
rig_defaults(void)
{
    return (struct rig_config){
        .block_tokens = 16, .block_count = 512, .step_tokens = 64, .seqs_max = 8};
}

static void
open_engine(struct rig *rig, const struct rig_config *config)
{
    rig->config = *config;
    rig->layout = (struct kv_layout){.P = config->block_tokens,
                                     .L = rig->model.L,
                                     .Hkv = rig->model.Hkv,
                                     .D = rig->model.D,
                                     .type = rig->kind->kv_type,
                                     .id = rig->kind->kv_layout};
    CHECKED(rig->ops->alloc(rig->ops, config->block_count * kv_layout_block_bytes(&rig->layout),
                            &rig->kv));
    CHECKED(engine_new(&(struct engine_config){.model = &rig->model,
                                               .tokenizer = rig->tokenizer,
                                               .plan = &rig->plan,
                                               .weights = rig->weights,
                                               .kv = rig->kv,
                                               .layout = rig->layout,
                                               .block_count = config->block_count,
                                               .ops = rig->ops,
                                               .step_tokens = config->step_tokens,
                                               .seqs_max = config->seqs_max,
                                               .decodes_max = config->decodes_max,
                                               .is_poisoning = true},
                       &rig->engine));
    memset(rig->heard, 0, sizeof(rig->heard));
    memset(rig->builds, 0, sizeof(rig->builds));
    for (size_t i = 0; i < RIG_REQUESTS_MAX; i++) {
        rig->heard[i].finish = -1;
    }
    rig->next_block = 0;
    rig->rows = 0;
    rig->rows_built = 0;
    rig->steps = 0;
}

static void
fill_weights(struct rig *rig)
{
    CHECKED(checkpoint_plan_weights(rig->checkpoint, rig->kind->weight_type,
                                    rig->kind->keeps_quantised, &rig->plan));
    CHECKED(rig->ops->alloc(rig->ops, rig->plan.bytes, &rig->weights));
    CHECKED(rig->ops->finish(rig->ops));
    CHECKED(load_weights(rig->kind, rig->checkpoint, &rig->plan, rig->weights, NULL, NULL));
}

struct rig *
rig_new(const struct rig_config *config)
{
    struct rig *rig = mem_zalloc(1, sizeof(*rig));
    size_t length = 0;

    ck_assert_ptr_nonnull(rig);
    if (config->model_path != NULL) {
        CHECKED(checkpoint_open(config->model_path, &rig->checkpoint));
    } else {
        struct tiny_model_config tiny =
            config->tiny != NULL ? *config->tiny : tiny_model_defaults();

        CHECKED(tiny_model_make(&tiny, &rig->model_bytes, &length));
        CHECKED(checkpoint_open_bytes("tiny", rig->model_bytes, length, &rig->checkpoint));
    }
    rig->model = *checkpoint_config(rig->checkpoint);
    rig->tokenizer = checkpoint_tokenizer(rig->checkpoint);
    rig->kind = config->kind != NULL ? config->kind : &device_cpu;
    CHECKED(rig->kind->ops_new((struct ops_config){.threads = 1,
                                                   .is_deterministic = config->is_deterministic,
                                                   .H = rig->model.H,
                                                   .Hkv = rig->model.Hkv,
                                                   .D = rig->model.D,
                                                   .rows_max = config->step_tokens,
                                                   .seqs_max = config->step_tokens,
                                                   .segs_max = RIG_SEGMENTS_MAX},
                               &rig->ops));
    fill_weights(rig);
    open_engine(rig, config);
    return rig;
}

/* protobuf-c's messages take no const pointers; the engine only reads. */
static uint32_t *
unconst(const uint32_t *ids)
{
    uint32_t *out;

    memcpy(&out, &ids, sizeof(out));
    return out;
}

static void
remove_host(struct rig *rig)
{
    if (rig->mover != NULL) {
        mover_destroy(&rig->mover);
        (void)sem_destroy(&rig->moved);
        MEM_FREE(rig->host);
    }
}

static void
note_move(void *arg)
{
    (void)sem_post(&((struct rig *)arg)->moved);
}

void
rig_add_host(struct rig *rig, uint32_t places)
{
    size_t block_bytes = kv_layout_block_bytes(&rig->layout);
    struct mover_config config = {.copier = rig->kind->copier,
                                  .bind = rig->kind->choose,
                                  .copy = {.kv = rig->kv,
                                           .block_bytes = block_bytes,
                                           .block_count = rig->config.block_count,
                                           .place_count = places}};

    memset(rig->spills, 0, sizeof(rig->spills));
    rig->host = mem_zalloc(places, block_bytes);
    ck_assert_ptr_nonnull(rig->host);
    config.copy.host = rig->host;
    ck_assert_int_eq(sem_init(&rig->moved, 0, 0), 0);
    CHECKED(mover_new(&config, &rig->mover));
    mover_set_wake(rig->mover, note_move, rig);
    engine_use_mover(rig->engine, rig->mover);
}

void
rig_spill(struct rig *rig, uint64_t id, const uint32_t *blocks, const uint32_t *places, uint32_t n)
{
    Kvasir__V1__Spill spill = KVASIR__V1__SPILL__INIT;

    spill.has_spill = true;
    spill.spill = id;
    spill.n_block_ids = spill.n_host_block_ids = n;
    spill.block_ids = unconst(blocks);
    spill.host_block_ids = unconst(places);
    rig_send(rig, KVASIR__V1__DAEMON_MESSAGE__BODY_SPILL, &spill);
}

void
rig_run_moves(struct rig *rig, uint32_t spills)
{
    uint32_t told = 0;

    for (;;) {
        rig_run(rig);
        told = 0;
        for (size_t i = 0; i < RIG_REQUESTS_MAX; i++) {
            told += rig->spills[i].n_spilled;
        }
        if (engine_open(rig->engine) == 0 && told >= spills) {
            return;
        }
        ck_assert_int_eq(sem_wait(&rig->moved), 0);
    }
}

void
rig_restart(struct rig *rig, const struct rig_config *config)
{
    remove_host(rig);
    engine_destroy(&rig->engine);
    rig->ops->release(rig->ops, rig->kv);
    open_engine(rig, config);
}

void
rig_destroy(struct rig **rig)
{
    remove_host(*rig);
    engine_destroy(&(*rig)->engine);
    (*rig)->ops->release((*rig)->ops, (*rig)->weights);
    (*rig)->ops->release((*rig)->ops, (*rig)->kv);
    ops_destroy(&(*rig)->ops);
    checkpoint_close(&(*rig)->checkpoint);
    mem_free((*rig)->model_bytes);
    MEM_FREE(*rig);
}

static uint32_t
blocks_for(const struct rig *rig, uint32_t n_tokens)
{
    uint32_t P = rig->config.block_tokens;

    return n_tokens / P + (n_tokens % P != 0);
}

uint32_t *
rig_blocks(struct rig *rig, uint32_t n_tokens)
{
    uint32_t n = blocks_for(rig, n_tokens);
    uint32_t *blocks = mem_zalloc(n, sizeof(blocks[0]));

    ck_assert_ptr_nonnull(blocks);
    ck_assert_uint_le(rig->next_block + n, rig->config.block_count);
    /* From the end and backwards: ids that happen to be in order would hide mistakes. */
    for (uint32_t i = 0; i < n; i++) {
        blocks[i] = rig->config.block_count - 1 - rig->next_block++;
    }
    return blocks;
}

void
rig_send(struct rig *rig, Kvasir__V1__DaemonMessage__BodyCase which, void *body)
{
    Kvasir__V1__DaemonMessage message = KVASIR__V1__DAEMON_MESSAGE__INIT;

    message.body_case = which;
    message.assign = body; /* every member of the union is a pointer to a message */
    CHECKED(engine_apply(rig->engine, &message));
}

static void
fill_sampling(Kvasir__V1__Sampling *sampling, const struct rig_request *request, char **stops)
{
    kvasir__v1__sampling__init(sampling);
    sampling->has_max_tokens = true;
    sampling->max_tokens = request->max_tokens;
    sampling->has_temperature = true;
    sampling->temperature = request->temperature;
    sampling->has_top_p = true;
    sampling->top_p = 1.0f;
    sampling->has_repetition_penalty = true;
    sampling->repetition_penalty =
        request->repetition_penalty == 0.0f ? 1.0f : request->repetition_penalty;
    sampling->has_seed = true;
    sampling->seed = request->seed;
    sampling->n_stop = request->n_stops;
    sampling->stop = stops;
    sampling->has_logprobs = request->wants_logprobs;
    sampling->logprobs = request->wants_logprobs ? 3 : 0;
}

static uint8_t no_key[SEQUENCE_KEY_BYTES]; /* one is as good as another */

static size_t
fill_documents(const struct rig *rig, const struct rig_request *request,
               Kvasir__V1__AssignSegment *segments, Kvasir__V1__Build *builds)
{
    uint32_t offset = 0;
    size_t n_builds = 0;

    for (size_t i = 0; i < request->n_docs; i++) {
        const struct rig_doc *doc = &request->docs[i];
        bool is_first = doc->build != 0 && !doc->is_joined;

        kvasir__v1__assign_segment__init(&segments[i]);
        segments[i].n_tokens = doc->n_ids;
        segments[i].offset = doc->place.source_blocks != NULL ? 0 : offset;
        segments[i].n_block_ids = blocks_for(rig, doc->n_ids);
        segments[i].block_ids = doc->blocks;
        segments[i].has_build = doc->build != 0;
        segments[i].build = doc->build;
        segments[i].has_key = segments[i].has_generation = request->name != NULL;
        segments[i].key = (ProtobufCBinaryData){SEQUENCE_KEY_BYTES, no_key};
        segments[i].generation = 1;
        offset += doc->n_ids;
        for (size_t k = 0; k < n_builds; k++) {
            is_first = is_first && builds[k].build != doc->build;
        }
        if (is_first) {
            kvasir__v1__build__init(&builds[n_builds]);
            builds[n_builds].build = doc->build;
            builds[n_builds].n_token_ids = doc->n_ids;
            builds[n_builds].token_ids = unconst(doc->ids);
            builds[n_builds].n_block_ids = segments[i].n_block_ids;
            builds[n_builds].block_ids = doc->blocks;
            builds[n_builds].start = doc->start;
            builds[n_builds].n_host_block_ids = builds[n_builds].n_host_sums = doc->place.n_host;
            builds[n_builds].host_block_ids = unconst(doc->place.host_places);
            builds[n_builds].host_sums = (uint64_t *)(uintptr_t)doc->place.host_sums;
            builds[n_builds].context_segments = doc->place.context;
            builds[n_builds].position = doc->place.position;
            if (doc->place.source_blocks != NULL) {
                builds[n_builds].n_token_ids = 0;
                builds[n_builds].n_tokens = doc->n_ids;
                builds[n_builds].n_source_block_ids = segments[i].n_block_ids;
                builds[n_builds].source_block_ids = unconst(doc->place.source_blocks);
                builds[n_builds].source_build = doc->place.source_build;
            }
            n_builds++;
        }
    }
    return n_builds;
}

void
rig_assign(struct rig *rig, const struct rig_request *request)
{
    Kvasir__V1__Assign assign = KVASIR__V1__ASSIGN__INIT;
    Kvasir__V1__Sampling sampling;
    size_t room = request->n_docs + 1;
    Kvasir__V1__AssignSegment *segments = mem_zalloc(room, sizeof(segments[0]));
    Kvasir__V1__AssignSegment **segment_list = mem_zalloc(room, sizeof(segment_list[0]));
    Kvasir__V1__Build *builds = mem_zalloc(room, sizeof(builds[0]));
    Kvasir__V1__Build **build_list = mem_zalloc(room, sizeof(build_list[0]));
    char *stops[4];
    char name[SEQUENCE_NAME_BYTES_MAX + 1]; /* protobuf-c takes no const bytes */
    uint32_t own_tokens = (uint32_t)request->n_query + request->max_tokens;

    ck_assert(segments != NULL && segment_list != NULL && builds != NULL && build_list != NULL);
    memcpy(stops, request->stops, sizeof(stops));
    fill_sampling(&sampling, request, stops);
    for (size_t i = 0; i < request->n_docs; i++) {
        segment_list[i] = &segments[i];
        build_list[i] = &builds[i];
    }
    assign.n_builds = fill_documents(rig, request, segments, builds);
    assign.builds = build_list;
    assign.n_segments = request->n_docs;
    assign.segments = segment_list;
    for (size_t i = 0; i < request->n_docs; i++) {
        assign.own_offset += request->docs[i].n_ids;
    }
    assign.has_request = request->id != 0;
    assign.request = request->id;
    if (request->own_blocks != 0) {
        own_tokens = request->own_blocks * rig->config.block_tokens;
    }
    assign.own_block_ids =
        request->own_ids != NULL ? unconst(request->own_ids) : rig_blocks(rig, own_tokens);
    assign.n_own_block_ids = blocks_for(rig, own_tokens);
    assign.n_query_ids = request->n_query;
    assign.query_ids = unconst(request->query);
    assign.n_sent_ids = request->n_sent;
    assign.sent_ids = unconst(request->sent);
    assign.sent_text_bytes = request->sent_text_bytes;
    assign.sampling = &sampling;
    assign.ignore_end = request->ignores_end;
    assign.own_cached = request->own_cached;
    if (request->name != NULL) {
        assign.has_name = true;
        assign.name = (ProtobufCBinaryData){strlen(request->name), (uint8_t *)name};
        (void)snprintf(name, sizeof(name), "%s", request->name);
    }
    assign.has_kept = request->kept != 0;
    assign.kept = request->kept;
    assign.own_document_tokens = request->own_document_tokens;
    assign.is_background = request->is_background;
    assign.arrival_order = request->order != 0 ? request->order : request->id;
    rig_send(rig, KVASIR__V1__DAEMON_MESSAGE__BODY_ASSIGN, &assign);
    if (request->own_ids == NULL) {
        mem_free(assign.own_block_ids);
    }
    mem_free(segments);
    mem_free(segment_list);
    mem_free(builds);
    mem_free(build_list);
}

void
rig_grant(struct rig *rig, uint64_t request, uint32_t n_blocks)
{
    Kvasir__V1__Grant grant = KVASIR__V1__GRANT__INIT;

    grant.request = request;
    grant.n_block_ids = n_blocks;
    grant.block_ids = rig_blocks(rig, n_blocks * rig->config.block_tokens);
    rig_send(rig, KVASIR__V1__DAEMON_MESSAGE__BODY_GRANT, &grant);
    mem_free(grant.block_ids);
}

void
rig_stop(struct rig *rig, uint64_t request)
{
    Kvasir__V1__Stop stop = KVASIR__V1__STOP__INIT;

    stop.request = request;
    rig_send(rig, KVASIR__V1__DAEMON_MESSAGE__BODY_STOP, &stop);
}

void
rig_stop_build(struct rig *rig, uint64_t build)
{
    Kvasir__V1__StopBuild stop = KVASIR__V1__STOP_BUILD__INIT;

    stop.build = build;
    rig_send(rig, KVASIR__V1__DAEMON_MESSAGE__BODY_STOP_BUILD, &stop);
}

void
rig_stop_kept(struct rig *rig, uint64_t kept)
{
    Kvasir__V1__Stop stop = KVASIR__V1__STOP__INIT;

    stop.has_kept = true;
    stop.kept = kept;
    rig_send(rig, KVASIR__V1__DAEMON_MESSAGE__BODY_STOP, &stop);
}

void
rig_reset(struct rig *rig, uint64_t life)
{
    Kvasir__V1__Reset reset = KVASIR__V1__RESET__INIT;

    reset.life = life;
    rig_send(rig, KVASIR__V1__DAEMON_MESSAGE__BODY_RESET, &reset);
    rig->n_kept = 0;
    rig->n_kept_released = 0;
}

static void
hear_kept(struct rig *rig, const Kvasir__V1__Step *step)
{
    rig->n_kept_released += (uint32_t)step->n_kept_released;
    if (!step->has_reset_life) {
        ck_assert_uint_eq(step->n_kept, 0);
        return;
    }
    for (size_t i = 0; i < step->n_kept; i++) {
        const Kvasir__V1__Kept *kept = step->kept[i];

        ck_assert_uint_lt(rig->n_kept, RIG_REQUESTS_MAX);
        rig->kept[rig->n_kept++] =
            (struct rig_kept){.number = kept->kept,
                              .answer_tokens = kept->answer_tokens,
                              .n_own_blocks = (uint32_t)kept->n_own_block_ids,
                              .n_segments = (uint32_t)kept->n_segments,
                              .is_done = kept->is_done};
    }
}

static void
hear_result(struct rig *rig, const Kvasir__V1__StepResult *result)
{
    struct rig_heard *heard = &rig->heard[result->request % RIG_REQUESTS_MAX];

    if (result->error != NULL) {
        (void)snprintf(heard->error, sizeof(heard->error), "%s", result->error);
        return;
    }
    ck_assert_msg(heard->n_text + result->text.len < RIG_TEXT_MAX, "more text than expected");
    ck_assert_msg(heard->n_ids + result->n_token_ids <= RIG_TOKENS_MAX, "too many tokens");
    if (result->text.len > 0) {
        memcpy(heard->text + heard->n_text, result->text.data, result->text.len);
    }
    heard->n_text += result->text.len;
    heard->text[heard->n_text] = '\0';
    for (size_t i = 0; i < result->n_token_ids; i++) {
        heard->ids[heard->n_ids++] = result->token_ids[i];
    }
    for (size_t i = 0; i < result->n_logprobs; i++) {
        heard->logprobs[heard->n_logprobs++] = result->logprobs[i]->logprob;
    }
    heard->own_tokens = result->own_tokens;
    heard->tokens_reused += result->tokens_reused;
    if (result->finish != KVASIR__V1__FINISH_REASON__FINISH_NONE) {
        heard->finish = (int)result->finish;
    }
}

static void
hear_sums(struct rig *rig, const Kvasir__V1__Step *step)
{
    ck_assert_uint_le(step->n_sealed_sums, RIG_SUMS_MAX);
    if (step->n_sealed > 0) {
        rig->n_sums = step->n_sealed_sums;
        memcpy(rig->sums, step->sealed_sums, rig->n_sums * sizeof(rig->sums[0]));
    }
    if (step->n_checked > 0) {
        rig->checked = *step->checked[0];
        ck_assert_uint_le(rig->checked.n_sums, RIG_SUMS_MAX);
        memcpy(rig->checked_sums, rig->checked.sums, rig->checked.n_sums * sizeof(rig->sums[0]));
        rig->checked.sums = rig->checked_sums;
    }
    if (step->n_erased > 0) {
        rig->erased = step->erased[step->n_erased - 1];
    }
}

static void
hear_moves(struct rig *rig, const Kvasir__V1__Step *step)
{
    for (size_t i = 0; i < step->n_loaded; i++) {
        struct rig_heard *heard = &rig->builds[step->loaded[i]->build % RIG_REQUESTS_MAX];

        heard->n_loaded++;
        heard->blocks_moved = step->loaded[i]->blocks;
        heard->is_unread = step->loaded[i]->is_unread;
        (void)snprintf(heard->error, sizeof(heard->error), "%s",
                       step->loaded[i]->error == NULL ? "" : step->loaded[i]->error);
    }
    for (size_t i = 0; i < step->n_spilled; i++) {
        const Kvasir__V1__Spilled *spilled = step->spilled[i];
        struct rig_heard *heard = &rig->spills[spilled->spill % RIG_REQUESTS_MAX];

        heard->n_spilled++;
        heard->blocks_moved = (uint32_t)spilled->n_sums;
        ck_assert_uint_le(spilled->n_sums, sizeof(heard->sums) / sizeof(heard->sums[0]));
        for (size_t k = 0; k < spilled->n_sums; k++) {
            heard->sums[k] = spilled->sums[k];
        }
        (void)snprintf(heard->error, sizeof(heard->error), "%s",
                       spilled->error == NULL ? "" : spilled->error);
    }
}

bool
rig_step(struct rig *rig)
{
    Kvasir__V1__Step *step = NULL;

    CHECKED(engine_step(rig->engine, &step));
    if (step == NULL) {
        return false;
    }
    rig->steps++;
    rig->rows += step->rows;
    rig->rows_built += step->rows_built;
    ck_assert_uint_le(step->rows, rig->config.step_tokens);
    hear_kept(rig, step);
    for (size_t i = 0; i < step->n_sealed; i++) {
        rig->builds[step->sealed[i] % RIG_REQUESTS_MAX].n_sealed++;
    }
    hear_sums(rig, step);
    for (size_t i = 0; i < step->n_results; i++) {
        hear_result(rig, step->results[i]);
    }
    for (size_t i = 0; i < step->n_released; i++) {
        rig->heard[step->released[i] % RIG_REQUESTS_MAX].n_released++;
    }
    for (size_t i = 0; i < step->n_builds_dropped; i++) {
        rig->builds[step->builds_dropped[i] % RIG_REQUESTS_MAX].n_dropped++;
    }
    hear_moves(rig, step);
    return true;
}

void
rig_run(struct rig *rig)
{
    while (rig_step(rig)) {
    }
}

size_t
rig_kv_bytes(const struct rig *rig, uint32_t n_tokens)
{
    return (size_t)n_tokens * rig->model.L * 2 * rig->model.Hkv * rig->model.D * sizeof(float);
}

float *
rig_kv(const struct rig *rig, const uint32_t *blocks, uint32_t n_tokens)
{
    size_t block_bytes = kv_layout_block_bytes(&rig->layout);
    size_t head_bytes = rig->model.D * sizeof(float);
    char *out = mem_zalloc(1, rig_kv_bytes(rig, n_tokens));
    char *at = out;

    ck_assert_ptr_nonnull(out);
    for (uint32_t t = 0; t < n_tokens; t++) {
        const char *block =
            (const char *)rig->kv + blocks[t / rig->config.block_tokens] * block_bytes;

        for (uint32_t layer = 0; layer < rig->model.L; layer++) {
            for (int part = KV_PART_K; part <= KV_PART_V; part++) {
                for (uint32_t head = 0; head < rig->model.Hkv; head++, at += head_bytes) {
                    memcpy(at,
                           block
                               + kv_layout_offset(&rig->layout, layer, (enum kv_part)part, head,
                                                  t % rig->config.block_tokens, 0),
                           head_bytes);
                }
            }
        }
    }
    return (float *)(void *)out;
}
