/* SPDX-License-Identifier: Apache-2.0 */
/* Explain: why each document of a request hit or missed.  The reason was noted when the request was
 * admitted; for a miss the pool is asked, now, which other document begins most like this one: a
 * text that differs in a word or a date is the commonest cause of "it never hits". */
#include "daemon/kvasird.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/mem.h"
#include "daemon/trace.h"

#define WHY_BYTES  192
#define TEXT_BYTES (KVPOOL_ALIKE_IDS * DETOKENIZER_OUT_MAX + DETOKENIZER_OUT_MAX)

struct explanation {
    Kvasir__V1__DocumentExplanation wire;
    Kvasir__V1__DocumentUsage found;
    struct kvpool_alike alike;
    char why[WHY_BYTES];
    char here[TEXT_BYTES], there[TEXT_BYTES];
};

static const char *
end_name(enum sched_end end)
{
    switch (end) {
    case SCHED_END_OK: return "ok";
    case SCHED_END_CANCELLED: return "cancelled";
    case SCHED_END_DEADLINE: return "deadline";
    case SCHED_END_NEVER_FITS: return "never_fits";
    case SCHED_END_FULL: return "full";
    case SCHED_END_DRAINING: return "draining";
    case SCHED_END_FAILED: return "failed";
    case SCHED_END_QUARANTINED: return "quarantined";
    case SCHED_END_NO_MEMORY: return "no_memory";
    case SCHED_END_DAMAGED: return "damaged";
    }
    return "unknown";
}

static const char *
reason_text(enum kvpool_miss reason)
{
    static const char *const texts[KVPOOL_MISS_REASONS] = {
        [KVPOOL_HIT] = "it was there whole",
        [KVPOOL_MISS_COLD] = "these tokens had not been asked for, or too long ago to remember",
        [KVPOOL_MISS_EVICTED] = "it had been there, and was evicted to make room",
        [KVPOOL_MISS_PARTIAL] = "its head was there, its tail had been evicted",
        [KVPOOL_MISS_BUILDING] = "another request was encoding it, and this one waited for that",
        [KVPOOL_MISS_ABANDONED] = "its last encoding was stopped, or lost with a worker",
        [KVPOOL_MISS_FORGOTTEN] = "somebody had it forgotten",
        [KVPOOL_MISS_DAMAGED] =
            "its memory was not what had been written there, and it was dropped",
    };

    return reason < KVPOOL_MISS_REASONS ? texts[reason] : "unknown";
}

static void
say_why(const struct recent_request *request, const struct recent_document *document,
        struct explanation *e)
{
    const char *text = reason_text(document->reason);

    if (!request->is_admitted) {
        text = "the request ended before the pool was looked into";
    } else if (document->tokens == 0) {
        text = "it has no tokens";
    } else if (request->reuse == REUSE_NONE) {
        text = "mode none computes every document again";
    } else if (document->is_copied) {
        text = "it was there, at another place: a copy was made";
    }
    (void)snprintf(e->why, sizeof(e->why), "%s", text);
    e->wire.why = e->why;
}

static size_t
put_text(const struct kvasird *d, const uint32_t *ids, uint32_t count, char text[TEXT_BYTES])
{
    struct detokenizer state = {0};
    size_t length = 0;

    for (uint32_t i = 0; i < count; i++) {
        length += ids[i] < d->reader.vocab_size
                      ? detokenizer_push(d->reader.tokenizer, &state, ids[i], text + length)
                      : 0;
    }
    return length + detokenizer_finish(&state, text + length);
}

/* The same tokens under another key: of another tenant or salt, or at another place of a prompt. */
static void
compare(const struct kvasird *d, struct explanation *e)
{
    Kvasir__V1__DocumentExplanation *wire = &e->wire;
    const struct kvpool_alike *alike = &e->alike;

    wire->has_nearest_key = wire->has_nearest_tokens = wire->has_first_difference = true;
    wire->nearest_key.data = e->alike.key.bytes;
    wire->nearest_key.len = DOCKEY_BYTES;
    wire->nearest_tokens = alike->n_tokens;
    wire->first_difference = alike->first_difference;
    wire->has_here_text = wire->has_nearest_text = true;
    wire->here_text.data = (uint8_t *)e->here;
    wire->here_text.len = put_text(d, alike->here, alike->here_count, e->here);
    wire->nearest_text.data = (uint8_t *)e->there;
    wire->nearest_text.len = put_text(d, alike->there, alike->there_count, e->there);
    if (alike->first_difference == wire->found->tokens && alike->n_tokens == wire->found->tokens) {
        (void)snprintf(e->why, sizeof(e->why),
                       "the same tokens are there under another key: of another salt or tenant, or "
                       "at another place of a prompt");
    }
}

static void
explain_document(const struct kvasird *d, const struct recent_request *request, uint32_t index,
                 struct explanation *e)
{
    const struct recent_document *document = &request->documents[index];
    const struct kvpool *pool = sched_pool(d->sched);
    const struct kvpool_doc *doc = pool == NULL ? NULL : kvpool_find(pool, &document->key);

    kvasir__v1__document_explanation__init(&e->wire);
    kvasir__v1__document_usage__init(&e->found);
    e->wire.found = &e->found;
    e->found.has_index = e->found.has_key = e->found.has_tokens = e->found.has_tokens_reused = true;
    e->found.index = index;
    e->found.id = document->name;
    e->found.key.data = (uint8_t *)(uintptr_t)document->key.bytes; /* only packed */
    e->found.key.len = DOCKEY_BYTES;
    e->found.tokens = document->tokens;
    e->found.tokens_reused = document->tokens_reused;
    e->found.miss_reason =
        (char *)(uintptr_t)(!request->is_admitted          ? "unknown"
                            : request->reuse == REUSE_NONE ? "recomputed"
                            : document->is_copied          ? "copied"
                                                           : service_miss_name(document->reason));
    e->wire.has_tokens_resident = true;
    e->wire.tokens_resident = doc == NULL ? 0 : kvpool_doc_tokens_ready(doc);
    say_why(request, document, e);
    if (request->is_admitted && document->reason == KVPOOL_MISS_COLD && !document->is_copied
        && request->reuse != REUSE_NONE && doc != NULL
        && kvpool_most_alike(pool, &document->key, &e->alike)) {
        compare(d, e);
    }
}

static void
fill_times(const struct recent_request *request, Kvasir__V1__Usage *usage, Kvasir__V1__Trace *trace)
{
    struct call call = {.arrival_us = request->arrival_us, .trace = request->trace};

    trace_fill(&call, trace);
    deliver_fill_usage(usage, &request->usage);
    usage->has_reuse = usage->has_request = true;
    usage->reuse = (Kvasir__V1__ReuseMode)(request->reuse + 1);
    usage->request = request->id;
    usage->trace = trace;
}

static void
reply(struct kvasird *d, struct call *call, const struct recent_request *request)
{
    Kvasir__V1__ExplainReply wire = KVASIR__V1__EXPLAIN_REPLY__INIT;
    Kvasir__V1__Usage usage = KVASIR__V1__USAGE__INIT;
    Kvasir__V1__Trace trace;
    uint32_t count = request->document_count;
    struct explanation *items = mem_zalloc(count, sizeof(*items));
    Kvasir__V1__DocumentExplanation **list =
        mem_zalloc(count, sizeof(Kvasir__V1__DocumentExplanation *));

    if (items == NULL || list == NULL) {
        service_reply_status(d, call, ST_NO_MEMORY, "no memory for the reply");
    } else {
        for (uint32_t i = 0; i < count; i++) {
            explain_document(d, request, i, &items[i]);
            list[i] = &items[i].wire;
        }
        wire.has_id = wire.has_ended_ms_ago = true;
        wire.id = request->id;
        wire.end = (char *)(uintptr_t)end_name(request->end); /* only packed */
        wire.message = request->end == SCHED_END_OK ? NULL : (char *)(uintptr_t)request->message;
        wire.ended_ms_ago = (clock_now_us() - request->ended_us) / 1000;
        fill_times(request, &usage, &trace);
        wire.usage = &usage;
        wire.n_documents = count;
        wire.documents = list;
        deliver_reply(d, call, RPC_OK, NULL, 0, &wire.base, true);
    }
    mem_free(items);
    mem_free(list);
}

void
explain_call(struct kvasird *d, struct call *call, const Kvasir__V1__ExplainRequest *request)
{
    const struct recent_request *found =
        request->has_id ? recent_find(&d->recent, request->id) : recent_last(&d->recent);

    if (found == NULL) {
        (void)(request->has_id
                   ? ERR(ST_NOT_FOUND, "request %" PRIu64 " is not among the last %d that ended",
                         request->id, RECENT_REQUESTS_MAX)
                   : ERR(ST_NOT_FOUND, "no request has ended yet"));
        service_reply_status(d, call, ST_NOT_FOUND, status_detail());
    } else {
        reply(d, call, found);
    }
}
