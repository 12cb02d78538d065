/* SPDX-License-Identifier: Apache-2.0 */
/* Documents.Forget: texts and registration go here, KV in the scheduler (sched_forget.c).
 *
 * A Register that came before a Forget may be read after it: then it is answered, and registers
 * nothing (forget_registered).  What it is to register may be what the Forget means, by a name for
 * one: then the Forget waits until it has been read. */
#include "daemon/kvasird.h"

#include <inttypes.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/corpus.h"
#include "daemon/offer.h"

#include "kvasir/v1/documents.pb-c.h"

/* Its registration goes, under whatever name, and its ids as a known text.  Others' registrations
 * of the same ids stay, and the texts are not counted, since they are everybody's: the count must
 * not tell what others have sent.  What was never registered may be known as a text too, but nobody
 * knows which; those go as they are used least. */
static uint32_t
forget_texts(struct kvasird *d, const struct dockey *key)
{
    struct tokens *tokens = memo_find(d->reader.registered, MEMO_DOCUMENT, key);

    if (tokens != NULL) {
        (void)memo_forget_ids(d->reader.memo, tokens);
        tokens_release(&tokens);
    }
    return registry_forget(d->reader.registered, key) + corpus_forget(d->corpus, key);
}

static void
fill(struct kvasird *d, Kvasir__V1__ForgetReply *reply, const struct sched_forgotten *forgotten)
{
    reply->has_blocks = reply->has_bytes = reply->has_copies = reply->has_remnants = true;
    reply->has_host_blocks = reply->has_readers_waited = reply->has_readers_aborted = true;
    reply->has_elapsed_us = true;
    reply->blocks = forgotten->blocks;
    reply->bytes = forgotten->blocks * handoff_arenas(d->handoff)->block_bytes;
    reply->copies = forgotten->documents;
    reply->remnants = forgotten->remnants;
    reply->host_blocks = forgotten->host_blocks;
    reply->readers_waited = forgotten->readers_waited;
    reply->readers_aborted = forgotten->readers_aborted;
    reply->elapsed_us = forgotten->elapsed_us;
}

static enum status
read_key(struct kvasird *d, const struct call *call, const Kvasir__V1__ForgetRequest *request,
         struct dockey *key_out)
{
    Kvasir__V1__DocumentRef ref = KVASIR__V1__DOCUMENT_REF__INIT;

    ref.has_key = request->has_key;
    ref.key = request->key;
    ref.id = request->id;
    ref.has_salt = request->has_salt;
    ref.salt = request->salt;
    return service_read_ref(d, call, &ref, key_out);
}

static void
forget(struct kvasird *d, struct call *call, const struct dockey *key, bool abort)
{
    Kvasir__V1__ForgetReply reply = KVASIR__V1__FORGET_REPLY__INIT;
    uint64_t id = call->id; /* a lost client's call ends while others are told */
    uint32_t texts = 0;
    enum status st;

    sched_read_until(d->sched, clock_now_us(), ingest_oldest(d->ingest));
    deliver(d);
    st = sched_forget(d->sched, clock_now_us(), id, key, abort);
    /* What is refused is asked for again, by a name that must still mean something then. */
    if (st == ST_OK || st == ST_NOT_FOUND || st == ST_UNAVAILABLE) {
        texts = forget_texts(d, key);
    }
    call->texts_forgotten = texts;
    if (st == ST_OK && sched_is_forgetting(d->sched, id)) {
        deliver(d);
        return;
    }
    deliver(d); /* perhaps it was erased at once, and told */
    call = calls_find(d->calls, id);
    if (call == NULL) {
        return;
    }
    if (st != ST_OK && texts == 0) {
        service_reply_status(d, call, st, status_detail());
        return;
    }
    fill(d, &reply, &(struct sched_forgotten){0});
    reply.has_texts = true;
    reply.texts = texts;
    deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
}

/* --- Registers that came before --------------------------------------------------------------- */

/* A Forget whose meaning they may change. */
struct waiting {
    struct list_node link; /* in d->forgets */
    uint64_t call;
    uint32_t registers;           /* that came before it and have not been read */
    char tenant[TENANT_NAME_MAX]; /* theirs; "": any */
    struct frames payload;        /* one */
};

/* Until all Registers of its tenant that are here by now have been read. */
static enum status
wait_for_registers(struct kvasird *d, const struct call *call, uint32_t registers,
                   const struct message *message)
{
    struct waiting *waiting = mem_zalloc(1, sizeof(*waiting));

    if (waiting == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for a call that waits");
    }
    list_init(&waiting->link);
    waiting->call = call->id;
    waiting->registers = registers;
    memcpy(waiting->tenant, call->tenant, sizeof(waiting->tenant));
    frames_take(message->frames, message->frames->count - 1, &waiting->payload);
    list_push_back(&d->forgets, &waiting->link);
    return ST_OK;
}

static void
end_waiting(struct waiting *waiting)
{
    list_unlink(&waiting->link);
    frames_close(&waiting->payload);
    mem_free(waiting);
}

void
forget_call(struct kvasird *d, struct call *call, const Kvasir__V1__ForgetRequest *request,
            const struct message *message)
{
    uint32_t registers =
        message == NULL ? 0 : ingest_count(d->ingest, METHOD_REGISTER, call->tenant);
    struct dockey key;
    enum status st = read_key(d, call, request, &key);

    if ((st == ST_NOT_FOUND || request->id != NULL || sched_pool(d->sched) == NULL)
        && registers > 0) {
        st = wait_for_registers(d, call, registers, message);
        if (st == ST_OK) {
            return;
        }
    }
    if (st != ST_OK) {
        service_reply_status(d, call, st, status_detail());
        return;
    }
    forget(d, call, &key, request->abort);
}

/* All that it waited for has been read. */
static void
go_on(struct kvasird *d, struct waiting *waiting)
{
    struct call *call = calls_find(d->calls, waiting->call);
    const ProtobufCMessage *request;

    if (call == NULL) {
        return; /* cancelled meanwhile */
    }
    wire_arena_reset(d->arena);
    call->is_in_hand = true;
    enum status st = wire_unpack(
        d->arena, method_get(METHOD_FORGET)->request, frames_bytes(&waiting->payload, 0),
        frames_length(&waiting->payload, 0), WIRE_ADMIN_BYTES_MAX, &request);

    if (st == ST_OK) {
        forget_call(d, call, (const Kvasir__V1__ForgetRequest *)request, NULL);
    } else {
        service_reply_status(d, call, st, status_detail());
    }
    service_let_go(d, waiting->call);
}

void
forget_after(struct kvasird *d, const struct ingest_job *job)
{
    LIST_FOR_EACH_SAFE(node, &d->forgets)
    {
        struct waiting *waiting = LIST_ENTRY(node, struct waiting, link);

        if (job->method != METHOD_REGISTER || job->call > waiting->call
            || (waiting->tenant[0] != '\0' && strcmp(waiting->tenant, job->tenant) != 0)) {
            continue;
        }
        if (--waiting->registers == 0) {
            go_on(d, waiting);
            end_waiting(waiting);
        }
    }
}

bool
forget_registered(struct kvasird *d, const struct call *call,
                  const struct prompt_document *document)
{
    uint64_t id = sched_forgotten_after(d->sched, call->id, &document->key);
    struct call *forget = id == 0 ? NULL : calls_find(d->calls, id);

    if (id != 0) {
        (void)memo_forget_ids(d->reader.memo, document->tokens);
    }
    if (forget != NULL) {
        forget->texts_forgotten++;
    }
    return id != 0;
}

uint32_t
forget_count_waiting(const struct kvasird *d)
{
    uint32_t count = 0;

    LIST_FOR_EACH(node, &d->forgets)
    {
        count++;
    }
    return count;
}

void
forget_deinit(struct kvasird *d)
{
    LIST_FOR_EACH_SAFE(node, &d->forgets)
    {
        end_waiting(LIST_ENTRY(node, struct waiting, link));
    }
}

/* --- the end ---------------------------------------------------------------------------------- */

void
forget_reply(struct kvasird *d, const struct sched_action *action)
{
    Kvasir__V1__ForgetReply reply = KVASIR__V1__FORGET_REPLY__INIT;
    struct call *call = calls_find(d->calls, action->request);
    char key[2 * DOCKEY_BYTES + 1];

    if (action->forgotten.is_unknown && (call == NULL || call->texts_forgotten == 0)) {
        if (call != NULL) {
            service_reply_status(d, call, ST_NOT_FOUND, "document is not in the pool");
        }
        return;
    }
    dockey_hex(&action->forgotten.key, DOCKEY_BYTES, key);
    log_info("document_erased",
             "document=%s blocks=%" PRIu32 " copies=%" PRIu32 " remnants=%" PRIu32
             " readers_waited=%" PRIu32 " readers_aborted=%" PRIu32 " elapsed_ms=%" PRIu64,
             key, action->forgotten.blocks, action->forgotten.documents, action->forgotten.remnants,
             action->forgotten.readers_waited, action->forgotten.readers_aborted,
             action->forgotten.elapsed_us / 1000);
    if (call != NULL) {
        fill(d, &reply, &action->forgotten);
        reply.has_texts = true;
        reply.texts = call->texts_forgotten;
        deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
    }
}
