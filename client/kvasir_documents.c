/* SPDX-License-Identifier: Apache-2.0 */
/* Documents: registered, looked at, pinned, kept ready. */
#include <stdio.h>
#include <string.h>

#include "client/kvasir_private.h"
#include "kvasir/v1/documents.pb-c.h"

/* Register, with a wish or without. */
static enum kvasir_code
call_register(struct kvasir *client, const struct kvasir_document *document, bool is_chat,
              ProtobufCBinaryData salt, const struct kvasir_wish *wish,
              uint8_t key_out[KVASIR_KEY_BYTES], const Kvasir__V1__RegisterReply **reply_out)
{
    Kvasir__V1__RegisterRequest request = KVASIR__V1__REGISTER_REQUEST__INIT;
    Kvasir__V1__Segment segment = client_segment(document);
    enum kvasir_code code;

    request.document = &segment;
    request.has_is_chat = true;
    request.is_chat = is_chat;
    request.has_salt = salt.len > 0;
    request.salt = salt;
    if (wish != NULL) {
        request.has_weight = request.has_is_pinned = true;
        request.weight = wish->weight;
        request.version = client_unconst(wish->version);
        request.is_pinned = wish->is_pinned;
        request.has_pin_ttl_ms = wish->pin_ttl_ms > 0;
        request.pin_ttl_ms = wish->pin_ttl_ms;
    }
    const Kvasir__V1__RegisterReply *reply =
        client_call(client, METHOD_REGISTER, &request.base, &code);

    if (reply == NULL) {
        return code;
    }
    if (reply->key.len != KVASIR_KEY_BYTES) {
        client->error = "kvasird answered with a key of another length";
        return KVASIR_INTERNAL;
    }
    memcpy(key_out, reply->key.data, KVASIR_KEY_BYTES);
    *reply_out = reply;
    return KVASIR_OK;
}

enum kvasir_code
kvasir_register(struct kvasir *client, const struct kvasir_document *document, bool is_chat,
                const void *salt, size_t salt_bytes, uint8_t key_out[KVASIR_KEY_BYTES],
                uint32_t *tokens_out)
{
    const Kvasir__V1__RegisterReply *reply;
    enum kvasir_code code = call_register(client, document, is_chat,
                                          client_binary(salt, salt_bytes), NULL, key_out, &reply);

    if (code == KVASIR_OK && tokens_out != NULL) {
        *tokens_out = reply->tokens;
    }
    return code;
}

enum kvasir_code
kvasir_keep(struct kvasir *client, const struct kvasir_document *document, bool is_chat,
            const void *salt, size_t salt_bytes, const struct kvasir_wish *wish,
            uint8_t key_out[KVASIR_KEY_BYTES], bool *is_unchanged_out)
{
    const Kvasir__V1__RegisterReply *reply;
    enum kvasir_code code = call_register(client, document, is_chat,
                                          client_binary(salt, salt_bytes), wish, key_out, &reply);

    if (code == KVASIR_OK && is_unchanged_out != NULL) {
        *is_unchanged_out = reply->is_unchanged;
    }
    return code;
}

enum kvasir_code
kvasir_coverage(struct kvasir *client, struct kvasir_coverage *coverage_out)
{
    Kvasir__V1__CorpusRequest request = KVASIR__V1__CORPUS_REQUEST__INIT;
    enum kvasir_code code;
    const Kvasir__V1__CorpusReply *reply = client_call(client, METHOD_CORPUS, &request.base, &code);

    if (reply != NULL) {
        *coverage_out = (struct kvasir_coverage){
            .documents = reply->count,
            .tokens = reply->tokens,
            .documents_resident = reply->count_resident,
            .tokens_resident = reply->tokens_resident,
            .documents_waiting = reply->count_waiting,
            .tokens_waiting = reply->tokens_waiting,
            .documents_pinned = reply->count_pinned,
            .documents_without_room = reply->count_no_room,
            .tokens_per_s = reply->tokens_per_s,
            .eta_ms = reply->eta_ms,
        };
    }
    return code;
}

static struct kvasir_document_info
document_info(const Kvasir__V1__DocumentInfo *from)
{
    struct kvasir_document_info to = {
        .tokens = from->tokens,
        .tokens_resident = from->tokens_resident,
        .blocks = from->blocks,
        .references = from->references,
        .pins = from->pins,
        .hits = from->hits,
    };

    if (from->key.len == KVASIR_KEY_BYTES) {
        memcpy(to.key, from->key.data, KVASIR_KEY_BYTES);
    }
    (void)snprintf(to.state, sizeof(to.state), "%s", from->state == NULL ? "" : from->state);
    return to;
}

static Kvasir__V1__DocumentRef
reference(const uint8_t key[KVASIR_KEY_BYTES])
{
    Kvasir__V1__DocumentRef ref = KVASIR__V1__DOCUMENT_REF__INIT;

    ref.has_key = true;
    ref.key = client_binary(key, KVASIR_KEY_BYTES);
    return ref;
}

enum kvasir_code
kvasir_get(struct kvasir *client, const uint8_t key[KVASIR_KEY_BYTES],
           struct kvasir_document_info *info_out)
{
    Kvasir__V1__DocumentRef ref = reference(key);
    enum kvasir_code code;
    const Kvasir__V1__DocumentInfo *reply = client_call(client, METHOD_GET, &ref.base, &code);

    if (reply != NULL) {
        *info_out = document_info(reply);
    }
    return code;
}

enum kvasir_code
kvasir_list(struct kvasir *client, uint32_t limit, const char *order,
            const struct kvasir_document_info **infos_out, size_t *count_out, uint64_t *total_out)
{
    Kvasir__V1__ListRequest request = KVASIR__V1__LIST_REQUEST__INIT;
    enum kvasir_code code;

    request.has_limit = limit != 0;
    request.limit = limit;
    request.order = client_unconst(order);
    const Kvasir__V1__ListReply *reply = client_call(client, METHOD_LIST, &request.base, &code);

    if (reply == NULL) {
        return code;
    }
    struct kvasir_document_info *infos = client_scratch(client, reply->n_documents, sizeof(*infos));

    if (infos == NULL) {
        return client_out_of_memory(client);
    }
    for (size_t i = 0; i < reply->n_documents; i++) {
        infos[i] = document_info(reply->documents[i]);
    }
    *infos_out = infos;
    *count_out = reply->n_documents;
    if (total_out != NULL) {
        *total_out = reply->total;
    }
    return code;
}

static enum kvasir_code
call_with_key(struct kvasir *client, enum method_id method, const uint8_t key[KVASIR_KEY_BYTES])
{
    Kvasir__V1__DocumentRef ref = reference(key);
    enum kvasir_code code;

    (void)client_call(client, method, &ref.base, &code);
    return code;
}

enum kvasir_code
kvasir_pin(struct kvasir *client, const uint8_t key[KVASIR_KEY_BYTES])
{
    return call_with_key(client, METHOD_PIN, key);
}

enum kvasir_code
kvasir_pin_for(struct kvasir *client, const uint8_t key[KVASIR_KEY_BYTES], uint64_t ttl_ms)
{
    Kvasir__V1__DocumentRef ref = reference(key);
    enum kvasir_code code;

    ref.has_ttl_ms = true;
    ref.ttl_ms = ttl_ms;
    (void)client_call(client, METHOD_PIN, &ref.base, &code);
    return code;
}

enum kvasir_code
kvasir_unpin(struct kvasir *client, const uint8_t key[KVASIR_KEY_BYTES])
{
    return call_with_key(client, METHOD_UNPIN, key);
}

enum kvasir_code
kvasir_warm(struct kvasir *client, const uint8_t key[KVASIR_KEY_BYTES])
{
    return call_with_key(client, METHOD_WARM, key);
}

enum kvasir_code
kvasir_forget(struct kvasir *client, const uint8_t key[KVASIR_KEY_BYTES])
{
    Kvasir__V1__ForgetRequest request = KVASIR__V1__FORGET_REQUEST__INIT;
    enum kvasir_code code;

    request.has_key = true;
    request.key = reference(key).key;
    (void)client_call(client, METHOD_FORGET, &request.base, &code);
    return code;
}
