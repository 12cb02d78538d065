/* SPDX-License-Identifier: Apache-2.0 */
/* The corpus in the process: documents registered with a weight, their encoding in idle time, their
 * pins, and what clients are told of them. */
#include "daemon/kvasird.h"

#include <math.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/registry.h"

#include "kvasir/v1/documents.pb-c.h"
#include "kvasir/v1/wire.pb-c.h"

/* Ids of requests that nobody asked: no call has them. */
#define CORPUS_ID (UINT64_C(1) << 63)

#define LOOK_AGAIN_US  1000000u  /* after the whole corpus was looked at */
#define PUMP_TASKS_MAX 64        /* a turn of the loop */
#define RATE_US        30000000u /* of work after which old work counts half */
#define LIST_LIMIT     10000
#define LIST_LIMIT_MAX 100000

/* --- registering ------------------------------------------------------------------------------ */

static void
drop_old(struct kvasird *d, const struct corpus_result *result)
{
    uint64_t now_us = clock_now_us();

    if (result->had_pin) {
        (void)sched_unpin(d->sched, now_us, &result->old_key);
    }
    if (result->is_old_unused) {
        (void)memo_forget(d->reader.registered, MEMO_DOCUMENT, &result->old_key);
        (void)sched_forget(d->sched, now_us, 0, &result->old_key, false);
    }
    deliver(d);
}

enum status
corpus_register(struct kvasird *d, const struct prompt_document *document,
                const struct registration *registration, bool *is_unchanged_out)
{
    uint64_t ttl_us = clock_us_of_ms(registration->pin_ttl_ms);
    struct corpus_result result;

    TRY(corpus_put(d->corpus,
                   &(struct corpus_put){
                       .name = registration->name,
                       .key = document->key,
                       .scope = registration->scope,
                       .id = document->name,
                       .version = registration->version,
                       .tokens = document->tokens,
                       .weight = registration->weight,
                       .is_pinned = registration->is_pinned,
                       .pin_ends_us = ttl_us == 0 ? 0 : clock_now_us() + ttl_us,
                   },
                   &result));
    if (result.must_unpin) {
        (void)sched_unpin(d->sched, clock_now_us(), &document->key);
        deliver(d);
    }
    if (result.change == CORPUS_CHANGED) {
        drop_old(d, &result);
    }
    *is_unchanged_out = result.change == CORPUS_UNCHANGED;
    return ST_OK;
}

/* --- encoding --------------------------------------------------------------------------------- */

static void
start_build(struct kvasird *d, const struct corpus_document *document, uint64_t now_us)
{
    struct sched_submit submit = {
        .id = CORPUS_ID | document->number,
        .arrival_us = now_us,
        .deadline_us = UINT64_MAX,
        .prompt = {.documents = mem_zalloc(1, sizeof(struct prompt_document))},
    };

    if (submit.prompt.documents == NULL) {
        corpus_ended(d->corpus, document->number, CORPUS_WAITING);
        return;
    }
    submit.prompt.document_count = 1;
    submit.prompt.documents[0] = (struct prompt_document){
        .key = document->key,
        .kv_key = document->key,
        .tokens = tokens_acquire(document->tokens),
    };
    d->warming.started_us = d->warming.open++ == 0 ? now_us : d->warming.started_us;
    sched_submit_background(d->sched, now_us, &submit, document->is_pinned);
    deliver(d);
}

static void
pin(struct kvasird *d, struct corpus_document *document, uint64_t now_us)
{
    uint64_t ends_us = document->pin_ends_us;
    enum status st =
        sched_pin(d->sched, now_us, &document->key, ends_us == 0 ? 0 : ends_us - now_us);

    corpus_pinned(document, st == ST_OK);
    if (st != ST_OK && !d->warming.has_warned) {
        log_warn("pin_refused", "document=%llu detail=\"%s\", ignoring this and more of them",
                 (unsigned long long)document->number, status_detail());
        d->warming.has_warned = true;
    }
}

void
corpus_pump(struct kvasird *d)
{
    uint64_t now_us = clock_now_us();
    struct corpus_document *document;
    enum corpus_task task;

    for (uint32_t i = 0; i < PUMP_TASKS_MAX; i++) {
        document = corpus_next(d->corpus, sched_pool(d->sched), now_us,
                               sched_background_room(d->sched) > 0, &task);
        if (document == NULL) {
            break;
        }
        if (task == CORPUS_PIN) {
            pin(d, document, now_us);
        } else {
            start_build(d, document, now_us);
        }
    }
    if (now_us >= d->warming.look_again_us) {
        d->warming.look_again_us = now_us + LOOK_AGAIN_US;
        corpus_look_again(d->corpus);
    }
}

bool
corpus_take_end(struct kvasird *d, const struct sched_action *action)
{
    struct warming *warming = &d->warming;
    uint64_t now_us = clock_now_us();
    uint64_t number = action->request & ~CORPUS_ID;
    struct corpus_document *document;

    if ((action->request & CORPUS_ID) == 0) {
        return false;
    }
    document = corpus_find_number(d->corpus, number);
    if (--warming->open == 0) {
        warming->busy_us += now_us - warming->started_us;
    }
    if (action->end == SCHED_END_OK && action->session != NULL) {
        warming->tokens += action->usage.tokens_built;
    }
    if (warming->busy_us > RATE_US) {
        warming->busy_us /= 2;
        warming->tokens /= 2;
    }
    corpus_ended(d->corpus, number,
                 action->end == SCHED_END_OK           ? CORPUS_RESIDENT
                 : action->end == SCHED_END_NEVER_FITS ? CORPUS_NO_ROOM
                                                       : CORPUS_WAITING);
    if (document != NULL && document->is_pinned && action->end == SCHED_END_OK) {
        corpus_look_again(d->corpus); /* the pin comes with the next look */
    }
    return true;
}

/* --- telling ---------------------------------------------------------------------------------- */

static void
fill_document(Kvasir__V1__CorpusDocument *wire, const struct corpus_document *document,
              const struct kvpool *pool, uint64_t now_us)
{
    const struct kvpool_doc *doc = pool == NULL ? NULL : kvpool_find(pool, &document->key);
    uint32_t tokens = tokens_count(document->tokens);
    uint32_t resident = doc == NULL ? 0 : kvpool_doc_tokens_ready(doc);

    kvasir__v1__corpus_document__init(wire);
    wire->has_number = wire->has_key = wire->has_tokens = wire->has_tokens_resident = true;
    wire->has_weight = wire->has_is_pinned = true;
    wire->number = document->number;
    wire->id = document->id;
    wire->version = (char *)(uintptr_t)document->version; /* only packed */
    wire->key.len = DOCKEY_BYTES;
    wire->key.data = (uint8_t *)(uintptr_t)document->key.bytes;
    wire->tokens = tokens;
    wire->tokens_resident = resident;
    wire->weight = document->weight;
    wire->is_pinned = document->is_pinned;
    wire->has_pin_left_ms = document->pin_ends_us > now_us;
    wire->pin_left_ms =
        document->pin_ends_us > now_us ? (document->pin_ends_us - now_us) / 1000 : 0;
    wire->state = (char *)(uintptr_t)(resident == tokens ? corpus_state_name(CORPUS_RESIDENT)
                                      : document->state == CORPUS_RESIDENT
                                          ? corpus_state_name(CORPUS_WAITING)
                                          : corpus_state_name(document->state));
}

static void
fill_summary(const struct kvasird *d, Kvasir__V1__CorpusReply *reply)
{
    struct corpus_summary sum = corpus_summary(d->corpus, sched_pool(d->sched));

    reply->has_count = reply->has_tokens = reply->has_count_resident = true;
    reply->has_tokens_resident = reply->has_count_waiting = reply->has_tokens_waiting = true;
    reply->has_count_pinned = reply->has_count_no_room = true;
    reply->count = sum.count;
    reply->tokens = sum.tokens;
    reply->count_resident = sum.count_resident;
    reply->tokens_resident = sum.tokens_resident;
    reply->count_waiting = sum.count_waiting;
    reply->tokens_waiting = sum.tokens_waiting;
    reply->count_pinned = sum.count_pinned;
    reply->count_no_room = sum.count_no_room;
    if (d->warming.busy_us > 0 && d->warming.tokens > 0) {
        reply->has_tokens_per_s = reply->has_eta_ms = true;
        reply->tokens_per_s = (double)d->warming.tokens * 1e6 / (double)d->warming.busy_us;
        reply->eta_ms = (uint64_t)((double)sum.tokens_waiting * 1e3 / reply->tokens_per_s);
    }
}

/* The documents of a page, of one scope or of all; how many. */
static size_t
fill_page(const struct kvasird *d, uint64_t after, size_t limit, const struct dockey *scope,
          Kvasir__V1__CorpusDocument *wires, Kvasir__V1__CorpusDocument **list)
{
    const struct corpus_document *document = NULL;
    uint64_t now_us = clock_now_us();
    size_t count = 0;

    while (count < limit && (document = corpus_walk(d->corpus, document)) != NULL) {
        bool is_ours = scope == NULL || memcmp(&document->scope, scope, sizeof(*scope)) == 0;

        if (document->number > after && is_ours) {
            fill_document(&wires[count], document, sched_pool(d->sched), now_us);
            list[count] = &wires[count];
            count++;
        }
    }
    return count;
}

void
corpus_describe(struct kvasird *d, struct call *call, const Kvasir__V1__CorpusRequest *request)
{
    Kvasir__V1__CorpusReply reply = KVASIR__V1__CORPUS_REPLY__INIT;
    size_t limit = request->has_limit ? request->limit : LIST_LIMIT;
    struct service_scope whose;
    struct dockey scope;
    bool is_scoped = service_scope(d, call, request->has_salt, request->salt, &whose);
    enum status st = registry_name(&whose.registry, "", &scope);
    Kvasir__V1__CorpusDocument *wires, **list;

    if (st != ST_OK) {
        deliver_reply(d, call, rpc_code_of(st), status_detail(), SCHED_RETRY_AFTER_MS, NULL, true);
        return;
    }
    if (limit > LIST_LIMIT_MAX) {
        (void)ERR(ST_INVALID, "limit is %zu: at most %d", limit, LIST_LIMIT_MAX);
        deliver_reply(d, call, RPC_INVALID_ARGUMENT, status_detail(), 0, NULL, true);
        return;
    }
    limit = request->with_documents ? limit : 0;
    wires = mem_zalloc(limit, sizeof(*wires));
    list = mem_zalloc(limit, sizeof(Kvasir__V1__CorpusDocument *));
    if (wires == NULL || list == NULL) {
        deliver_reply(d, call, RPC_RESOURCE_EXHAUSTED, "no memory for the list",
                      SCHED_RETRY_AFTER_MS, NULL, true);
    } else {
        if (call->tenant[0] == '\0') {
            fill_summary(d, &reply); /* of all tenants */
        }
        reply.n_documents =
            fill_page(d, request->after, limit, is_scoped ? &scope : NULL, wires, list);
        reply.documents = list;
        deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
    }
    mem_free(wires);
    mem_free(list);
}

void
corpus_warm(struct kvasird *d, struct call *call, const struct dockey *key,
            const Kvasir__V1__DocumentRef *ref)
{
    Kvasir__V1__Empty empty = KVASIR__V1__EMPTY__INIT;
    struct tokens *tokens = memo_find(d->reader.registered, MEMO_DOCUMENT, key);
    struct prompt_document document = {.key = *key, .tokens = tokens};
    struct registration registration = {
        .weight = ref->has_weight ? ref->weight : 1.0,
        .name = *key,
    };
    struct service_scope whose;
    bool is_unchanged;
    enum status st;

    (void)service_scope(d, call, ref->has_salt, ref->salt, &whose);
    st = registry_name(&whose.registry, "", &registration.scope);
    if (tokens == NULL) {
        st = ERR(ST_NOT_FOUND, "the document is not registered");
    } else if (!(isfinite(registration.weight) && registration.weight > 0)) {
        st = ERR(ST_INVALID, "weight is %g: it must be above 0", registration.weight);
    }
    if (st == ST_OK) {
        st = corpus_register(d, &document, &registration, &is_unchanged);
    }

    deliver_reply(d, call, rpc_code_of(st), st == ST_OK ? NULL : status_detail(), 0, &empty.base,
                  true);
    tokens_release(&tokens);
}
