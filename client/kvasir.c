/* SPDX-License-Identifier: Apache-2.0 */
/* Plain structs in, protobuf over rpc, plain structs out.  Arrays that go out live in `scratch`,
 * one allocation a call or chunk; what they point to lives in rpc's arena for as long. */
#include "client/kvasir.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "client/kvasir_private.h"
#include "client/resume.h"
#include "client/rpc.h"
#include "common/clock.h"
#include "common/mem.h"
#include "kvasir/v1/documents.pb-c.h"
#include "kvasir/v1/health.pb-c.h"
#include "kvasir/v1/rag.pb-c.h"
#include "proto/endpoints.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token_ids_le is sent as it lies");
static_assert((int)KVASIR_UNAUTHENTICATED == (int)RPC_UNAUTHENTICATED, "the same codes");

const char *
kvasir_code_name(enum kvasir_code code)
{
    return rpc_code_name((uint32_t)code);
}

const char *
kvasir_version(void)
{
    return PACKAGE_VERSION;
}

enum kvasir_code
kvasir_open(const struct kvasir_options *options, struct kvasir **client_out)
{
    static const struct kvasir_options defaults;
    char dir[ENDPOINT_PATH_MAX], url[ENDPOINT_URL_MAX];
    const char *endpoint;
    enum status st = ST_OK;
    struct kvasir *client = NULL;

    options = options == NULL ? &defaults : options;
    endpoint = options->endpoint;
    if (endpoint == NULL) {
        st = endpoint_dir(options->runtime_dir, dir);
        st = st != ST_OK ? st : endpoint_url(dir, ENDPOINT_CLIENT, url);
        endpoint = url;
    }
    if (st == ST_OK) {
        client = mem_zalloc(1, sizeof(*client));
        st = client != NULL ? rpc_open(endpoint, &client->rpc)
                            : ERR(ST_NO_MEMORY, "no memory for a handle");
    }
    if (st == ST_OK && (options->server_key != NULL || options->secret_key != NULL)) {
        st = rpc_use_keys(client->rpc, options->server_key, options->secret_key);
    }
    if (st != ST_OK) {
        kvasir_close(&client);
        return (enum kvasir_code)rpc_code_of(st);
    }
    client->timeout_ms = options->timeout_ms == 0 ? RPC_UNARY_TIMEOUT_MS : options->timeout_ms;
    client->retry_ms = options->retry_ms == 0 ? RESUME_MS_DEFAULT : options->retry_ms;
    client->busy_us = options->busy_us;
    *client_out = client;
    return KVASIR_OK;
}

const char *
kvasir_open_error(void)
{
    return status_detail();
}

void
kvasir_close(struct kvasir **client)
{
    if (*client == NULL) {
        return;
    }
    rpc_close(&(*client)->rpc);
    mem_free((*client)->scratch);
    MEM_FREE(*client);
}

const char *
kvasir_error(const struct kvasir *client)
{
    return client->error != NULL ? client->error : rpc_message(client->rpc);
}

uint32_t
kvasir_retry_after_ms(const struct kvasir *client)
{
    return rpc_retry_after_ms(client->rpc);
}

void
kvasir_cancel(struct kvasir *client)
{
    rpc_cancel(client->rpc);
}

enum kvasir_code
client_out_of_memory(struct kvasir *client)
{
    client->error = "no memory on the client's side";
    return KVASIR_RESOURCE_EXHAUSTED;
}

/* Room for `count` elements, valid until the next call of this; NULL without memory. */
void *
client_scratch(struct kvasir *client, size_t count, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(count, size, &bytes)) {
        return NULL;
    }
    if (bytes > client->scratch_bytes || client->scratch == NULL) {
        void *scratch = mem_realloc(client->scratch, bytes, 1);

        if (scratch == NULL) {
            return NULL;
        }
        client->scratch = scratch;
        client->scratch_bytes = bytes;
    }
    return client->scratch;
}

static enum kvasir_code
call(struct kvasir *client, const struct rpc_call *call, const ProtobufCMessage **reply_out)
{
    client->error = NULL;
    rpc_uncancel(client->rpc);
    return (enum kvasir_code)rpc_call(client->rpc, call, reply_out);
}

/* The reply, or NULL with the reason in *code_out. */
const void *
client_call(struct kvasir *client, enum method_id method, const ProtobufCMessage *request,
            enum kvasir_code *code_out)
{
    const ProtobufCMessage *reply = NULL;

    *code_out = call(
        client,
        &(struct rpc_call){.method = method, .request = request, .timeout_ms = client->timeout_ms},
        &reply);
    return reply;
}

/* ---- requests: ours to protobuf -------------------------------------------------------------- */

/* protobuf-c knows no const; packing only reads. */
void *
client_unconst(const void *bytes)
{
    return (void *)(uintptr_t)bytes;
}

ProtobufCBinaryData
client_binary(const void *bytes, size_t length)
{
    return (ProtobufCBinaryData){.data = client_unconst(bytes), .len = length};
}

Kvasir__V1__Segment
client_segment(const struct kvasir_document *document)
{
    Kvasir__V1__Segment segment = KVASIR__V1__SEGMENT__INIT;

    segment.text = client_unconst(document->text);
    /* As this machine has them, which is as they travel. */
    segment.has_token_ids_le = document->token_ids != NULL && document->token_count > 0;
    segment.token_ids_le =
        client_binary(document->token_ids, document->token_count * sizeof(uint32_t));
    segment.has_document_key = document->key != NULL;
    segment.document_key = client_binary(document->key, KVASIR_KEY_BYTES);
    segment.id = client_unconst(document->id);
    segment.title = client_unconst(document->title);
    segment.corpus = client_unconst(document->corpus);
    return segment;
}

/* Segments with the array of pointers to them that protobuf-c wants; one mem_free. */
static Kvasir__V1__Segment **
segments_of(const struct kvasir_document *documents, size_t count)
{
    Kvasir__V1__Segment **pointers =
        mem_zalloc(count, sizeof(*pointers) + sizeof(Kvasir__V1__Segment));
    Kvasir__V1__Segment *segments = (void *)(pointers + count);

    for (size_t i = 0; pointers != NULL && i < count; i++) {
        segments[i] = client_segment(&documents[i]);
        pointers[i] = &segments[i];
    }
    return pointers;
}

static Kvasir__V1__Message **
messages_of(const struct kvasir_message *messages, size_t count)
{
    Kvasir__V1__Message **pointers =
        mem_zalloc(count, sizeof(*pointers) + sizeof(Kvasir__V1__Message));
    Kvasir__V1__Message *copies = (void *)(pointers + count);

    for (size_t i = 0; pointers != NULL && i < count; i++) {
        kvasir__v1__message__init(&copies[i]);
        copies[i].role = client_unconst(messages[i].role);
        copies[i].content = client_unconst(messages[i].content);
        pointers[i] = &copies[i];
    }
    return pointers;
}

static Kvasir__V1__Sampling
sampling_of(const struct kvasir_sampling *from)
{
    Kvasir__V1__Sampling to = KVASIR__V1__SAMPLING__INIT;

    to.has_max_tokens = from->max_tokens != 0;
    to.max_tokens = from->max_tokens;
    to.has_temperature = true;
    to.temperature = from->temperature;
    to.has_top_k = from->top_k != 0;
    to.top_k = from->top_k;
    to.has_top_p = from->top_p != 0;
    to.top_p = from->top_p;
    to.has_min_p = from->min_p != 0;
    to.min_p = from->min_p;
    to.has_repetition_penalty = from->repetition_penalty != 0;
    to.repetition_penalty = from->repetition_penalty;
    to.has_seed = from->has_seed;
    to.seed = from->seed;
    to.stop = client_unconst(from->stop);
    to.n_stop = from->stop_count;
    to.has_logprobs = from->want_logprobs;
    to.logprobs = from->top_logprobs;
    return to;
}

/* ---- replies: protobuf to ours --------------------------------------------------------------- */

static const char *
text_or_empty(const char *text)
{
    return text == NULL ? "" : text;
}

static const struct kvasir_document_usage *
document_usages(struct kvasir *client, Kvasir__V1__DocumentUsage *const *from, size_t count)
{
    struct kvasir_document_usage *to = client_scratch(client, count, sizeof(*to));

    for (size_t i = 0; to != NULL && i < count; i++) {
        to[i] = (struct kvasir_document_usage){
            .index = from[i]->index,
            .id = text_or_empty(from[i]->id),
            .key = from[i]->key.len == KVASIR_KEY_BYTES ? from[i]->key.data : NULL,
            .tokens = from[i]->tokens,
            .tokens_reused = from[i]->tokens_reused,
            .miss_reason = text_or_empty(from[i]->miss_reason),
        };
    }
    return to;
}

static const struct kvasir_logprob *
logprobs_of(struct kvasir *client, const Kvasir__V1__GenerateReply *reply)
{
    struct kvasir_logprob *to = client_scratch(client, reply->n_logprobs, sizeof(*to));

    for (size_t i = 0; to != NULL && i < reply->n_logprobs; i++) {
        const Kvasir__V1__TokenLogprob *from = reply->logprobs[i];
        bool is_even = from->n_top_ids == from->n_top_logprobs;

        to[i] = (struct kvasir_logprob){
            .token_id = from->id,
            .text = (const char *)from->text.data,
            .text_bytes = from->text.len,
            .logprob = from->logprob,
            .top_ids = from->top_ids,
            .top_logprobs = from->top_logprobs,
            .top_count = is_even ? from->n_top_ids : 0,
        };
    }
    return to;
}

/* ---- generate -------------------------------------------------------------------------------- */

struct generation {
    struct kvasir *client;
    const struct kvasir_request *request;
    struct kvasir_usage usage;
    struct resume resume;
    bool is_out_of_memory;
    bool has_hung_up; /* the callback returned false */
    bool is_cut;      /* and there was more */
};

static bool
fail_generation(struct generation *generation)
{
    generation->is_out_of_memory = true;
    return false;
}

static struct kvasir_trace
read_trace(const Kvasir__V1__Trace *from)
{
    return from == NULL ? (struct kvasir_trace){0}
                        : (struct kvasir_trace){.arrived_us = from->arrived,
                                                .read_us = from->read,
                                                .assigned_us = from->assigned,
                                                .heard_us = from->heard,
                                                .begun_us = from->begun,
                                                .ended_us = from->ended,
                                                .returned_us = from->returned,
                                                .sent_us = from->sent};
}

static bool
take_usage(struct generation *generation, const Kvasir__V1__GenerateReply *reply)
{
    const Kvasir__V1__Usage *from = reply->usage;
    struct kvasir_usage *to = &generation->usage;

    to->finish = (enum kvasir_finish)reply->finish;
    if (from == NULL) {
        return true;
    }
    to->prompt_tokens = from->prompt_tokens;
    to->query_tokens = from->query_tokens;
    to->completion_tokens = from->completion_tokens;
    to->tokens_reused = from->tokens_reused;
    to->tokens_built = from->tokens_built;
    to->tokens_padded = from->tokens_padded;
    to->queue_us = from->queue_us;
    to->ttft_us = from->ttft_us;
    to->total_us = from->total_us;
    to->worker = from->worker;
    to->preemptions = from->preemptions;
    to->seed = from->seed;
    to->tokens_copied = from->tokens_copied;
    to->tokens_loaded = from->tokens_loaded;
    to->turn_tokens_reused = from->turn_tokens_reused;
    to->reuse = (enum kvasir_reuse)from->reuse;
    to->trace = read_trace(from->trace);
    to->documents = document_usages(generation->client, from->documents, from->n_documents);
    to->document_count = from->n_documents;
    return to->documents != NULL || fail_generation(generation);
}

static bool
take_generate_reply(void *opaque, const ProtobufCMessage *message)
{
    struct generation *generation = opaque;
    const Kvasir__V1__GenerateReply *reply = (const void *)message;
    const struct kvasir_request *request = generation->request;
    bool go_on = true;

    generation->is_cut = generation->has_hung_up;
    resume_take(&generation->resume, reply);
    if (request->on_chunk != NULL && !generation->has_hung_up
        && (reply->text.len > 0 || reply->n_token_ids > 0)) {
        struct kvasir_chunk chunk = {
            .text = (const char *)reply->text.data,
            .text_bytes = reply->text.len,
            .token_ids = reply->token_ids,
            .token_count = reply->n_token_ids,
            .logprobs = logprobs_of(generation->client, reply),
            .logprob_count = reply->n_logprobs,
        };

        if (chunk.logprobs == NULL) {
            return fail_generation(generation);
        }
        go_on = request->on_chunk(request->opaque, &chunk);
        generation->has_hung_up = !go_on;
    }
    return take_usage(generation, reply) && go_on;
}

/* One attempt after the other; what is left of the time goes to each. */
static enum kvasir_code
attempt_generation(struct generation *generation, Kvasir__V1__GenerateRequest *message)
{
    struct kvasir *client = generation->client;
    struct resume *resume = &generation->resume;
    uint32_t timeout_ms = generation->request->timeout_ms;
    uint64_t start_us = clock_now_us();
    Kvasir__V1__Resume wire;
    for (;;) {
        uint64_t elapsed_ms = (clock_now_us() - start_us) / 1000;
        struct rpc_call call = {.method = METHOD_GENERATE,
                                .busy_us = client->busy_us,
                                .request = &message->base,
                                .on_reply = take_generate_reply,
                                .opaque = generation,
                                .retry_key = resume->window_ms > 0 ? resume->key : NULL,
                                .retry_key_bytes = resume->window_ms > 0 ? sizeof(resume->key) : 0};

        if (timeout_ms > 0) {
            call.timeout_ms = elapsed_ms < timeout_ms ? timeout_ms - (uint32_t)elapsed_ms : 1;
        }
        enum rpc_code code = rpc_call(client->rpc, &call, NULL);

        if (generation->has_hung_up || generation->is_out_of_memory
            || (timeout_ms > 0 && elapsed_ms >= timeout_ms)
            || !resume_may_try(resume, rpc_was_lost(client->rpc), code, clock_now_us())) {
            return (enum kvasir_code)code;
        }
        if (!rpc_pause(client->rpc, resume->pause_ms)) {
            client->error = "cancelled";
            return KVASIR_CANCELLED;
        }
        resume_fill(resume, &wire, message);
    }
}

static enum kvasir_code
run_generation(struct generation *generation, Kvasir__V1__GenerateRequest *message)
{
    struct kvasir *client = generation->client;
    enum kvasir_code code;

    client->error = NULL;
    rpc_uncancel(client->rpc);
    code = attempt_generation(generation, message);
    if (generation->is_out_of_memory) {
        return client_out_of_memory(client);
    }
    /* An end that crossed our cancel is a whole answer only if the callback has seen all of it. */
    if (code == KVASIR_OK
        && (generation->is_cut || generation->usage.finish == KVASIR_FINISH_CANCELLED)) {
        client->error = "cancelled";
        return KVASIR_CANCELLED;
    }
    return code;
}

enum kvasir_code
kvasir_generate(struct kvasir *client, const struct kvasir_request *request,
                struct kvasir_usage *usage_out)
{
    struct generation generation = {.client = client, .request = request};
    Kvasir__V1__GenerateRequest message = KVASIR__V1__GENERATE_REQUEST__INIT;
    Kvasir__V1__Sampling sampling = sampling_of(&request->sampling);
    Kvasir__V1__Segment **segments = segments_of(request->documents, request->document_count);
    Kvasir__V1__Message **messages = messages_of(request->messages, request->message_count);
    bool is_chat = request->message_count > 0;
    enum kvasir_code code;

    resume_init(&generation.resume, client->retry_ms == KVASIR_RETRY_NEVER ? 0 : client->retry_ms);
    resume_name_seed(&generation.resume, &sampling);
    message.sampling = &sampling;
    message.segments = is_chat ? NULL : segments;
    message.n_segments = is_chat ? 0 : request->document_count;
    message.documents = is_chat ? segments : NULL;
    message.n_documents = is_chat ? request->document_count : 0;
    message.messages = messages;
    message.n_messages = request->message_count;
    message.query = client_unconst(request->query);
    message.query_ids = client_unconst(request->query_ids);
    message.n_query_ids = request->query_id_count;
    message.has_add_bos = request->add_bos;
    message.add_bos = request->add_bos;
    message.has_salt = request->salt_bytes > 0;
    message.salt = client_binary(request->salt, request->salt_bytes);
    message.has_priority = request->has_priority;
    message.priority = request->priority;
    message.has_ignore_end = request->ignore_end;
    message.ignore_end = request->ignore_end;
    message.has_reuse = request->reuse != KVASIR_REUSE_DEFAULT;
    message.reuse = (Kvasir__V1__ReuseMode)request->reuse;
    message.has_keep_turn = request->has_keep_turn;
    message.keep_turn = request->keep_turn;
    code = segments == NULL || messages == NULL ? client_out_of_memory(client)
                                                : run_generation(&generation, &message);
    if (usage_out != NULL && (code == KVASIR_OK || code == KVASIR_CANCELLED)) {
        *usage_out = generation.usage;
    }
    mem_free(segments);
    mem_free(messages);
    resume_deinit(&generation.resume);
    return code;
}

/* ---- documents ------------------------------------------------------------------------------- */

enum kvasir_code
kvasir_tokenize(struct kvasir *client, const char *text, bool parse_special,
                const uint32_t **ids_out, size_t *count_out)
{
    Kvasir__V1__TokenizeRequest request = KVASIR__V1__TOKENIZE_REQUEST__INIT;
    enum kvasir_code code;

    request.text = client_unconst(text);
    request.has_parse_special = true;
    request.parse_special = parse_special;
    const Kvasir__V1__TokenizeReply *reply =
        client_call(client, METHOD_TOKENIZE, &request.base, &code);

    if (reply != NULL) {
        *ids_out = reply->token_ids;
        *count_out = reply->n_token_ids;
    }
    return code;
}

enum kvasir_code
kvasir_probe(struct kvasir *client, const struct kvasir_document *documents, size_t count,
             const void *salt, size_t salt_bytes, const struct kvasir_document_usage **usage_out,
             size_t *count_out)
{
    Kvasir__V1__ProbeRequest request = KVASIR__V1__PROBE_REQUEST__INIT;
    enum kvasir_code code;

    request.segments = segments_of(documents, count);
    if (request.segments == NULL) {
        return client_out_of_memory(client);
    }
    request.n_segments = count;
    request.has_salt = salt_bytes > 0;
    request.salt = client_binary(salt, salt_bytes);
    const Kvasir__V1__ProbeReply *reply = client_call(client, METHOD_PROBE, &request.base, &code);

    mem_free(request.segments);
    if (reply == NULL) {
        return code;
    }
    const struct kvasir_document_usage *usages =
        document_usages(client, reply->documents, reply->n_documents);

    if (usages == NULL) {
        return client_out_of_memory(client);
    }
    *usage_out = usages;
    *count_out = reply->n_documents;
    return KVASIR_OK;
}

enum kvasir_code
kvasir_health(struct kvasir *client, struct kvasir_health *health_out)
{
    enum kvasir_code code;
    const Kvasir__V1__HealthReply *reply = client_call(client, METHOD_HEALTH, NULL, &code);

    if (reply != NULL) {
        *health_out = (struct kvasir_health){
            .is_serving = reply->status == KVASIR__V1__SERVING_STATUS__SERVING,
            .detail = text_or_empty(reply->detail),
            .version = text_or_empty(reply->version),
            .protocol = reply->protocol,
        };
    }
    return code;
}
