/* SPDX-License-Identifier: Apache-2.0 */
/* What the scheduler decided becomes messages.  Ids, blocks and texts are packed from where they
 * lie: the actions borrow them until the next event, and packing is done before that. */
#include "daemon/kvasird.h"

#include <string.h>

#include "common/clock.h"
#include "common/failpoint.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/prompt.h"
#include "daemon/trace.h"

#include "kvasir/v1/rag.pb-c.h"
#include "kvasir/v1/wire.pb-c.h"
#include "kvasir/v1/worker.pb-c.h"

/* --- to workers ------------------------------------------------------------------------------- */

/* protobuf-c's structs have no const; nothing is written through them here. */
static uint32_t *
borrow_ids(const uint32_t *ids)
{
    return (uint32_t *)(uintptr_t)ids;
}

static void
fill_sampling(Kvasir__V1__Sampling *wire, const struct sampling *sampling)
{
    kvasir__v1__sampling__init(wire);
    wire->has_max_tokens = wire->has_temperature = wire->has_top_k = true;
    wire->has_top_p = wire->has_min_p = wire->has_repetition_penalty = wire->has_seed = true;
    wire->max_tokens = sampling->max_tokens;
    wire->temperature = sampling->temperature;
    wire->top_k = sampling->top_k;
    wire->top_p = sampling->top_p;
    wire->min_p = sampling->min_p;
    wire->repetition_penalty = sampling->repetition_penalty;
    wire->seed = sampling->seed;
    wire->n_stop = sampling->stop_count;
    wire->stop = (char **)(uintptr_t)sampling->stops;
    wire->has_logprobs = sampling->has_logprobs;
    wire->logprobs = sampling->logprobs;
    wire->has_frequency_penalty = wire->has_presence_penalty = wire->has_min_tokens = true;
    wire->frequency_penalty = sampling->frequency_penalty;
    wire->presence_penalty = sampling->presence_penalty;
    wire->min_tokens = sampling->min_tokens;
    wire->json_schema = sampling->json_schema;
}

/* The variable parts of an Assign; one allocation each, freed after packing. */
struct assign_parts {
    Kvasir__V1__Build *builds, **build_list;
    Kvasir__V1__AssignSegment *segments, **segment_list;
    Kvasir__V1__Sampling sampling;
    Kvasir__V1__LogitBias *biases, **bias_list;
    uint32_t *own; /* blocks: those of earlier turns, then its own */
};

static void
free_parts(struct assign_parts *parts)
{
    mem_free(parts->builds);
    mem_free(parts->build_list);
    mem_free(parts->segments);
    mem_free(parts->segment_list);
    mem_free(parts->own);
    mem_free(parts->biases);
    mem_free(parts->bias_list);
}

static bool
allocate_parts(struct assign_parts *parts, const struct sched_action *action)
{
    const struct session *session = action->session;
    size_t builds = action->build_count;
    size_t segments = session->segment_count;
    size_t biases = session->prompt.sampling.bias_count;

    parts->own =
        mem_zalloc((size_t)session->turn_block_count + action->block_count, sizeof(*parts->own));
    parts->biases = mem_zalloc(biases, sizeof(*parts->biases));
    parts->bias_list = mem_zalloc(biases, sizeof(*parts->bias_list));
    parts->builds = mem_zalloc(builds, sizeof(*parts->builds));
    parts->build_list = mem_zalloc(builds, sizeof(*parts->build_list));
    parts->segments = mem_zalloc(segments, sizeof(*parts->segments));
    parts->segment_list = mem_zalloc(segments, sizeof(*parts->segment_list));
    return parts->own != NULL && parts->builds != NULL && parts->build_list != NULL
           && parts->segments != NULL && parts->segment_list != NULL && parts->biases != NULL
           && parts->bias_list != NULL;
}

static void
fill_builds(struct assign_parts *parts, const struct sched_action *action)
{
    for (uint32_t i = 0; i < action->build_count; i++) {
        const struct sched_build *from = &action->session->builds[i];
        Kvasir__V1__Build *build = &parts->builds[i];

        kvasir__v1__build__init(build);
        build->has_build = true;
        build->build = from->build;
        build->n_token_ids = from->n_tokens;
        build->token_ids = borrow_ids(from->ids);
        build->n_block_ids = from->block_count;
        build->block_ids = borrow_ids(from->blocks);
        build->has_start = true;
        build->start = from->start;
        if (from->source_count > 0) {
            build->n_token_ids = 0;
            build->has_n_tokens = true;
            build->n_tokens = from->n_tokens;
            build->n_source_block_ids = from->source_count;
            build->source_block_ids = borrow_ids(from->source_blocks);
            build->has_source_build = from->source_build != 0;
            build->source_build = from->source_build;
        }
        if (from->load != NULL) {
            build->n_host_block_ids = build->n_host_sums = from->load->count;
            build->host_block_ids = from->load->places;
            build->host_sums = from->load->sums;
        }
        build->has_context_segments = from->context_segments > 0;
        build->context_segments = from->context_segments;
        build->has_position = from->position > 0;
        build->position = from->position;
        parts->build_list[i] = build;
    }
}

static void
fill_segments(struct assign_parts *parts, const struct session *session)
{
    for (uint32_t i = 0; i < session->segment_count; i++) {
        const struct sched_segment *from = &session->segments[i];
        Kvasir__V1__AssignSegment *segment = &parts->segments[i];

        kvasir__v1__assign_segment__init(segment);
        segment->has_n_tokens = true;
        segment->n_tokens = from->n_tokens;
        segment->has_offset = true;
        segment->offset = from->offset;
        segment->n_block_ids = from->block_count;
        segment->block_ids = borrow_ids(from->blocks);
        segment->has_build = from->build != 0;
        segment->build = from->build;
        if (session->has_name && session->wants[i].doc != NULL) {
            segment->has_key = segment->has_generation = true;
            segment->key = (ProtobufCBinaryData){DOCKEY_BYTES,
                                                 (uint8_t *)(uintptr_t)session->wants[i].key.bytes};
            segment->generation = kvpool_doc_generation(session->wants[i].doc);
        }
        parts->segment_list[i] = segment;
    }
}

static void
fill_biases(struct assign_parts *parts, const struct sampling *sampling)
{
    for (uint32_t i = 0; i < sampling->bias_count; i++) {
        Kvasir__V1__LogitBias *bias = &parts->biases[i];

        kvasir__v1__logit_bias__init(bias);
        bias->has_id = bias->has_bias = true;
        bias->id = sampling->biases[i].id;
        bias->bias = sampling->biases[i].bias;
        parts->bias_list[i] = bias;
    }
    parts->sampling.n_logit_bias = sampling->bias_count;
    parts->sampling.logit_bias = parts->bias_list;
}

/* Its own blocks, after those that earlier turns have left. */
static void
fill_own(Kvasir__V1__Assign *assign, struct assign_parts *parts, const struct sched_action *action)
{
    const struct session *session = action->session;
    uint32_t turns = session->turn_block_count;

    if (turns > 0) {
        memcpy(parts->own, session->turn_blocks, turns * sizeof(*parts->own));
    }
    memcpy(parts->own + turns, action->blocks, action->block_count * sizeof(*parts->own));
    assign->n_own_block_ids = (size_t)turns + action->block_count;
    assign->own_block_ids = parts->own;
    assign->has_own_cached = turns > 0;
    assign->own_cached = session->turn_tokens;
}

static void
fill_request(Kvasir__V1__Assign *assign, struct assign_parts *parts,
             const struct sched_action *action)
{
    const struct session *session = action->session;

    fill_sampling(&parts->sampling, &session->prompt.sampling);
    fill_biases(parts, &session->prompt.sampling);
    assign->has_request = true;
    assign->request = session->id;
    assign->has_own_offset = true;
    assign->own_offset = session_own_offset(session);
    assign->has_name = session->has_name;
    assign->name =
        (ProtobufCBinaryData){sizeof(session->name), (uint8_t *)(uintptr_t)session->name};
    assign->has_kept = action->kept != 0;
    assign->kept = action->kept;
    assign->has_own_document_tokens = session->prompt.query_documents > 0;
    assign->own_document_tokens = session->prompt.query_documents;
    fill_own(assign, parts, action);
    assign->n_query_ids = tokens_count(session->prompt.query);
    assign->query_ids = borrow_ids(tokens_ids(session->prompt.query));
    assign->n_sent_ids = session->sent_count;
    assign->sent_ids = session->sent_ids;
    assign->has_sent_text_bytes = true;
    assign->sent_text_bytes = (uint32_t)session->sent_text_bytes;
    assign->sampling = &parts->sampling;
    assign->has_ignore_end = true;
    assign->ignore_end = session->prompt.sampling.ignore_end;
}

/* `body` is what `which` names: every member of the union is a pointer to a message. */
static void
send_to_worker(struct kvasird *d, const struct sched_action *action,
               Kvasir__V1__DaemonMessage__BodyCase which, void *body)
{
    Kvasir__V1__DaemonMessage message = KVASIR__V1__DAEMON_MESSAGE__INIT;

    message.has_incarnation = true;
    message.incarnation = action->incarnation;
    message.body_case = which;
    message.assign = body;
    if (wire_pack(&d->payload, &message.base) == ST_OK) {
        peers_send(d, action->worker, action->incarnation);
        return;
    }
    log_error("no_memory", "worker=%u request=%llu detail=\"%s\"", action->worker,
              (unsigned long long)action->request, status_detail());
    d->peers[action->worker].is_lost = true;
}

static void
send_assign(struct kvasird *d, const struct sched_action *action)
{
    Kvasir__V1__Assign assign = KVASIR__V1__ASSIGN__INIT;
    struct assign_parts parts = {0};

    if (allocate_parts(&parts, action)) {
        fill_builds(&parts, action);
        assign.n_builds = action->build_count;
        assign.builds = parts.build_list;
        assign.has_arrival_order = true;
        assign.arrival_order = action->session->order;
        assign.has_is_background = action->session->is_background;
        assign.is_background = action->session->is_background;
        if (!session_is_warm(action->session)) {
            fill_segments(&parts, action->session);
            assign.n_segments = action->session->segment_count;
            assign.segments = parts.segment_list;
        }
        if (!action->is_builds_only) {
            fill_request(&assign, &parts, action);
        }
        send_to_worker(d, action, KVASIR__V1__DAEMON_MESSAGE__BODY_ASSIGN, &assign);
    } else {
        d->peers[action->worker].is_lost = true;
    }
    free_parts(&parts);
    log_debug("request_assigned", "request=%llu worker=%u builds=%u own_blocks=%u sent=%u",
              (unsigned long long)action->request, action->worker, action->build_count,
              action->block_count, action->session->sent_count);
}

static void
send_grant(struct kvasird *d, const struct sched_action *action)
{
    Kvasir__V1__Grant grant = KVASIR__V1__GRANT__INIT;

    grant.has_request = true;
    grant.request = action->request;
    grant.n_block_ids = action->block_count;
    grant.block_ids = borrow_ids(action->blocks);
    send_to_worker(d, action, KVASIR__V1__DAEMON_MESSAGE__BODY_GRANT, &grant);
}

static void
send_stop(struct kvasird *d, const struct sched_action *action)
{
    Kvasir__V1__Stop stop = KVASIR__V1__STOP__INIT;

    stop.has_request = action->kept == 0;
    stop.request = action->request;
    stop.has_kept = action->kept != 0;
    stop.kept = action->kept;
    send_to_worker(d, action, KVASIR__V1__DAEMON_MESSAGE__BODY_STOP, &stop);
    log_debug("request_stopped", "request=%llu kept=%llu worker=%u state=%s",
              (unsigned long long)action->request, (unsigned long long)action->kept, action->worker,
              action->session == NULL ? "kept" : session_state_name(action->session->state));
}

static void
send_stop_build(struct kvasird *d, const struct sched_action *action)
{
    Kvasir__V1__StopBuild stop = KVASIR__V1__STOP_BUILD__INIT;

    stop.has_build = true;
    stop.build = action->build;
    send_to_worker(d, action, KVASIR__V1__DAEMON_MESSAGE__BODY_STOP_BUILD, &stop);
}

static void
send_spill(struct kvasird *d, const struct sched_action *action)
{
    Kvasir__V1__Spill spill = KVASIR__V1__SPILL__INIT;

    spill.has_spill = true;
    spill.spill = action->spill;
    spill.has_is_summed = action->is_summed;
    spill.is_summed = action->is_summed;
    spill.n_block_ids = spill.n_host_block_ids = action->block_count;
    spill.block_ids = borrow_ids(action->blocks);
    spill.host_block_ids = borrow_ids(action->places);
    send_to_worker(d, action, KVASIR__V1__DAEMON_MESSAGE__BODY_SPILL, &spill);
}

static void
send_check(struct kvasird *d, const struct sched_action *action)
{
    Kvasir__V1__Check check = KVASIR__V1__CHECK__INIT;

    check.has_check = true;
    check.check = action->build;
    check.n_block_ids = action->block_count;
    check.block_ids = borrow_ids(action->blocks);
    check.n_twin_block_ids = action->twins == NULL ? 0 : action->block_count;
    check.twin_block_ids = borrow_ids(action->twins);
    check.has_n_tokens = true;
    check.n_tokens = action->n_tokens;
    send_to_worker(d, action, KVASIR__V1__DAEMON_MESSAGE__BODY_CHECK, &check);
}

static void
send_erase(struct kvasird *d, const struct sched_action *action)
{
    Kvasir__V1__Erase erase = KVASIR__V1__ERASE__INIT;

    erase.has_erase = true;
    erase.erase = action->build;
    if (action->places != NULL) {
        erase.n_host_block_ids = action->block_count;
        erase.host_block_ids = borrow_ids(action->places);
    } else {
        erase.n_block_ids = action->block_count;
        erase.block_ids = borrow_ids(action->blocks);
    }
    send_to_worker(d, action, KVASIR__V1__DAEMON_MESSAGE__BODY_ERASE, &erase);
}

static void
send_probe(struct kvasird *d, const struct sched_action *action)
{
    Kvasir__V1__Probe probe = KVASIR__V1__PROBE__INIT;

    probe.has_probe = true;
    probe.probe = action->build;
    send_to_worker(d, action, KVASIR__V1__DAEMON_MESSAGE__BODY_PROBE, &probe);
}

/* Whoever watches the log, or kvasir_docs_damaged_total, should look at the machine's memory. */
static void
tell_damaged(const struct sched_action *action)
{
    const struct sched_damage *damage = &action->damage;
    char key[2 * DOCKEY_BYTES + 1];

    dockey_hex(&damage->key, DOCKEY_BYTES, key);
    log_error("document_damaged",
              "document=%s tokens=%u blocks=%u built_by=%u found_by=%u readers=%u "
              "next=\"it is gone, and built again at its next use\"",
              key, damage->n_tokens, damage->blocks, damage->origin, action->worker,
              damage->readers);
}

/* --- to clients ------------------------------------------------------------------------------- */

/* A client that cannot be reached, or does not read, is lost with all its calls. */
static void
send_reply(struct kvasird *d, const struct address *to, Kvasir__V1__ReplyHeader *header,
           const ProtobufCMessage *payload)
{
    enum status st = wire_pack(&d->header, &header->base);

    d->payload.length = 0;
    if (st == ST_OK && payload != NULL) {
        st = wire_pack(&d->payload, payload);
    }
    if (st == ST_OK) {
        st = router_send(d->router, to, d->header.bytes, d->header.length, d->payload.bytes,
                         d->payload.length);
    }
    if (st != ST_OK) {
        uint32_t count = calls_lose_client(d->calls, to);

        log_debug("client_lost", "calls=%u detail=\"%s\"", count, status_detail());
    }
}

void
deliver_reply(struct kvasird *d, struct call *call, uint32_t code, const char *message,
              uint32_t retry_after_ms, const ProtobufCMessage *payload, bool is_last)
{
    Kvasir__V1__ReplyHeader header = KVASIR__V1__REPLY_HEADER__INIT;

    header.has_request_id = true;
    header.request_id = call->client_id;
    header.has_status = true;
    header.status = code;
    header.message = code == RPC_OK ? NULL : (char *)(uintptr_t)message;
    header.has_more = !is_last;
    header.more = !is_last;
    header.has_seq = true;
    header.seq = call->seq++;
    header.has_retry_after_ms = retry_after_ms > 0;
    header.retry_after_ms = retry_after_ms;
    if (!call->is_lost) {
        send_reply(d, &call->address, &header, code == RPC_OK ? payload : NULL);
    }
    if (is_last) {
        calls_close(d->calls, call);
    }
}

void
deliver_refusal(struct kvasird *d, const struct address *to, uint64_t client_id, uint32_t code,
                const char *message)
{
    Kvasir__V1__ReplyHeader header = KVASIR__V1__REPLY_HEADER__INIT;

    header.has_request_id = true;
    header.request_id = client_id;
    header.has_status = true;
    header.status = code;
    header.message = (char *)(uintptr_t)message;
    header.has_retry_after_ms = code == RPC_RESOURCE_EXHAUSTED;
    header.retry_after_ms = SCHED_RETRY_AFTER_MS;
    send_reply(d, to, &header, NULL);
}

static void
fill_tokens(Kvasir__V1__GenerateReply *reply, const struct sched_result *result)
{
    const Kvasir__V1__StepResult *wire = result->extra;

    reply->has_text = true;
    reply->text = wire->text;
    reply->n_token_ids = wire->n_token_ids;
    reply->token_ids = wire->token_ids;
    reply->n_logprobs = wire->n_logprobs;
    reply->logprobs = wire->logprobs;
}

static void
reply_chunk(struct kvasird *d, const struct sched_action *action)
{
    Kvasir__V1__GenerateReply reply = KVASIR__V1__GENERATE_REPLY__INIT;
    struct call *call = calls_find(d->calls, action->request);

    if (call != NULL) {
        fill_tokens(&reply, action->result);
        trace_sent(call);
        measures_sent(&d->measures, call, action->result->id_count, clock_now_us());
        deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, false);
    }
}

/* The documents of a request, as its first admission found them. */
static Kvasir__V1__DocumentUsage *
make_document_usages(const struct session *session, Kvasir__V1__DocumentUsage ***list_out)
{
    size_t count = session->prompt.document_count;
    Kvasir__V1__DocumentUsage *usages = mem_zalloc(count, sizeof(*usages));
    Kvasir__V1__DocumentUsage **list = mem_zalloc(count, sizeof(Kvasir__V1__DocumentUsage *));

    if (usages == NULL || list == NULL) {
        mem_free(usages);
        mem_free(list);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        service_fill_document(&usages[i], (uint32_t)i, &session->prompt.documents[i],
                              session->documents[i].tokens_ready, session->documents[i].reason);
        if (session->documents[i].is_copied || session->prompt.reuse == REUSE_NONE) {
            usages[i].miss_reason =
                (char *)(uintptr_t)(session->documents[i].is_copied ? "copied" : "recomputed");
        }
        list[i] = &usages[i];
    }
    *list_out = list;
    return usages;
}

void
deliver_fill_usage(Kvasir__V1__Usage *wire, const struct session_usage *usage)
{
    wire->has_prompt_tokens = wire->has_query_tokens = wire->has_completion_tokens = true;
    wire->has_tokens_reused = wire->has_tokens_built = wire->has_tokens_padded = true;
    wire->has_queue_us = wire->has_ttft_us = wire->has_total_us = true;
    wire->has_worker = wire->has_preemptions = wire->has_seed = true;
    wire->prompt_tokens = usage->prompt_tokens;
    wire->query_tokens = usage->query_tokens;
    wire->completion_tokens = usage->completion_tokens;
    uint32_t hidden =
        usage->tokens_hidden < usage->tokens_reused ? usage->tokens_hidden : usage->tokens_reused;

    wire->tokens_reused = usage->tokens_reused - hidden;
    wire->tokens_built = usage->tokens_built + hidden;
    wire->tokens_padded = usage->tokens_padded;
    wire->queue_us = usage->queue_us;
    wire->ttft_us = usage->ttft_us;
    wire->total_us = usage->total_us;
    wire->worker = usage->worker;
    wire->preemptions = usage->preemptions;
    wire->seed = usage->seed;
    wire->has_tokens_copied = usage->tokens_copied > 0;
    wire->tokens_copied = usage->tokens_copied;
    wire->tokens_loaded =
        usage->tokens_loaded < wire->tokens_reused ? usage->tokens_loaded : wire->tokens_reused;
    wire->has_tokens_loaded = wire->tokens_loaded > 0;
    wire->has_turn_tokens_reused = usage->turn_tokens_reused > 0;
    wire->turn_tokens_reused = usage->turn_tokens_reused;
}

static void
reply_answer(struct kvasird *d, struct call *call, const struct sched_action *action)
{
    Kvasir__V1__GenerateReply reply = KVASIR__V1__GENERATE_REPLY__INIT;
    Kvasir__V1__Usage usage = KVASIR__V1__USAGE__INIT;
    Kvasir__V1__Trace trace;
    Kvasir__V1__DocumentUsage **list = NULL;
    Kvasir__V1__DocumentUsage *usages = make_document_usages(action->session, &list);

    fill_tokens(&reply, action->result);
    reply.has_finish = true;
    reply.finish = (Kvasir__V1__FinishReason)action->result->finish;
    deliver_fill_usage(&usage, &action->usage);
    usage.has_reuse = usage.has_request = true;
    usage.request = action->request;
    usage.reuse = (Kvasir__V1__ReuseMode)(action->session->prompt.reuse + 1);
    if (usages != NULL) { /* without memory for the list the numbers above are still true */
        usage.n_documents = action->session->prompt.document_count;
        usage.documents = list;
    }
    trace_sent(call);
    measures_sent(&d->measures, call, action->result->id_count, clock_now_us());
    trace_fill(call, &trace);
    usage.trace = action->session->hold_until_us == 0 ? &trace : NULL; /* it would tell */
    reply.usage = &usage;
    deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
    mem_free(usages);
    mem_free(list);
}

static uint32_t
code_of(enum sched_end end)
{
    switch (end) {
    case SCHED_END_OK: return RPC_OK;
    case SCHED_END_CANCELLED: return RPC_CANCELLED;
    case SCHED_END_DEADLINE: return RPC_DEADLINE_EXCEEDED;
    case SCHED_END_NEVER_FITS: return RPC_OUT_OF_RANGE;
    case SCHED_END_FULL:
    case SCHED_END_NO_MEMORY: return RPC_RESOURCE_EXHAUSTED;
    case SCHED_END_DRAINING: return RPC_UNAVAILABLE;
    case SCHED_END_FAILED: return RPC_INTERNAL;
    case SCHED_END_DAMAGED: return RPC_DATA_LOSS;
    case SCHED_END_QUARANTINED: return RPC_FAILED_PRECONDITION;
    }
    return RPC_UNKNOWN;
}

static void
reply_end(struct kvasird *d, const struct sched_action *action)
{
    struct call *call = calls_find(d->calls, action->request);
    uint32_t code = code_of(action->end);
    bool may_retry = code == RPC_RESOURCE_EXHAUSTED || code == RPC_UNAVAILABLE;

    log_debug("request_ended", "request=%llu code=%s tokens=%u",
              (unsigned long long)action->request, rpc_code_name(code),
              action->usage.completion_tokens);
    measures_ended(&d->measures, action);
    if (call == NULL) {
        (void)corpus_take_end(d, action); /* ours; or its client is gone */
        return;
    }
    if (action->result != NULL && action->result->id_count > 0) {
        trace_sent(call); /* below, if it is the first */
    }
    if (action->session != NULL && call->method == METHOD_GENERATE) {
        recent_note(&d->recent, call, action, clock_now_us());
    }
    if (code == RPC_OK && action->result != NULL) {
        reply_answer(d, call, action);
    } else {
        deliver_reply(d, call, code, action->message, may_retry ? SCHED_RETRY_AFTER_MS : 0, NULL,
                      true);
    }
}

/* --- all of them ------------------------------------------------------------------------------ */

static void
carry_out(struct kvasird *d)
{
    size_t count;
    const struct sched_action *actions = sched_take_actions(d->sched, &count);

    for (size_t i = 0; i < count; i++) {
        const struct sched_action *action = &actions[i];

        switch (action->kind) {
        case SCHED_SEND_ASSIGN:
            trace_assigned(d->calls, action->request);
            FAILPOINT(assign_send);
            send_assign(d, action);
            break;
        case SCHED_SEND_GRANT: send_grant(d, action); break;
        case SCHED_SEND_STOP: send_stop(d, action); break;
        case SCHED_SEND_STOP_BUILD: send_stop_build(d, action); break;
        case SCHED_SEND_SPILL: send_spill(d, action); break;
        case SCHED_SEND_CHECK: send_check(d, action); break;
        case SCHED_SEND_ERASE: send_erase(d, action); break;
        case SCHED_SEND_PROBE: send_probe(d, action); break;
        case SCHED_REPLY_FORGOTTEN: forget_reply(d, action); break;
        case SCHED_TELL_DAMAGED: tell_damaged(action); break;
        case SCHED_REPLY_CHUNK:
            reply_chunk(d, action);
            FAILPOINT(reply_send);
            break;
        case SCHED_REPLY_END: reply_end(d, action); break;
        }
    }
}

/* Nobody listens to it any more. */
static void
drop_lost_call(struct kvasird *d, struct call *call)
{
    uint64_t id = call->id;

    log_debug("client_gone", "request=%llu", (unsigned long long)id);
    calls_close(d->calls, call);
    (void)sched_cancel(d->sched, clock_now_us(), id, true);
}

void
deliver(struct kvasird *d)
{
    struct call *lost;

    carry_out(d);
    /* Sending shows who is gone; each of them is one more event, with actions of its own. */
    do {
        while ((lost = calls_next_lost(d->calls)) != NULL) {
            drop_lost_call(d, lost);
            carry_out(d);
        }
        if (!peers_lose_marked(d)) {
            return;
        }
        carry_out(d);
    } while (true);
}
