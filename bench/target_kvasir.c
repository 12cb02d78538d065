/* SPDX-License-Identifier: Apache-2.0 */
/* A kvasird, by the protocol itself: the mode of reuse is not part of libkvasir. */
#include "bench/target.h"

#include <stdio.h>
#include <string.h>

#include "client/rpc.h"
#include "common/clock.h"
#include "common/mem.h"
#include "kvasir/v1/rag.pb-c.h"
#include "proto/endpoints.h"

struct asking {
    struct rpc *rpc;
    Kvasir__V1__GenerateRequest request;
    Kvasir__V1__Sampling sampling;
    Kvasir__V1__Message message;
    Kvasir__V1__Message *messages[1];
    Kvasir__V1__Segment *segments; /* [segments_room] */
    Kvasir__V1__Segment **pointers;
    size_t segments_room;
    uint32_t *ids; /* of all segments and the query */
    size_t ids_room;
    struct outcome *outcome; /* of the call that runs */
};

static enum status
open_kvasir(struct connection *connection)
{
    char url[ENDPOINT_URL_MAX];

    TRY(endpoint_url(connection->target->place, ENDPOINT_CLIENT, url));
    struct asking *a = mem_zalloc(1, sizeof(*a));

    if (a == NULL) {
        return ERR(ST_NO_MEMORY, "a connection");
    }
    enum status st = rpc_open(url, &a->rpc);

    if (st != ST_OK) {
        mem_free(a);
        return st;
    }
    connection->state = a;
    return ST_OK;
}

static void
close_kvasir(struct connection *connection)
{
    struct asking *a = connection->state;

    rpc_close(&a->rpc);
    mem_free(a->segments);
    mem_free(a->pointers);
    mem_free(a->ids);
    mem_free(a);
}

/* Room for the segments and all ids of a request. */
static enum status
make_room(struct asking *a, const struct workload *workload, const struct workload_request *request)
{
    size_t ids = request->query_tokens;

    for (uint32_t i = 0; i < request->n_documents; i++) {
        ids += workload->documents[request->documents[i]].tokens;
    }
    if (ids > a->ids_room) {
        mem_free(a->ids);
        a->ids = mem_zalloc(ids, sizeof(a->ids[0]));
        a->ids_room = a->ids == NULL ? 0 : ids;
    }
    if (request->n_documents > a->segments_room) {
        mem_free(a->segments);
        mem_free(a->pointers);
        a->segments = mem_zalloc(request->n_documents, sizeof(a->segments[0]));
        a->pointers = mem_zalloc(request->n_documents, sizeof(a->pointers[0]));
        a->segments_room = a->segments == NULL || a->pointers == NULL ? 0 : request->n_documents;
    }
    return a->ids_room < ids || a->segments_room < request->n_documents
               ? ERR(ST_NO_MEMORY, "a request of %zu tokens", ids)
               : ST_OK;
}

static enum status
prepare(struct connection *connection, const struct workload_request *request)
{
    const struct workload *workload = connection->run.workload;
    struct asking *a = connection->state;
    uint32_t *ids;

    TRY(make_room(a, workload, request));
    ids = a->ids;
    kvasir__v1__generate_request__init(&a->request);
    kvasir__v1__sampling__init(&a->sampling);
    for (uint32_t i = 0; i < request->n_documents; i++) {
        const struct workload_document *document = &workload->documents[request->documents[i]];
        Kvasir__V1__Segment *segment = &a->segments[i];

        kvasir__v1__segment__init(segment);
        a->pointers[i] = segment;
        segment->text = document->text;
        segment->title = document->title;
        if (document->text == NULL) {
            workload_ids(workload, document->stream, document->tokens, ids);
            segment->token_ids = ids;
            segment->n_token_ids = document->tokens;
            ids += document->tokens;
        }
    }
    if (request->question != NULL) {
        a->message = (Kvasir__V1__Message)KVASIR__V1__MESSAGE__INIT;
        a->message.role = (char *)"user";
        a->message.content = request->question;
        a->messages[0] = &a->message;
        a->request.messages = a->messages;
        a->request.n_messages = 1;
        a->request.documents = a->pointers;
        a->request.n_documents = request->n_documents;
    } else {
        workload_ids(workload, request->stream, request->query_tokens, ids);
        a->request.segments = a->pointers;
        a->request.n_segments = request->n_documents;
        a->request.query_ids = ids;
        a->request.n_query_ids = request->query_tokens;
    }
    a->sampling.has_max_tokens = a->sampling.has_seed = true;
    a->sampling.max_tokens = request->output_tokens;
    a->sampling.seed = connection->run.sampling_seed;
    a->request.sampling = &a->sampling;
    a->request.has_ignore_end = a->request.ignore_end = true;
    /* Answers are not what is measured in the pool. */
    a->request.has_keep_turn = true;
    a->request.keep_turn = false;
    a->request.has_reuse = connection->target->reuse != 0;
    a->request.reuse = (Kvasir__V1__ReuseMode)connection->target->reuse;
    if (connection->run.salt != NULL) {
        a->request.has_salt = true;
        a->request.salt.data = (uint8_t *)(uintptr_t)connection->run.salt;
        a->request.salt.len = strlen(connection->run.salt);
    }
    return ST_OK;
}

/* Documents that the usage does not name: none of them was there. */
static void
count_unnamed(const struct connection *connection, struct outcome *outcome)
{
    const struct workload_request *request = connection->request;

    outcome->documents = request->n_documents;
    outcome->documents_hit = 0;
    outcome->document_tokens = outcome->tokens_reused = 0;
    for (uint32_t i = 0; i < request->n_documents; i++) {
        outcome->document_tokens +=
            connection->run.workload->documents[request->documents[i]].tokens;
    }
}

/* The kernels' own counts.  A preamble, which comes first in chats, is no document. */
static void
take_usage(const struct connection *connection, const Kvasir__V1__Usage *usage,
           struct outcome *outcome)
{
    size_t n = connection->request->n_documents;
    size_t first = usage->n_documents > n ? usage->n_documents - n : 0;

    outcome->input_tokens = usage->prompt_tokens;
    outcome->output_tokens = usage->completion_tokens;
    outcome->queue_us = usage->queue_us;
    outcome->server_ttft_us = usage->ttft_us;
    outcome->has_reuse = true;
    outcome->tokens_built = usage->tokens_built;
    outcome->tokens_copied = usage->tokens_copied;
    for (size_t i = first; i < usage->n_documents; i++) {
        const Kvasir__V1__DocumentUsage *document = usage->documents[i];

        outcome->documents++;
        outcome->documents_hit += document->tokens_reused == document->tokens;
        outcome->document_tokens += document->tokens;
        outcome->tokens_reused += document->tokens_reused;
    }
    if (usage->n_documents < n) { /* without reuse they are part of the query */
        count_unnamed(connection, outcome);
    }
    outcome->is_warm = outcome->documents_hit == outcome->documents;
}

static bool
on_reply(void *opaque, const ProtobufCMessage *message)
{
    struct connection *connection = opaque;
    struct asking *a = connection->state;
    const Kvasir__V1__GenerateReply *reply = (const void *)message;

    if (reply->n_token_ids > 0) {
        /* Ids, not text: a token may end no character. */
        outcome_output(a->outcome, reply->token_ids, reply->n_token_ids * sizeof(uint32_t),
                       clock_now_us());
    }
    if (reply->usage != NULL) {
        take_usage(connection, reply->usage, a->outcome);
    }
    return true;
}

static const char *
ask(struct connection *connection, struct outcome *outcome)
{
    struct asking *a = connection->state;

    a->outcome = outcome;
    enum rpc_code code = rpc_call(a->rpc,
                                  &(struct rpc_call){.method = METHOD_GENERATE,
                                                     .request = &a->request.base,
                                                     .timeout_ms = connection->run.timeout_ms,
                                                     .on_reply = on_reply,
                                                     .opaque = connection},
                                  NULL);

    if (code == RPC_OK) {
        return NULL;
    }
    (void)snprintf(connection->error, sizeof(connection->error), "%s: %s",
                   rpc_code_name((uint32_t)code), rpc_message(a->rpc));
    return connection->error;
}

const struct target_ops target_kvasir = {
    .open = open_kvasir,
    .close = close_kvasir,
    .prepare = prepare,
    .ask = ask,
};
