/* SPDX-License-Identifier: Apache-2.0 */
/* The methods of clients.  What has text or ids in it goes through ingest and comes back tokenised;
 * the rest is answered at once. */
#include "daemon/kvasird.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/registry.h"
#include "daemon/tenant.h"

#include "kvasir/v1/documents.pb-c.h"
#include "kvasir/v1/wire.pb-c.h"

void
service_reply_status(struct kvasird *d, struct call *call, enum status st, const char *message)
{
    uint32_t code = rpc_code_of(st);

    deliver_reply(d, call, code, message,
                  code == RPC_RESOURCE_EXHAUSTED || code == RPC_UNAVAILABLE ? SCHED_RETRY_AFTER_MS
                                                                            : 0,
                  NULL, true);
}

static void
reply_empty(struct kvasird *d, struct call *call, enum status st)
{
    Kvasir__V1__Empty empty = KVASIR__V1__EMPTY__INIT;

    if (st == ST_OK) {
        deliver_reply(d, call, RPC_OK, NULL, 0, &empty.base, true);
    } else {
        service_reply_status(d, call, st, status_detail());
    }
}

/* While a call is in hand, what is sent to its client may fail, and all calls of a client that is
 * gone are closed (deliver): this one only now. */
void
service_let_go(struct kvasird *d, uint64_t id)
{
    struct call *call = calls_find(d->calls, id);

    if (call != NULL) { /* not answered yet */
        call->is_in_hand = false;
    }
    deliver(d);
}

/* --- what ingest brings back ------------------------------------------------------------------ */

const char *
service_miss_name(enum kvpool_miss reason)
{
    static const char *const names[KVPOOL_MISS_REASONS] = {
        [KVPOOL_HIT] = "hit",
        [KVPOOL_MISS_COLD] = "cold",
        [KVPOOL_MISS_EVICTED] = "evicted",
        [KVPOOL_MISS_PARTIAL] = "partial",
        [KVPOOL_MISS_BUILDING] = "building",
        [KVPOOL_MISS_ABANDONED] = "abandoned",
        [KVPOOL_MISS_FORGOTTEN] = "forgotten",
        [KVPOOL_MISS_DAMAGED] = "damaged",
    };

    return reason < KVPOOL_MISS_REASONS ? names[reason] : "unknown";
}

void
service_fill_document(Kvasir__V1__DocumentUsage *usage, uint32_t index,
                      const struct prompt_document *document, uint32_t tokens_ready,
                      enum kvpool_miss reason)
{
    kvasir__v1__document_usage__init(usage);
    usage->has_index = true;
    usage->index = index;
    usage->id = document->name;
    usage->has_key = true;
    usage->key.len = DOCKEY_BYTES;
    usage->key.data = (uint8_t *)(uintptr_t)document->key.bytes; /* only packed, never written */
    usage->has_tokens = true;
    usage->tokens = tokens_count(document->tokens);
    usage->has_tokens_reused = true;
    usage->tokens_reused = tokens_ready;
    usage->miss_reason = (char *)(uintptr_t)service_miss_name(reason);
}

static void
submit(struct kvasird *d, struct call *call, struct prompt *prompt, uint32_t priority)
{
    struct sched_submit submit = {
        .id = call->id,
        .arrival_us = call->arrival_us,
        .deadline_us = call->deadline_us,
        .priority = priority,
        .tenant = call->tenant,
        .weight = tenants_find(d->tenants, call->tenant).weight,
        .has_name = call->retry_key_length > 0,
        .is_retry = prompt->is_retry,
        .prompt = *prompt,
    };

    if (submit.has_name) {
        tenant_call_name(call->tenant, call->retry_key, call->retry_key_length, submit.name);
    }

    *prompt = (struct prompt){0};
    call->is_scheduled = true;
    sched_submit(d->sched, clock_now_us(), &submit);
    deliver(d);
}

static void
reply_tokenize(struct kvasird *d, struct call *call, const struct prompt *prompt)
{
    Kvasir__V1__TokenizeReply reply = KVASIR__V1__TOKENIZE_REPLY__INIT;

    reply.n_token_ids = tokens_count(prompt->query);
    reply.token_ids = (uint32_t *)(uintptr_t)tokens_ids(prompt->query); /* only packed */
    deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
}

static enum status
register_document(struct kvasird *d, const struct prompt_document *document,
                  const struct registration *registration, bool *is_unchanged_out)
{
    TRY(registry_put(d->reader.registered, &registration->name, &document->key, document->tokens));
    return registration->weight > 0 ? corpus_register(d, document, registration, is_unchanged_out)
                                    : ST_OK;
}

static void
reply_register(struct kvasird *d, struct call *call, const struct reading *reading)
{
    Kvasir__V1__RegisterReply reply = KVASIR__V1__REGISTER_REPLY__INIT;
    struct prompt_document *document = &reading->prompt.documents[0];
    bool is_unchanged = false;

    if (!forget_registered(d, call, document)) {
        enum status st = register_document(d, document, &reading->registration, &is_unchanged);

        if (st != ST_OK) {
            service_reply_status(d, call, st, status_detail());
            return;
        }
    }
    reply.has_is_unchanged = reading->registration.weight > 0;
    reply.is_unchanged = is_unchanged;
    reply.has_key = true;
    reply.key.len = DOCKEY_BYTES;
    reply.key.data = document->key.bytes;
    reply.has_tokens = true;
    reply.tokens = tokens_count(document->tokens);
    deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
}

/* What a request would find now; an absent document may be cold or evicted, which only a claim
 * tells. */
static enum kvpool_miss
look(const struct kvasird *d, enum reuse_mode reuse, const struct prompt_document *document,
     uint32_t *ready_out)
{
    const struct kvpool *pool = sched_pool(d->sched);
    const struct kvpool_doc *doc = pool == NULL ? NULL : kvpool_find(pool, &document->kv_key);

    if (doc == NULL && pool != NULL && reuse == REUSE_REENCODE) {
        doc = kvpool_find(pool, &document->key); /* a copy of it costs no computing */
    }
    *ready_out = doc == NULL ? 0 : kvpool_doc_tokens_ready(doc);
    if (tokens_count(document->tokens) == 0 || (doc != NULL && kvpool_doc_is_ready(doc))) {
        return KVPOOL_HIT;
    }
    if (doc == NULL) {
        return KVPOOL_MISS_COLD;
    }
    return kvpool_doc_builder(doc) != 0 ? KVPOOL_MISS_BUILDING : KVPOOL_MISS_PARTIAL;
}

static void
reply_probe(struct kvasird *d, struct call *call, const struct prompt *prompt)
{
    Kvasir__V1__ProbeReply reply = KVASIR__V1__PROBE_REPLY__INIT;
    size_t count = prompt->document_count;
    Kvasir__V1__DocumentUsage *usages = mem_zalloc(count, sizeof(*usages));
    Kvasir__V1__DocumentUsage **list = mem_zalloc(count, sizeof(Kvasir__V1__DocumentUsage *));

    if (usages == NULL || list == NULL) {
        service_reply_status(d, call, ST_NO_MEMORY, "no memory for the reply");
    } else {
        for (size_t i = 0; i < count; i++) {
            uint32_t ready;
            enum kvpool_miss reason = look(d, prompt->reuse, &prompt->documents[i], &ready);

            if (prompt->documents[i].is_shared
                && !sched_has_used(d->sched, call->tenant, &prompt->documents[i].key)) {
                reason = KVPOOL_MISS_COLD; /* whether others have used it is theirs to know */
                ready = 0;
            }

            service_fill_document(&usages[i], (uint32_t)i, &prompt->documents[i], ready, reason);
            list[i] = &usages[i];
        }
        reply.n_documents = count;
        reply.documents = list;
        deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
    }
    mem_free(usages);
    mem_free(list);
}

static void
take_job(struct kvasird *d, struct ingest_job *job)
{
    struct call *call = calls_find(d->calls, job->call);

    if (call == NULL) {
        return; /* cancelled meanwhile */
    }
    if (job->status != ST_OK) {
        service_reply_status(d, call, job->status, job->message);
        return;
    }
    call->trace.read_us = clock_now_us();
    call->is_in_hand = true;
    switch (job->method) {
    case METHOD_GENERATE: submit(d, call, &job->reading.prompt, job->reading.priority); break;
    case METHOD_TOKENIZE: reply_tokenize(d, call, &job->reading.prompt); break;
    case METHOD_REGISTER: reply_register(d, call, &job->reading); break;
    default: reply_probe(d, call, &job->reading.prompt); break;
    }
    service_let_go(d, job->call);
}

void
service_ingested(struct kvasird *d)
{
    struct ingest_job *job;

    while ((job = ingest_take(d->ingest)) != NULL) {
        take_job(d, job);
        forget_after(d, job);
        ingest_job_destroy(&job);
    }
    sched_read_until(d->sched, clock_now_us(), ingest_oldest(d->ingest));
    deliver(d);
}

/* --- documents -------------------------------------------------------------------------------- */

bool
service_scope(const struct kvasird *d, const struct call *call, bool has_salt,
              ProtobufCBinaryData salt, struct service_scope *scope_out)
{
    scope_out->registry = (struct registry_scope){
        .pool_fingerprint = d->reader.pool_fingerprint,
        .salt = salt.data,
        .salt_length = has_salt ? salt.len : 0,
    };
    if (call->tenant[0] != '\0') {
        tenant_salt(call->tenant, salt.data, scope_out->registry.salt_length, scope_out->salt);
        scope_out->registry.salt = scope_out->salt;
        scope_out->registry.salt_length = sizeof(scope_out->salt);
    }
    return has_salt || call->tenant[0] != '\0';
}

/* With a salt (a tenant has always one), or by its id, it must be registered, since only its ids
 * tell whose it is. */
enum status
service_read_ref(const struct kvasird *d, const struct call *call,
                 const Kvasir__V1__DocumentRef *ref, struct dockey *key_out)
{
    struct service_scope scope;
    bool is_scoped = service_scope(d, call, ref->has_salt, ref->salt, &scope);
    struct tokens *tokens = NULL;

    if (ref->has_key == (ref->id != NULL)) {
        return ERR(ST_INVALID, "a document is named by its key or by its id");
    }
    if (ref->id != NULL) {
        TRY(registry_find_id(d->reader.registered, &scope.registry, ref->id, key_out, &tokens));
        tokens_release(&tokens);
        return ST_OK;
    }
    if (ref->key.len != DOCKEY_BYTES) {
        return ERR(ST_INVALID, "key has %zu bytes: it must be %d", ref->key.len, DOCKEY_BYTES);
    }
    memcpy(key_out->bytes, ref->key.data, DOCKEY_BYTES);
    if (is_scoped) {
        TRY(registry_find(d->reader.registered, &scope.registry, key_out, &tokens));
        tokens_release(&tokens);
    }
    return ST_OK;
}

static void
warm_document(struct kvasird *d, struct call *call, const struct dockey *key)
{
    struct prompt prompt = {0};
    struct tokens *tokens = memo_find(d->reader.registered, MEMO_DOCUMENT, key);

    if (tokens == NULL) {
        service_reply_status(d, call, ST_NOT_FOUND, "the document is not registered");
        return;
    }
    prompt.documents = mem_zalloc(1, sizeof(prompt.documents[0]));
    if (prompt.documents == NULL) {
        tokens_release(&tokens);
        service_reply_status(d, call, ST_NO_MEMORY, "no memory for a document");
        return;
    }
    prompt.document_count = 1;
    prompt.documents[0] = (struct prompt_document){.key = *key, .kv_key = *key, .tokens = tokens};
    submit(d, call, &prompt, PROMPT_PRIORITY_DEFAULT);
}

static enum status
pin_document(struct kvasird *d, const struct dockey *key, uint64_t ttl_us)
{
    enum status st = sched_pin(d->sched, clock_now_us(), key, ttl_us);
    struct tokens *tokens =
        st == ST_NOT_FOUND ? memo_find(d->reader.registered, MEMO_DOCUMENT, key) : NULL;

    if (tokens == NULL) {
        return st;
    }
    tokens_release(&tokens);
    return ERR(ST_UNAVAILABLE, "document is registered, but not in the pool: warm it first");
}

static void
prioritize(struct kvasird *d, struct call *call, const Kvasir__V1__PrioritizeRequest *request)
{
    Kvasir__V1__DocumentRef ref = KVASIR__V1__DOCUMENT_REF__INIT;
    struct dockey key;
    enum status st;

    ref.has_key = request->has_key;
    ref.key = request->key;
    st = service_read_ref(d, call, &ref, &key);
    if (st == ST_OK) {
        st = request->has_priority ? sched_prioritize(d->sched, &key, request->priority)
                                   : ERR(ST_INVALID, "priority is missing");
    }
    reply_empty(d, call, st);
}

static void
document_call(struct kvasird *d, struct call *call, const Kvasir__V1__DocumentRef *ref)
{
    struct dockey key;
    enum status st = service_read_ref(d, call, ref, &key);

    if (st != ST_OK) {
        service_reply_status(d, call, st, status_detail());
        return;
    }
    switch (call->method) {
    case METHOD_GET: listing_get(d, call, &key); break;
    case METHOD_WARM:
        if (ref->in_background) {
            corpus_warm(d, call, &key, ref);
        } else {
            warm_document(d, call, &key);
        }
        break;
    case METHOD_PIN:
        reply_empty(d, call, pin_document(d, &key, clock_us_of_ms(ref->ttl_ms)));
        break;
    default: reply_empty(d, call, sched_unpin(d->sched, clock_now_us(), &key)); break;
    }
    deliver(d);
}

/* --- calls ------------------------------------------------------------------------------------ */

/* The wish is fulfilled also when there is nothing left to cancel. */
static void
cancel_call(struct kvasird *d, struct call *call, const Kvasir__V1__CancelRequest *request)
{
    struct call *open = calls_find_of(d->calls, &call->address, request->request_id);

    if (open != NULL && open != call) {
        if (open->is_scheduled) {
            (void)sched_cancel(d->sched, clock_now_us(), open->id, false);
            deliver(d);
        } else {
            deliver_reply(d, open, RPC_CANCELLED, "cancelled", 0, NULL, true);
        }
    }
    reply_empty(d, call, ST_OK);
    deliver(d);
}

/* Methods with little in them: parsed and answered here. */
static void
answer(struct kvasird *d, struct call *call, const struct message *message)
{
    const struct method *method = method_get(call->method);
    const ProtobufCMessage *request;
    enum status st;

    wire_arena_reset(d->arena);
    st = wire_unpack(d->arena, method->request, message->payload, message->payload_length,
                     WIRE_ADMIN_BYTES_MAX, &request);
    if (st != ST_OK) {
        service_reply_status(d, call, st, status_detail());
        return;
    }
    switch (call->method) {
    case METHOD_CANCEL: cancel_call(d, call, (const Kvasir__V1__CancelRequest *)request); break;
    case METHOD_HEALTH: admin_health(d, call); break;
    case METHOD_METRICS: admin_stats(d, call); break;
    case METHOD_MODEL: model_describe(d, call); break;
    case METHOD_DETOKENIZE:
        model_detokenize(d, call, (const Kvasir__V1__DetokenizeRequest *)request);
        break;
    case METHOD_LIST: listing_list(d, call, (const Kvasir__V1__ListRequest *)request); break;
    case METHOD_GET:
    case METHOD_PIN:
    case METHOD_UNPIN:
    case METHOD_WARM: document_call(d, call, (const Kvasir__V1__DocumentRef *)request); break;
    case METHOD_FORGET:
        forget_call(d, call, (const Kvasir__V1__ForgetRequest *)request, message);
        break;
    case METHOD_PRIORITIZE:
        prioritize(d, call, (const Kvasir__V1__PrioritizeRequest *)request);
        break;
    case METHOD_CORPUS: corpus_describe(d, call, (const Kvasir__V1__CorpusRequest *)request); break;
    default: admin_call(d, call, request); break;
    }
}

static void
start_call(struct kvasird *d, struct call *call, const struct message *message)
{
    struct tenants_entry entry = tenants_find(d->tenants, call->tenant);
    enum status st;

    switch (call->method) {
    case METHOD_GENERATE:
    case METHOD_TOKENIZE:
    case METHOD_PROBE:
    case METHOD_REGISTER:
        st = ingest_submit(d->ingest, call->id,
                           &(struct client_message){
                               .method = call->method,
                               .tenant = call->tenant,
                               .grant = &entry.grant,
                               .payload = message->payload,
                               .length = message->payload_length,
                           },
                           message->frames);
        if (st != ST_OK) {
            service_reply_status(d, call, st, status_detail());
        }
        break;
    default: answer(d, call, message); break;
    }
}

/* The method's row, or NULL after a refusal. */
static const struct method *
find_method(struct kvasird *d, const struct message *message,
            const Kvasir__V1__RequestHeader *header)
{
    const struct method *method = header->method == NULL ? NULL : method_find(header->method);
    const struct address *from = &message->from;

    if (header->version != WIRE_VERSION) {
        (void)ERR(ST_INVALID, "protocol version %u: this daemon speaks %d", header->version,
                  WIRE_VERSION);
        deliver_refusal(d, from, header->request_id, RPC_FAILED_PRECONDITION, status_detail());
        return NULL;
    }
    if (method == NULL) {
        (void)ERR(ST_INVALID, "method %.100s: there is no such method",
                  header->method == NULL ? "(none)" : header->method);
        deliver_refusal(d, from, header->request_id, RPC_UNIMPLEMENTED, status_detail());
        return NULL;
    }
    return method;
}

/* Who calls, and for whom: over a network its key says so, on a local socket the caller itself.
 * The entry of the key may have gone since its connection was made. */
static bool
may_call(struct kvasird *d, const struct message *message, const Kvasir__V1__RequestHeader *header,
         const struct method *method, const char **tenant_out)
{
    const struct access_entry *entry =
        message->peer == NULL ? NULL : access_find_name(d->access, message->peer);
    bool is_remote = message->from.socket == ROUTER_REMOTE;
    bool is_admin = is_remote ? entry != NULL && entry->role == ACCESS_ADMIN
                              : message->from.socket == ROUTER_ADMIN;
    const char *tenant = header->tenant == NULL ? "" : header->tenant;
    enum rpc_code code = RPC_PERMISSION_DENIED;

    if (is_remote && entry == NULL) {
        code = RPC_UNAUTHENTICATED;
        (void)ERR(ST_INVALID, "this key is no longer accepted");
    } else if (is_remote && tenant[0] != '\0') {
        (void)ERR(ST_INVALID, "over a network the key tells the tenant, not the header");
    } else if (tenant[0] != '\0' && !tenant_is_name(tenant)) {
        code = RPC_INVALID_ARGUMENT;
        (void)ERR(ST_INVALID, "tenant: letters, digits, '-', '_' and '.', at most %d",
                  TENANT_NAME_MAX - 1);
    } else if (!is_admin && (method->is_admin || (is_remote && method->id == METHOD_METRICS))) {
        (void)ERR(ST_INVALID, "%s is for operators: " ENDPOINT_ADMIN ", or a key of role admin",
                  header->method);
    } else {
        *tenant_out = is_remote ? entry->tenant : tenant;
        return true;
    }
    deliver_refusal(d, &message->from, header->request_id, code, status_detail());
    return false;
}

static void
set_times(const struct kvasird *d, struct call *call, const struct method *method,
          uint64_t timeout_ms)
{
    bool has_end = timeout_ms > 0 || method->id != METHOD_EVENTS; /* that one listens */

    call->method = method->id;
    call->arrival_us = clock_now_us();
    call->deadline_us =
        has_end
            ? call->arrival_us + (timeout_ms > 0 ? timeout_ms : d->options.request_timeout) * 1000
            : UINT64_MAX;
}

void
service_message(struct kvasird *d, const struct message *message)
{
    const ProtobufCMessage *parsed;
    const Kvasir__V1__RequestHeader *header;
    const struct method *method;
    const char *tenant = "";
    struct call *call;
    enum status st;

    wire_arena_reset(d->arena);
    st = wire_unpack(d->arena, &kvasir__v1__request_header__descriptor, message->header,
                     message->header_length, WIRE_HEADER_BYTES_MAX, &parsed);
    if (st != ST_OK) {
        log_debug("header_bad", "detail=\"%s\", ignoring", status_detail());
        return;
    }
    header = (const Kvasir__V1__RequestHeader *)parsed;
    method = find_method(d, message, header);
    if (method == NULL || !may_call(d, message, header, method, &tenant)) {
        deliver(d);
        return;
    }
    st = calls_open(d->calls, &message->from, header->request_id, &call);
    if (st != ST_OK) {
        deliver_refusal(d, &message->from, header->request_id,
                        st == ST_INVALID ? RPC_ALREADY_EXISTS : RPC_RESOURCE_EXHAUSTED,
                        status_detail());
        deliver(d);
        return;
    }
    uint64_t id = call->id;

    call->is_in_hand = true;
    (void)snprintf(call->tenant, sizeof(call->tenant), "%s", tenant);
    st = header->has_retry_key
             ? calls_set_retry_key(d->calls, call, header->retry_key.data, header->retry_key.len)
             : ST_OK;
    if (st == ST_OK) {
        deliver(d); /* an earlier attempt of the same call ends before this one begins */
        set_times(d, call, method, header->timeout_ms);
        start_call(d, call, message);
    } else {
        service_reply_status(d, call, st, status_detail());
    }
    service_let_go(d, id);
}
