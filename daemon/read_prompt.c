/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/read_prompt.h"

#include <math.h>
#include <string.h>

#include <openssl/evp.h>

#include "common/mem.h"
#include "daemon/known_ids.h"
#include "daemon/read_resume.h"
#include "daemon/read_sampling.h"
#include "daemon/registry.h"
#include "daemon/sched.h"
#include "daemon/segment.h"
#include "daemon/tenant.h"
#include "model/grammar.h"

#include "kvasir/v1/documents.pb-c.h"
#include "kvasir/v1/rag.pb-c.h"

/* How a text becomes ids; part of its name in the memo. */
enum text_kind {
    TEXT_RAW,      /* as it stands */
    TEXT_DOCUMENT, /* in the template's frame of a document */
};

struct work {
    const struct reader *reader;
    struct tokenizer_scratch *scratch;
    const char *tenant;
    const struct tenant_grant *grant;
    ProtobufCBinaryData salt;
    uint8_t tenant_salt[TENANT_SALT_BYTES]; /* what `salt` is of a tenant */
    bool is_registering;
    struct prompt prompt;
};

/* --- segments --------------------------------------------------------------------------------- */

static bool
hash_field(EVP_MD_CTX *hash, const void *bytes, size_t length)
{
    uint64_t prefix = length;

    return EVP_DigestUpdate(hash, &prefix, sizeof(prefix)) == 1
           && EVP_DigestUpdate(hash, bytes, length) == 1;
}

/* SHA-256 over tokenizer, kind, title and text, each with its length. */
static enum status
name_text(const struct reader *reader, enum text_kind kind, const struct template_document *text,
          struct dockey *name_out)
{
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    uint8_t kind_byte = (uint8_t)kind;
    bool is_ok = hash != NULL && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1
                 && hash_field(hash, reader->tokenizer_fingerprint, 32)
                 && hash_field(hash, &kind_byte, 1)
                 && hash_field(hash, text->title == NULL ? "" : text->title, text->title_length)
                 && hash_field(hash, text->text, text->text_length)
                 && EVP_DigestFinal_ex(hash, name_out->bytes, NULL) == 1;

    EVP_MD_CTX_free(hash);
    return is_ok ? ST_OK : ERR(ST_NO_MEMORY, "no memory to hash a text");
}

static enum status
encode(struct work *work, enum text_kind kind, const struct template_document *text,
       struct tokens **tokens_out)
{
    const struct reader *reader = work->reader;
    const uint32_t *ids;
    size_t count;
    struct dockey name;

    TRY(name_text(reader, kind, text, &name));
    *tokens_out = memo_find(reader->memo, MEMO_TEXT, &name);
    if (*tokens_out != NULL) {
        return ST_OK;
    }
    TRY(kind == TEXT_DOCUMENT
            ? template_encode_document(reader->tokenizer, work->scratch, text, &ids, &count)
            : template_encode_raw(reader->tokenizer, work->scratch, text->text, text->text_length,
                                  &ids, &count));
    TRY(tokens_new(ids, count, tokens_out));
    (void)memo_put(reader->memo, MEMO_TEXT, &name, *tokens_out); /* it only spares time */
    return ST_OK;
}

/* Whose documents a segment names: the caller's, or those of a corpus, whose salt is written to
 * `salt`.  What is not granted is not there. */
static enum status
scope_of(const struct work *work, const Kvasir__V1__Segment *segment, bool is_to_register,
         uint8_t salt[TENANT_SALT_BYTES], struct registry_scope *scope_out)
{
    *scope_out = (struct registry_scope){
        .pool_fingerprint = work->reader->pool_fingerprint,
        .salt = work->salt.data,
        .salt_length = work->salt.len,
    };
    if (segment->corpus == NULL) {
        return ST_OK;
    }
    TRY(tenant_open_corpus(work->grant, segment->corpus, is_to_register, salt));
    scope_out->salt = salt;
    scope_out->salt_length = TENANT_SALT_BYTES;
    return ST_OK;
}

static enum status
find_registered(struct work *work, const Kvasir__V1__Segment *segment, struct tokens **tokens_out)
{
    struct registry_scope scope;
    uint8_t salt[TENANT_SALT_BYTES];
    struct dockey key;

    TRY(scope_of(work, segment, false, salt, &scope));
    if (!segment->has_document_key) {
        return registry_find_id(work->reader->registered, &scope, segment->document_id, &key,
                                tokens_out);
    }
    if (segment->document_key.len != DOCKEY_BYTES) {
        return ERR(ST_INVALID, "document_key has %zu bytes: it must be %d",
                   segment->document_key.len, DOCKEY_BYTES);
    }
    memcpy(key.bytes, segment->document_key.data, DOCKEY_BYTES);
    return registry_find(work->reader->registered, &scope, &key, tokens_out);
}

/* Exactly one of text, token_ids, document_key, document_id. */
static enum status
read_segment(struct work *work, const Kvasir__V1__Segment *segment, enum text_kind kind,
             struct tokens **tokens_out)
{
    const uint32_t *ids;
    size_t id_count;

    TRY(segment_ids(segment, &ids, &id_count));
    bool has_ids = id_count > 0;
    int given = (segment->text != NULL) + has_ids + segment->has_document_key
                + (segment->document_id != NULL);

    if (given > 1) {
        return ERR(ST_INVALID, "more than one of text, token_ids, document_key and document_id");
    }
    if (segment->title != NULL && (segment->text == NULL || kind == TEXT_RAW)) {
        return ERR(ST_INVALID, "title goes with the text of a chat's document only");
    }
    if (segment->corpus != NULL && !work->is_registering && !segment->has_document_key
        && segment->document_id == NULL) {
        return ERR(ST_INVALID, "corpus goes with document_key or document_id");
    }
    if (segment->has_document_key || segment->document_id != NULL) {
        return find_registered(work, segment, tokens_out);
    }
    if (segment->text == NULL) { /* ids, or an empty list of them: an empty document */
        return known_ids(work->reader->memo, work->salt.data, work->salt.len,
                         work->reader->vocab_size, ids, id_count, tokens_out);
    }
    struct template_document text = {
        .title = segment->title,
        .title_length = segment->title == NULL ? 0 : strlen(segment->title),
        .text = segment->text,
        .text_length = strlen(segment->text),
    };

    return encode(work, kind, &text, tokens_out);
}

/* Puts a document into the prompt; takes the reference over, also on failure. */
static enum status
add_document(struct work *work, struct tokens *tokens, const char *name,
             const struct registry_scope *scope)
{
    struct prompt *prompt = &work->prompt;
    struct prompt_document *document = &prompt->documents[prompt->document_count++];

    document->tokens = tokens; /* from here on prompt_deinit gives it back */
    if (name != NULL && strlen(name) > PROMPT_NAME_BYTES_MAX) {
        return ERR(ST_INVALID, "id has %zu bytes: the limit is %d", strlen(name),
                   PROMPT_NAME_BYTES_MAX);
    }
    if (name != NULL) {
        document->name = mem_strdup(name);
        if (document->name == NULL) {
            return ERR(ST_NO_MEMORY, "no memory for a document's id");
        }
    }
    return tokens_key(tokens, work->reader->pool_fingerprint, scope->salt, scope->salt_length,
                      &document->key);
}

/* Of the caller's own. */
static enum status
add_own_document(struct work *work, struct tokens *tokens)
{
    struct registry_scope scope = {.salt = work->salt.data, .salt_length = work->salt.len};

    return add_document(work, tokens, NULL, &scope);
}

static enum status
add_segment(struct work *work, const Kvasir__V1__Segment *segment, enum text_kind kind)
{
    struct tokens *tokens = NULL;
    struct registry_scope scope;
    uint8_t salt[TENANT_SALT_BYTES];

    TRY(scope_of(work, segment, work->is_registering, salt, &scope));
    TRY(read_segment(work, segment, kind, &tokens));
    TRY(add_document(work, tokens, segment->id, &scope));
    work->prompt.documents[work->prompt.document_count - 1].is_shared = segment->corpus != NULL;
    return ST_OK;
}

static enum status
add_segments(struct work *work, const char *field, Kvasir__V1__Segment *const *segments,
             size_t count, enum text_kind kind)
{
    for (size_t i = 0; i < count; i++) {
        enum status st = add_segment(work, segments[i], kind);

        if (st != ST_OK) {
            return ERR(st, "%s[%zu]: %s", field, i, status_detail());
        }
    }
    return ST_OK;
}

/* Room for the documents and, in front of them, a preamble. */
static enum status
make_room(struct work *work, size_t count)
{
    if (count + 1 > SCHED_DOCUMENTS_MAX) {
        return ERR(ST_INVALID, "%zu documents: the limit is %d", count, SCHED_DOCUMENTS_MAX - 1);
    }
    work->prompt.documents = mem_zalloc(count + 1, sizeof(work->prompt.documents[0]));
    return work->prompt.documents == NULL ? ERR(ST_NO_MEMORY, "no memory for %zu documents", count)
                                          : ST_OK;
}

static enum status
read_salt(struct work *work, bool has_salt, ProtobufCBinaryData salt)
{
    if (has_salt && salt.len > PROMPT_SALT_BYTES_MAX) {
        return ERR(ST_INVALID, "salt has %zu bytes: the limit is %d", salt.len,
                   PROMPT_SALT_BYTES_MAX);
    }
    if (has_salt) {
        work->salt = salt;
    }
    if (work->tenant[0] != '\0') {
        tenant_salt(work->tenant, work->salt.data, work->salt.len, work->tenant_salt);
        work->salt =
            (ProtobufCBinaryData){.data = work->tenant_salt, .len = sizeof(work->tenant_salt)};
    }
    return ST_OK;
}

/* --- raw -------------------------------------------------------------------------------------- */

/* A BOS-only segment in front, unless the first segment begins with one. */
static enum status
add_bos(struct work *work, const Kvasir__V1__GenerateRequest *request)
{
    uint32_t bos = tokenizer_bos(work->reader->tokenizer);
    struct tokens *tokens;
    const uint32_t *ids = NULL;
    size_t count = 0;

    if (!request->add_bos || bos == TOKENIZER_NONE) {
        return ST_OK;
    }
    if (request->n_segments > 0) {
        TRY(segment_ids(request->segments[0], &ids, &count));
    }
    if (count > 0 && ids[0] == bos) {
        return ST_OK;
    }
    TRY(tokens_new(&bos, 1, &tokens));
    return add_own_document(work, tokens);
}

static enum status
read_raw(struct work *work, const Kvasir__V1__GenerateRequest *request)
{
    if (request->n_documents > 0) {
        return ERR(ST_INVALID, "documents go with messages; without a chat use segments");
    }
    if ((request->query != NULL) == (request->n_query_ids > 0)) {
        return ERR(ST_INVALID, "exactly one of messages, query and query_ids must be given");
    }
    TRY(make_room(work, request->n_segments));
    TRY(add_bos(work, request));
    TRY(add_segments(work, "segments", request->segments, request->n_segments, TEXT_RAW));
    if (request->query == NULL) {
        TRY(segment_check_ids(work->reader->vocab_size, request->query_ids, request->n_query_ids));
        return tokens_new(request->query_ids, request->n_query_ids, &work->prompt.query);
    }
    struct template_document text = {
        .text = request->query,
        .text_length = strlen(request->query),
    };

    return encode(work, TEXT_RAW, &text, &work->prompt.query);
}

/* --- chat ------------------------------------------------------------------------------------- */

static enum status
take_chat_segment(void *arg, enum template_segment_kind kind, size_t document_index,
                  const uint32_t *ids, size_t count)
{
    struct work *work = arg;
    struct tokens *tokens;

    (void)document_index;
    switch (kind) {
    case TEMPLATE_PREAMBLE:
        TRY(tokens_new(ids, count, &tokens));
        return add_own_document(work, tokens);
    case TEMPLATE_QUERY: return tokens_new(ids, count, &work->prompt.query);
    case TEMPLATE_DOCUMENT: break; /* an empty stand-in: the memo knows most documents */
    }
    return ST_OK;
}

static enum status
render_frame(struct work *work, const Kvasir__V1__GenerateRequest *request,
             struct template_message *messages, struct template_document *stand_ins)
{
    const struct reader *reader = work->reader;

    for (size_t i = 0; i < request->n_messages; i++) {
        const Kvasir__V1__Message *message = request->messages[i];

        if (message->role == NULL || message->content == NULL) {
            return ERR(ST_INVALID, "messages[%zu] lacks its role or content", i);
        }
        messages[i] = (struct template_message){
            .role = message->role,
            .content = message->content,
            .content_length = strlen(message->content),
        };
    }
    for (size_t i = 0; i < request->n_documents; i++) {
        stand_ins[i].text = "";
    }
    return template_render_chat(reader->template_kind, reader->tokenizer, work->scratch, messages,
                                request->n_messages, stand_ins, request->n_documents,
                                take_chat_segment, work);
}

static enum status
read_chat(struct work *work, const Kvasir__V1__GenerateRequest *request)
{
    struct template_message *messages;
    struct template_document *stand_ins;
    enum status st;

    if (request->query != NULL || request->n_query_ids > 0 || request->n_segments > 0) {
        return ERR(ST_INVALID, "messages exclude segments, query and query_ids");
    }
    TRY(make_room(work, request->n_documents));
    messages = mem_zalloc(request->n_messages, sizeof(*messages));
    stand_ins = mem_zalloc(request->n_documents, sizeof(*stand_ins));
    st = messages == NULL || stand_ins == NULL
             ? ERR(ST_NO_MEMORY, "no memory for %zu messages", request->n_messages)
             : render_frame(work, request, messages, stand_ins);
    mem_free(messages);
    mem_free(stand_ins);
    TRY(st);
    return add_segments(work, "documents", request->documents, request->n_documents, TEXT_DOCUMENT);
}

/* --- methods ---------------------------------------------------------------------------------- */

/* The wire's numbers have the daemon's default before the modes. */
static enum status
apply_reuse(struct work *work, Kvasir__V1__ReuseMode mode)
{
    if ((unsigned)mode > REUSE_MODES) {
        return ERR(ST_INVALID, "reuse is %d: it must be " REUSE_NAMES, (int)mode);
    }
    return reuse_apply(&work->prompt, mode == KVASIR__V1__REUSE_MODE__REUSE_DEFAULT
                                          ? work->reader->reuse
                                          : (enum reuse_mode)(mode - 1));
}

/* Chats are followed up, raw requests where they say so. */
static enum status
name_turn(struct work *work, const Kvasir__V1__GenerateRequest *request)
{
    bool is_kept = request->has_keep_turn ? request->keep_turn : request->n_messages > 0;
    struct dockey tenant;

    if (!is_kept || !work->reader->keeps_turns) {
        return ST_OK;
    }
    TRY(dockey_compute(work->reader->pool_fingerprint, work->salt.data, work->salt.len, NULL, 0,
                       &tenant));
    return reuse_name_turn(&work->prompt, &tenant, work->reader->block_tokens);
}

static enum status
read_generate(struct work *work, const Kvasir__V1__GenerateRequest *request, uint32_t *priority)
{
    *priority = request->has_priority ? request->priority : PROMPT_PRIORITY_DEFAULT;
    if (*priority > PROMPT_PRIORITY_MAX) {
        return ERR(ST_INVALID, "priority is %u: the limit is %d", *priority, PROMPT_PRIORITY_MAX);
    }
    TRY(read_salt(work, request->has_salt, request->salt));
    TRY(read_sampling(request->sampling, work->reader->vocab_size, &work->prompt.sampling));
    work->prompt.sampling.ignore_end = request->ignore_end;
    TRY(read_resume(request, work->reader->vocab_size, &work->prompt));
    TRY(request->n_messages > 0 ? read_chat(work, request) : read_raw(work, request));
    if (tokens_count(work->prompt.query) == 0) {
        return ERR(ST_INVALID, "the query is empty: an answer needs a token to start from");
    }
    TRY(apply_reuse(work, request->reuse));
    return name_turn(work, request);
}

/* All segments and the query, one after the other, become the query. */
static enum status
join_prompt(struct work *work)
{
    struct prompt *prompt = &work->prompt;
    size_t count = tokens_count(prompt->query);
    uint32_t *ids;
    size_t at = 0;

    for (size_t i = 0; i < prompt->document_count; i++) {
        count += tokens_count(prompt->documents[i].tokens);
    }
    ids = mem_zalloc(count, sizeof(*ids));
    if (ids == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for %zu token ids", count);
    }
    for (size_t i = 0; i <= prompt->document_count; i++) {
        const struct tokens *part =
            i < prompt->document_count ? prompt->documents[i].tokens : prompt->query;

        if (tokens_count(part) > 0) {
            memcpy(ids + at, tokens_ids(part), tokens_count(part) * sizeof(*ids));
        }
        at += tokens_count(part);
    }
    tokens_release(&prompt->query);
    enum status st = tokens_new(ids, count, &prompt->query);

    mem_free(ids);
    return st;
}

/* A chat as Generate would read it. */
static enum status
tokenize_chat(struct work *work, const Kvasir__V1__TokenizeRequest *request)
{
    Kvasir__V1__GenerateRequest chat = KVASIR__V1__GENERATE_REQUEST__INIT;

    if (request->text != NULL) {
        return ERR(ST_INVALID, "one of text and messages");
    }
    chat.n_messages = request->n_messages;
    chat.messages = request->messages;
    chat.n_documents = request->n_documents;
    chat.documents = request->documents;
    TRY(read_chat(work, &chat));
    return join_prompt(work);
}

static enum status
read_tokenize(struct work *work, const Kvasir__V1__TokenizeRequest *request)
{
    const uint32_t *ids;
    size_t count;
    const char *text = request->text == NULL ? "" : request->text;
    uint32_t bos = tokenizer_bos(work->reader->tokenizer);

    TRY(read_salt(work, request->has_salt, request->salt));
    if (request->n_messages > 0) {
        return tokenize_chat(work, request);
    }
    TRY(tokenizer_encode(work->reader->tokenizer, work->scratch, text, strlen(text),
                         request->parse_special, &ids, &count));
    TRY(tokens_new(ids, count, &work->prompt.query));
    if (!request->add_bos || bos == TOKENIZER_NONE) {
        return ST_OK;
    }
    TRY(make_room(work, 0));
    struct tokens *first;

    TRY(tokens_new(&bos, 1, &first));
    TRY(add_own_document(work, first));
    return join_prompt(work);
}

static enum status
read_probe(struct work *work, const Kvasir__V1__ProbeRequest *request)
{
    TRY(read_salt(work, request->has_salt, request->salt));
    TRY(make_room(work, request->n_segments));
    TRY(add_segments(work, "segments", request->segments, request->n_segments, TEXT_RAW));
    return apply_reuse(work, request->reuse);
}

static enum status
read_registration(const struct registry_scope *scope, const Kvasir__V1__RegisterRequest *request,
                  const struct dockey *key, struct registration *registration)
{
    const char *version = request->version == NULL ? "" : request->version;

    *registration = (struct registration){.name = *key};
    if (request->document->id != NULL) {
        TRY(registry_name(scope, request->document->id, &registration->name));
    }
    if (!request->has_weight) {
        return request->is_pinned || request->version != NULL
                   ? ERR(ST_INVALID, "is_pinned and version go with a weight")
                   : ST_OK;
    }
    if (!(isfinite(request->weight) && request->weight > 0)) {
        return ERR(ST_INVALID, "weight is %g: it must be above 0", request->weight);
    }
    if (strlen(version) > CORPUS_VERSION_BYTES_MAX) {
        return ERR(ST_INVALID, "version has %zu bytes: the limit is %d", strlen(version),
                   CORPUS_VERSION_BYTES_MAX);
    }
    registration->weight = request->weight;
    registration->is_pinned = request->is_pinned;
    registration->pin_ttl_ms = request->pin_ttl_ms;
    memcpy(registration->version, version, strlen(version) + 1);
    return registry_name(scope, "", &registration->scope);
}

static enum status
read_register(struct work *work, const Kvasir__V1__RegisterRequest *request,
              struct registration *registration)
{
    if (request->document == NULL) {
        return ERR(ST_INVALID, "document is missing");
    }
    if (request->document->has_document_key || request->document->document_id != NULL) {
        return ERR(ST_INVALID, "document_key: a document is registered by its text or ids");
    }
    TRY(read_salt(work, request->has_salt, request->salt));
    struct registry_scope scope;
    uint8_t salt[TENANT_SALT_BYTES];

    work->is_registering = true;
    TRY(make_room(work, 1));
    TRY(add_segment(work, request->document, request->is_chat ? TEXT_DOCUMENT : TEXT_RAW));
    TRY(scope_of(work, request->document, true, salt, &scope));
    return read_registration(&scope, request, &work->prompt.documents[0].key, registration);
}

enum status
read_prompt(const struct reader *reader, struct wire_arena *arena,
            struct tokenizer_scratch *scratch, const struct client_message *from,
            struct reading *reading_out)
{
    struct work work = {reader, scratch, .tenant = from->tenant, .grant = from->grant};
    const ProtobufCMessage *message;
    uint32_t priority = PROMPT_PRIORITY_DEFAULT;
    struct registration registration = {0};
    enum status st;

    wire_arena_reset(arena);
    TRY(wire_unpack(arena, method_get(from->method)->request, from->payload, from->length,
                    WIRE_CLIENT_BYTES_MAX, &message));
    switch (from->method) {
    case METHOD_GENERATE:
        st = read_generate(&work, (const Kvasir__V1__GenerateRequest *)message, &priority);
        break;
    case METHOD_TOKENIZE:
        st = read_tokenize(&work, (const Kvasir__V1__TokenizeRequest *)message);
        break;
    case METHOD_PROBE: st = read_probe(&work, (const Kvasir__V1__ProbeRequest *)message); break;
    case METHOD_REGISTER:
        st = read_register(&work, (const Kvasir__V1__RegisterRequest *)message, &registration);
        break;
    default: st = ERR(ST_INVALID, "a method without a prompt"); break;
    }
    if (st != ST_OK) {
        prompt_deinit(&work.prompt);
        return st;
    }
    *reading_out =
        (struct reading){.registration = registration, .prompt = work.prompt, .priority = priority};
    return ST_OK;
}
