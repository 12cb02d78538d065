/* SPDX-License-Identifier: Apache-2.0 */
/* Documents.Forget: texts and registration go here, KV in the scheduler (sched_forget.c). */
#include "daemon/kvasird.h"

#include <inttypes.h>

#include "common/clock.h"
#include "common/log.h"
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

void
forget_call(struct kvasird *d, struct call *call, const Kvasir__V1__ForgetRequest *request)
{
    Kvasir__V1__DocumentRef ref = KVASIR__V1__DOCUMENT_REF__INIT;
    Kvasir__V1__ForgetReply reply = KVASIR__V1__FORGET_REPLY__INIT;
    struct dockey key;

    ref.has_key = request->has_key;
    ref.key = request->key;
    ref.id = request->id;
    ref.has_salt = request->has_salt;
    ref.salt = request->salt;
    enum status st = service_read_ref(d, call, &ref, &key);

    if (st != ST_OK) {
        service_reply_status(d, call, st, status_detail());
        return;
    }
    uint64_t id = call->id; /* a lost client's call ends while others are told */
    uint32_t texts = 0;

    sched_read_until(d->sched, clock_now_us(), ingest_oldest(d->ingest));
    deliver(d);
    st = sched_forget(d->sched, clock_now_us(), id, &key, request->abort);
    /* What is refused is asked for again, by a name that must still mean something then. */
    if (st == ST_OK || st == ST_NOT_FOUND || st == ST_UNAVAILABLE) {
        texts = forget_texts(d, &key);
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
