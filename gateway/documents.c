/* SPDX-License-Identifier: Apache-2.0 */
/* The documents that clients register, and refer to afterwards instead of sending them again.
 *
 * A document is named by its client's id or by its hash, both within the tenant and its salt, which
 * go along even when they are empty: another tenant's documents are not found, and not told from
 * those that do not exist. */
#include <inttypes.h>
#include <string.h>

#include "common/mem.h"
#include "gateway/request.h"
#include "gateway/routes.h"
#include "gateway/server.h"
#include "kvasir/v1/documents.pb-c.h"

#define LIST_MAX 10000

/* ---- rendering ------------------------------------------------------------------------------- */

static void
add_hash(struct text *body, const ProtobufCBinaryData *key)
{
    text_add(body, "\"hash\":\"sha256:");
    for (size_t i = 0; i < key->len; i++) {
        text_format(body, "%02x", key->data[i]);
    }
    text_add(body, "\"");
}

static void
add_id(struct text *body, const char *id)
{
    text_add(body, ",\"id\":");
    if (id == NULL || id[0] == '\0') {
        text_add(body, "null");
    } else {
        text_json_string(body, id);
    }
}

/* ---- register -------------------------------------------------------------------------------- */

static void
destroy_id(void *state)
{
    mem_free(state);
}

static void
on_registered(struct exchange *exchange, unsigned index, const struct hub_reply *reply)
{
    const Kvasir__V1__RegisterReply *document = (const void *)reply->message;
    struct text body = {0};

    (void)index;
    if (exchange_refuse_reply(exchange, reply)) {
        return;
    }
    text_add(&body, "{\"object\":\"document\",");
    add_hash(&body, &document->key);
    add_id(&body, exchange->state);
    text_format(&body, ",\"tokens\":%u}", document->tokens);
    exchange_answer_json(exchange, &body);
}

static void
start_register(struct exchange *exchange, const struct request *request)
{
    Kvasir__V1__RegisterRequest registration = KVASIR__V1__REGISTER_REQUEST__INIT;
    struct refusal refusal;

    if (request->document == NULL || request->document->text == NULL) {
        refusal_set(&refusal, "text", "text is missing");
        exchange_refuse(exchange, &refusal);
        return;
    }
    if (request->document->id != NULL && request->document->id[0] == '\0') {
        refusal_set(&refusal, "id", "id is empty");
        exchange_refuse(exchange, &refusal);
        return;
    }
    if (request->is_raw && request->document->title != NULL) {
        refusal_set(&refusal, "title", "title: only chats have a place for it");
        exchange_refuse(exchange, &refusal);
        return;
    }
    registration.document = request->document;
    registration.has_is_chat = true;
    registration.is_chat = !request->is_raw;
    registration.has_salt = true;
    registration.salt = request_salt(request);
    registration.has_weight = request->document->id != NULL; /* then it is one of the corpus */
    registration.weight = 1;
    exchange->state = request->document->id == NULL ? NULL : mem_strdup(request->document->id);
    exchange->destroy_state = destroy_id;
    (void)exchange_call(exchange, METHOD_REGISTER, &registration.base, 0, on_registered);
}

void
document_register(struct exchange *exchange)
{
    struct request request;

    if (server_read_request(exchange, REQUEST_DOCUMENT, &request)) {
        start_register(exchange, &request);
    }
    request_deinit(&request);
}

/* ---- one document ---------------------------------------------------------------------------- */

/* What the path names: an id, or "sha256:" and the hash.  False: refused. */
static bool
name_document(struct exchange *exchange, Kvasir__V1__DocumentRef *ref, uint8_t key[32])
{
    struct refusal refusal;

    if (strncmp(exchange->argument, "sha256:", 7) != 0) {
        ref->id = exchange->argument;
        return true;
    }
    if (!request_read_hash(exchange->argument, key)) {
        refusal_set(&refusal, NULL, "a hash is sha256: and 64 hex digits");
        exchange_refuse(exchange, &refusal);
        return false;
    }
    ref->has_key = true;
    ref->key = (ProtobufCBinaryData){.data = key, .len = 32};
    return true;
}

static bool
call_with_ref(struct exchange *exchange, enum method_id method, uint64_t ttl_ms,
              const struct request *request, exchange_reply_fn on_reply)
{
    Kvasir__V1__DocumentRef ref = KVASIR__V1__DOCUMENT_REF__INIT;
    uint8_t key[32];

    if (!name_document(exchange, &ref, key)) {
        return false;
    }
    ref.has_salt = true;
    ref.salt = request_salt(request);
    ref.has_ttl_ms = ttl_ms > 0;
    ref.ttl_ms = ttl_ms;
    return exchange_call(exchange, method, &ref.base, 0, on_reply);
}

static void
on_document(struct exchange *exchange, unsigned index, const struct hub_reply *reply)
{
    const Kvasir__V1__DocumentInfo *info = (const void *)reply->message;
    bool is_id = strncmp(exchange->argument, "sha256:", 7) != 0;
    struct text body = {0};

    (void)index;
    if (exchange_refuse_reply(exchange, reply)) {
        return;
    }
    text_add(&body, "{\"object\":\"document\",");
    add_hash(&body, &info->key);
    add_id(&body, is_id ? exchange->argument : NULL);
    text_format(&body,
                ",\"tokens\":%u,\"tokens_resident\":%u,\"pins\":%u,\"hits\":%" PRIu64 ",\"state\":",
                info->tokens, info->tokens_resident, info->pins, info->hits);
    text_json_string(&body, info->state == NULL ? "" : info->state);
    if (info->has_pin_left_ms) {
        text_format(&body, ",\"pin_left_seconds\":%.3f", (double)info->pin_left_ms / 1000);
    }
    text_add(&body, "}");
    exchange_answer_json(exchange, &body);
}

static void
on_done(struct exchange *exchange, unsigned index, const struct hub_reply *reply)
{
    struct text body = {0};

    (void)index;
    if (exchange_refuse_reply(exchange, reply)) {
        return;
    }
    text_add(&body, "{\"id\":");
    text_json_string(&body, exchange->argument);
    text_format(&body, ",\"object\":\"document\",\"%s\":true}", exchange->route->done);
    exchange_answer_json(exchange, &body);
}

static void
on_forgotten(struct exchange *exchange, unsigned index, const struct hub_reply *reply)
{
    const Kvasir__V1__ForgetReply *forgotten = (const void *)reply->message;
    struct text body = {0};

    (void)index;
    if (exchange_refuse_reply(exchange, reply)) {
        return;
    }
    text_add(&body, "{\"id\":");
    text_json_string(&body, exchange->argument);
    text_format(
        &body,
        ",\"object\":\"document\",\"%s\":true,\"blocks_erased\":%u,\"bytes_erased\":%" PRIu64
        ",\"copies\":%u,\"host_blocks_erased\":%u}",
        exchange->route->done, forgotten->blocks, forgotten->bytes, forgotten->copies,
        forgotten->host_blocks);
    exchange_answer_json(exchange, &body);
}

void
document_get(struct exchange *exchange)
{
    (void)call_with_ref(exchange, METHOD_GET, 0, NULL, on_document);
}

void
document_delete(struct exchange *exchange)
{
    Kvasir__V1__DocumentRef ref = KVASIR__V1__DOCUMENT_REF__INIT;
    Kvasir__V1__ForgetRequest request = KVASIR__V1__FORGET_REQUEST__INIT;
    uint8_t key[32];

    if (!name_document(exchange, &ref, key)) {
        return;
    }
    request.has_key = ref.has_key;
    request.key = ref.key;
    request.id = ref.id;
    request.has_salt = true;
    request.salt = request_salt(NULL);
    (void)exchange_call(exchange, METHOD_FORGET, &request.base, 0, on_forgotten);
}

void
document_unpin(struct exchange *exchange)
{
    (void)call_with_ref(exchange, METHOD_UNPIN, 0, NULL, on_done);
}

/* These two may have a body: a time, and a salt. */
static void
with_body(struct exchange *exchange, enum method_id method)
{
    struct request request = {0};

    if (exchange->body.length == 0) {
        (void)call_with_ref(exchange, method, 0, NULL, on_done);
    } else if (server_read_request(exchange, REQUEST_DOCUMENT_ACTION, &request)) {
        (void)call_with_ref(exchange, method, request.ttl_ms, &request, on_done);
    }
    request_deinit(&request);
}

void
document_pin(struct exchange *exchange)
{
    with_body(exchange, METHOD_PIN);
}

void
document_warm(struct exchange *exchange)
{
    with_body(exchange, METHOD_WARM);
}

/* ---- all documents --------------------------------------------------------------------------- */

static void
add_corpus_document(struct text *body, const Kvasir__V1__CorpusDocument *document)
{
    text_add(body, "{\"object\":\"document\",");
    add_hash(body, &document->key);
    add_id(body, document->id);
    text_format(body,
                ",\"tokens\":%u,\"tokens_resident\":%u,\"pinned\":%s,\"state\":", document->tokens,
                document->tokens_resident, document->is_pinned ? "true" : "false");
    text_json_string(body, document->state == NULL ? "" : document->state);
    text_add(body, "}");
}

static void
on_list(struct exchange *exchange, unsigned index, const struct hub_reply *reply)
{
    const Kvasir__V1__CorpusReply *corpus = (const void *)reply->message;
    struct text body = {0};

    (void)index;
    if (exchange_refuse_reply(exchange, reply)) {
        return;
    }
    text_add(&body, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < corpus->n_documents; i++) {
        text_add(&body, i == 0 ? "" : ",");
        add_corpus_document(&body, corpus->documents[i]);
    }
    text_format(&body, "],\"has_more\":%s,\"total\":%" PRIu64 "}",
                corpus->n_documents == LIST_MAX ? "true" : "false", corpus->count);
    exchange_answer_json(exchange, &body);
}

void
document_list(struct exchange *exchange)
{
    Kvasir__V1__CorpusRequest list = KVASIR__V1__CORPUS_REQUEST__INIT;

    list.has_with_documents = true;
    list.with_documents = true;
    list.has_limit = true;
    list.limit = LIST_MAX;
    list.has_salt = true;
    list.salt = request_salt(NULL);
    (void)exchange_call(exchange, METHOD_CORPUS, &list.base, 0, on_list);
}
