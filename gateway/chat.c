/* SPDX-License-Identifier: Apache-2.0 */
/* Chats and completions.  Each choice is a call of its own: the documents are in the pool once, so
 * the second choice costs what its own tokens cost. */
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/mem.h"
#include "gateway/render.h"
#include "gateway/request.h"
#include "gateway/routes.h"
#include "gateway/server.h"

struct choice {
    struct text content; /* of an answer that is sent whole */
    struct render_logprobs logprobs;
    const char *finish;
    bool has_begun;
};

struct generation {
    struct render_head head;
    char id[EXCHANGE_ID_BYTES + 16];
    char model[SERVER_MODEL_BYTES];
    bool is_stream, wants_logprobs, include_usage;
    uint32_t per_prompt; /* choices of each prompt: n */
    size_t documents;
    struct render_usage usage;
    unsigned open; /* choices that have not ended */
    unsigned count;
    struct choice choices[EXCHANGE_CALLS_MAX];
};

static void
generation_destroy(void *state)
{
    struct generation *g = state;

    for (unsigned i = 0; i < g->count; i++) {
        text_deinit(&g->choices[i].content);
        render_logprobs_deinit(&g->choices[i].logprobs);
    }
    render_usage_deinit(&g->usage);
    mem_free(g);
}

/* ---- replies --------------------------------------------------------------------------------- */

static void
stream_reply(struct exchange *exchange, struct generation *g, unsigned index,
             const Kvasir__V1__GenerateReply *reply)
{
    struct choice *choice = &g->choices[index];
    struct render_logprobs logprobs = {.text_bytes = choice->logprobs.text_bytes};
    struct render_choice part = {.index = index};

    exchange_begin_stream(exchange);
    if (!choice->has_begun && g->head.is_chat) {
        part.is_first = true;
        render_chunk(&g->head, &part, &exchange->out);
        part.is_first = false;
    }
    choice->has_begun = true;
    if (reply->text.len > 0 || reply->n_logprobs > 0) {
        if (g->wants_logprobs) {
            render_logprobs_add(&logprobs, g->head.is_chat, reply->logprobs, reply->n_logprobs);
            part.logprobs = &logprobs;
        }
        part.text = (const char *)reply->text.data;
        part.text_bytes = reply->text.len;
        render_chunk(&g->head, &part, &exchange->out);
        choice->logprobs.text_bytes = logprobs.text_bytes;
        render_logprobs_deinit(&logprobs);
    }
    if (choice->finish != NULL) {
        render_chunk(&g->head, &(struct render_choice){.index = index, .finish = choice->finish},
                     &exchange->out);
    }
    exchange_flush(exchange);
}

static void
keep_reply(struct generation *g, unsigned index, const Kvasir__V1__GenerateReply *reply)
{
    struct choice *choice = &g->choices[index];

    text_append(&choice->content, reply->text.data, reply->text.len);
    if (g->wants_logprobs) {
        render_logprobs_add(&choice->logprobs, g->head.is_chat, reply->logprobs, reply->n_logprobs);
    }
}

static void
finish_stream(struct exchange *exchange, struct generation *g)
{
    if (g->include_usage) {
        render_usage_chunk(&g->head, &g->usage, &exchange->out);
    }
    text_add(&exchange->out, "data: [DONE]\n\n");
    exchange_end_stream(exchange);
}

static void
finish_whole(struct exchange *exchange, struct generation *g)
{
    struct render_choice *parts = mem_zalloc(g->count, sizeof(*parts));
    struct text body = {.has_failed = parts == NULL};

    for (unsigned i = 0; parts != NULL && i < g->count; i++) {
        struct choice *choice = &g->choices[i];

        body.has_failed |= choice->content.has_failed;
        parts[i] = (struct render_choice){
            .index = i,
            .text = choice->content.bytes,
            .text_bytes = choice->content.length,
            .logprobs = g->wants_logprobs ? &choice->logprobs : NULL,
            .finish = choice->finish,
        };
    }
    if (!body.has_failed) {
        render_answer(&g->head, parts, g->count, &g->usage, &body);
    }
    mem_free(parts);
    exchange_answer_json(exchange, &body);
}

static void
on_reply(struct exchange *exchange, unsigned index, const struct hub_reply *reply)
{
    struct generation *g = exchange->state;
    const Kvasir__V1__GenerateReply *message = (const void *)reply->message;

    if (reply->code != RPC_OK) {
        struct refusal refusal;

        refusal_of_reply(&refusal, reply);
        exchange_refuse(exchange, &refusal);
        exchange_cancel_calls(exchange);
        return;
    }
    if (reply->is_last) {
        g->choices[index].finish = render_finish(message->finish);
        g->choices[index].finish =
            g->choices[index].finish == NULL ? "stop" : g->choices[index].finish;
        g->open--;
        if (message->usage != NULL) {
            render_usage_add(&g->usage, message->usage, g->documents, index % g->per_prompt == 0);
        }
    }
    if (g->is_stream) {
        stream_reply(exchange, g, index, message);
    } else {
        keep_reply(g, index, message);
    }
    if (g->open == 0) {
        if (g->is_stream) {
            finish_stream(exchange, g);
        } else {
            finish_whole(exchange, g);
        }
    }
}

/* ---- the request ----------------------------------------------------------------------------- */

static struct generation *
generation_new(struct exchange *exchange, const struct request *request, const char *model)
{
    struct generation *g = mem_zalloc(1, sizeof(*g));

    if (g == NULL) {
        return NULL;
    }
    bool is_chat = request->kind == REQUEST_CHAT;
    size_t prompts = is_chat ? 1 : request->prompt_count;

    (void)snprintf(g->id, sizeof(g->id), "%s-%s", is_chat ? "chatcmpl" : "cmpl", exchange->id);
    (void)snprintf(g->model, sizeof(g->model), "%s", model);
    g->head = (struct render_head){
        .is_chat = is_chat,
        .id = g->id,
        .model = g->model,
        .created_s = clock_wall_s(),
        .has_usage_field = request->include_usage,
    };
    g->is_stream = request->is_stream;
    g->wants_logprobs = request->wants_logprobs;
    g->include_usage = request->include_usage;
    g->per_prompt = request->n;
    g->documents = request->message.n_documents + request->message.n_segments;
    g->count = (unsigned)prompts * request->n;
    g->open = g->count;
    exchange->state = g;
    exchange->destroy_state = generation_destroy;
    exchange->wants_stream = request->is_stream;
    return g;
}

/* Choices differ by their seed; with a seed given, the first choice is what n = 1 would give. */
static void
call(struct exchange *exchange, struct generation *g, struct request *request)
{
    uint64_t seed = request->sampling.seed;

    for (unsigned i = 0; i < g->count; i++) {
        if (request->kind == REQUEST_COMPLETION) {
            request_use_prompt(request, i / g->per_prompt);
        }
        request->sampling.seed = seed + i % g->per_prompt;
        if (!exchange_call(exchange, METHOD_GENERATE, &request->message.base, i, on_reply)) {
            return;
        }
    }
}

static void
serve(struct exchange *exchange, struct request *request)
{
    char model[SERVER_MODEL_BYTES];

    if (!server_check_model(exchange, request->model, model)) {
        return;
    }
    request->message.has_salt = true;
    request->message.salt = request_salt(request);
    struct generation *g = generation_new(exchange, request, model);

    if (g == NULL) {
        exchange_refuse_as(exchange, 503, "unavailable_error", "no_memory",
                           "no memory for the answer");
        return;
    }
    if (g->is_stream) {
        metrics_add(&exchange->server->metrics, &exchange->server->metrics.streams, 1);
    }
    call(exchange, g, request);
}

static void
handle(struct exchange *exchange, enum request_kind kind)
{
    struct request request;

    if (server_read_request(exchange, kind, &request)) {
        serve(exchange, &request);
    }
    request_deinit(&request);
}

void
chat_handle(struct exchange *exchange)
{
    handle(exchange, REQUEST_CHAT);
}

void
completion_handle(struct exchange *exchange)
{
    handle(exchange, REQUEST_COMPLETION);
}
