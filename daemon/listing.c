/* SPDX-License-Identifier: Apache-2.0 */
/* What is told about documents: Get and List. */
#include "daemon/kvasird.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/mem.h"
#include "kvpool/tier.h"

#include "kvasir/v1/documents.pb-c.h"

#define LIST_LIMIT_DEFAULT 1000
#define LIST_LIMIT_MAX     10000
#define LIST_PART          512 /* documents that a turn of the loop looks at */

static const char *
state_of(const struct kvpool_doc_info *info)
{
    if (info->is_building) {
        return "building";
    }
    if (info->tokens_ready == 0) {
        return info->blocks_copied > 0 ? "host" : "absent";
    }
    return info->tokens_ready == info->n_tokens ? "sealed" : "partial";
}

static void
fill_info(Kvasir__V1__DocumentInfo *wire, const struct kvpool_doc_info *info, const char *state)
{
    kvasir__v1__document_info__init(wire);
    wire->has_key = wire->has_tokens = wire->has_tokens_resident = wire->has_blocks = true;
    wire->has_references = wire->has_pins = wire->has_hits = true;
    wire->key.len = DOCKEY_BYTES;
    wire->key.data = (uint8_t *)(uintptr_t)info->key.bytes; /* only packed */
    wire->tokens = info->n_tokens;
    wire->tokens_resident = info->tokens_ready;
    wire->blocks = info->blocks_resident;
    wire->references = info->references;
    wire->pins = info->pins;
    wire->hits = info->hits;
    wire->state = (char *)(uintptr_t)state;
    wire->has_host_blocks = true;
    wire->host_blocks = info->blocks_copied;
}

static void
fill_quarantined(Kvasir__V1__DocumentInfo *wire, const struct sched_blamed *blamed)
{
    struct kvpool_doc_info info = {.key = blamed->key, .n_tokens = blamed->n_tokens};

    fill_info(wire, &info, "quarantined");
    wire->key.data = (uint8_t *)(uintptr_t)blamed->key.bytes; /* outlives `info`; only packed */
    wire->quarantine_reason = (char *)(uintptr_t)blamed->reason;
}

static const struct sched_blamed *
find_quarantined(const struct kvasird *d, const struct dockey *key)
{
    const struct sched_blamed *blamed = NULL;

    while ((blamed = sched_next_quarantined(d->sched, blamed)) != NULL) {
        if (memcmp(blamed->key.bytes, key->bytes, DOCKEY_BYTES) == 0) {
            return blamed;
        }
    }
    return NULL;
}

static bool
find_info(const struct kvasird *d, const struct dockey *key, struct kvpool_doc_info *info_out)
{
    const struct kvpool *pool = sched_pool(d->sched);
    const struct tier *tier;

    if (pool == NULL || kvpool_doc_info(pool, key, info_out)) {
        return pool != NULL;
    }
    tier = kvpool_tier(pool);
    *info_out = (struct kvpool_doc_info){
        .key = *key,
        .n_tokens = tier == NULL ? 0 : tier->ops->tokens(tier, key),
        .blocks_copied = tier == NULL ? 0 : tier->ops->lookup(tier, key),
    };
    return info_out->blocks_copied > 0;
}

static void
fill_pin_end(const struct kvasird *d, Kvasir__V1__DocumentInfo *reply, const struct dockey *key)
{
    uint64_t now_us = clock_now_us(), ends_us = sched_pin_ends_us(d->sched, key);

    reply->has_pin_left_ms = ends_us > now_us;
    reply->pin_left_ms = ends_us > now_us ? (ends_us - now_us) / 1000 : 0;
}

void
listing_get(struct kvasird *d, struct call *call, const struct dockey *key)
{
    Kvasir__V1__DocumentInfo reply;
    struct kvpool_doc_info info;
    struct tokens *tokens = memo_find(d->reader.registered, MEMO_DOCUMENT, key);
    const struct sched_blamed *blamed = find_quarantined(d, key);

    if (blamed != NULL) {
        fill_quarantined(&reply, blamed);
        deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
    } else if (find_info(d, key, &info)) {
        fill_info(&reply, &info, state_of(&info));
        fill_pin_end(d, &reply, key);
        deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
    } else if (tokens != NULL) {
        info = (struct kvpool_doc_info){.key = *key, .n_tokens = tokens_count(tokens)};
        fill_info(&reply, &info, "absent");
        deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
    } else {
        service_reply_status(d, call, ST_NOT_FOUND,
                             "the document is neither resident nor registered");
    }
    tokens_release(&tokens);
}

/* --- List ------------------------------------------------------------------------------------- */

/* All documents are looked at, a part in each turn of the loop: nobody waits for a million of them.
 * Lists are made one after the other. */
struct listing {
    struct list_node link; /* in d->listings */
    uint64_t call;
    struct service_scope scope;
    bool is_scoped;
    int (*compare)(const void *, const void *);
    uint32_t cursor, copies_cursor;
    struct kvpool_doc_info *best; /* [count] heap, the last in the order on top */
    uint32_t limit, count;
    uint64_t total;
};

static int
by_hits(const void *a, const void *b)
{
    const struct kvpool_doc_info *left = a, *right = b;

    return (right->hits > left->hits) - (right->hits < left->hits);
}

static int
by_tokens(const void *a, const void *b)
{
    const struct kvpool_doc_info *left = a, *right = b;

    return (right->n_tokens > left->n_tokens) - (right->n_tokens < left->n_tokens);
}

static int
by_saved(const void *a, const void *b)
{
    const struct kvpool_doc_info *left = a, *right = b;
    uint64_t l = left->hits * left->n_tokens, r = right->hits * right->n_tokens;

    return (r > l) - (r < l);
}

static int
by_key(const void *a, const void *b)
{
    const struct kvpool_doc_info *left = a, *right = b;

    return memcmp(left->key.bytes, right->key.bytes, DOCKEY_BYTES);
}

static bool
is_in_scope(const struct kvasird *d, const struct registry_scope *scope, const struct dockey *key)
{
    struct tokens *tokens = NULL;
    bool is_in = scope == NULL || registry_find(d->reader.registered, scope, key, &tokens) == ST_OK;

    tokens_release(&tokens);
    return is_in;
}

static void
swap(struct kvpool_doc_info *a, struct kvpool_doc_info *b)
{
    struct kvpool_doc_info other = *a;

    *a = *b;
    *b = other;
}

static void
sift_up(struct listing *listing, uint32_t at)
{
    struct kvpool_doc_info *best = listing->best;

    while (at > 0 && listing->compare(&best[at], &best[(at - 1) / 2]) > 0) {
        swap(&best[at], &best[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
}

static void
sift_down(struct listing *listing)
{
    struct kvpool_doc_info *best = listing->best;
    uint32_t at = 0, child = 1;

    while (child < listing->count) {
        child += child + 1 < listing->count && listing->compare(&best[child + 1], &best[child]) > 0;
        if (listing->compare(&best[child], &best[at]) <= 0) {
            return;
        }
        swap(&best[at], &best[child]);
        at = child;
        child = 2 * at + 1;
    }
}

static void
take_info(const struct kvasird *d, struct listing *listing, const struct kvpool_doc_info *info)
{
    if (!is_in_scope(d, listing->is_scoped ? &listing->scope.registry : NULL, &info->key)) {
        return;
    }
    listing->total++;
    if (listing->count < listing->limit) {
        listing->best[listing->count] = *info;
        sift_up(listing, listing->count++);
    } else if (listing->count > 0 && listing->compare(info, &listing->best[0]) < 0) {
        listing->best[0] = *info;
        sift_down(listing);
    }
}

/* False at the end: all documents of the pool, then whatever is in the host tier alone. */
static bool
next_info(const struct kvpool *pool, struct listing *listing, struct kvpool_doc_info *info_out)
{
    const struct tier *tier = pool == NULL ? NULL : kvpool_tier(pool);

    if (pool != NULL && kvpool_next_doc(pool, &listing->cursor, info_out)) {
        return true;
    }
    *info_out = (struct kvpool_doc_info){.n_tokens = 0};
    return tier != NULL
           && tier->ops->next(tier, &listing->copies_cursor, &info_out->key, &info_out->n_tokens,
                              &info_out->blocks_copied);
}

static bool
is_shown(const struct kvpool *pool, const struct kvpool_doc_info *info)
{
    return info->blocks_resident > 0
           || (info->blocks_copied > 0 && kvpool_find(pool, &info->key) == NULL);
}

/* Whoever moved while the list was made may be in it twice. */
static void
drop_repeats(struct listing *listing)
{
    uint32_t kept = 0;

    qsort(listing->best, listing->count, sizeof(listing->best[0]), by_key);
    for (uint32_t i = 0; i < listing->count; i++) {
        if (kept == 0 || by_key(&listing->best[kept - 1], &listing->best[i]) != 0) {
            listing->best[kept++] = listing->best[i];
        }
    }
    listing->total -= listing->count - kept;
    listing->count = kept;
}

static void
send_list(struct kvasird *d, struct call *call, const struct listing *listing)
{
    Kvasir__V1__ListReply reply = KVASIR__V1__LIST_REPLY__INIT;
    const struct kvpool_doc_info *infos = listing->best;
    size_t count = listing->count, listed = count + sched_gauges(d->sched).docs_in_quarantine;
    Kvasir__V1__DocumentInfo *wires = mem_zalloc(listed, sizeof(*wires));
    Kvasir__V1__DocumentInfo **list = mem_zalloc(listed, sizeof(Kvasir__V1__DocumentInfo *));
    const struct sched_blamed *blamed = NULL;
    size_t at = 0;

    if (wires == NULL || list == NULL) {
        service_reply_status(d, call, ST_NO_MEMORY, "no memory for the list");
    } else {
        while ((blamed = sched_next_quarantined(d->sched, blamed)) != NULL) { /* first: an alarm */
            fill_quarantined(&wires[at++], blamed);
        }
        for (size_t i = 0; i < count; i++) {
            fill_info(&wires[at++], &infos[i], state_of(&infos[i]));
        }
        for (size_t i = 0; i < listed; i++) {
            list[i] = &wires[i];
        }
        reply.n_documents = listed;
        reply.documents = list;
        reply.has_total = true;
        reply.total = listing->total;
        deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
    }
    mem_free(wires);
    mem_free(list);
}

static void
end_listing(struct listing *listing)
{
    list_unlink(&listing->link);
    mem_free(listing->best);
    mem_free(listing);
}

void
listing_pump(struct kvasird *d)
{
    struct listing *listing;
    const struct kvpool *pool = sched_pool(d->sched);
    struct kvpool_doc_info info;
    struct call *call;
    int left = LIST_PART;

    if (list_is_empty(&d->listings)) {
        return;
    }
    listing = LIST_ENTRY(d->listings.next, struct listing, link);
    call = calls_find(d->calls, listing->call);
    if (call != NULL && listing->best == NULL) {
        listing->best = mem_zalloc(listing->limit, sizeof(listing->best[0]));
    }
    while (call != NULL && listing->best != NULL && left > 0 && next_info(pool, listing, &info)) {
        left--;
        if (is_shown(pool, &info)) {
            take_info(d, listing, &info);
        }
    }
    if (left == 0) {
        return; /* the next turn goes on */
    }
    if (call != NULL && listing->best == NULL) {
        service_reply_status(d, call, ST_NO_MEMORY, "no memory for the list");
    } else if (call != NULL) {
        drop_repeats(listing);
        qsort(listing->best, listing->count, sizeof(listing->best[0]), listing->compare);
        send_list(d, call, listing);
    }
    end_listing(listing);
}

void
listing_deinit(struct kvasird *d)
{
    LIST_FOR_EACH_SAFE(node, &d->listings)
    {
        end_listing(LIST_ENTRY(node, struct listing, link));
    }
}

void
listing_list(struct kvasird *d, struct call *call, const Kvasir__V1__ListRequest *request)
{
    uint32_t limit = request->has_limit ? request->limit : LIST_LIMIT_DEFAULT;
    const char *order = request->order == NULL ? "hits" : request->order;
    int (*compare)(const void *, const void *) = strcmp(order, "hits") == 0     ? by_hits
                                                 : strcmp(order, "tokens") == 0 ? by_tokens
                                                 : strcmp(order, "saved") == 0  ? by_saved
                                                                                : NULL;
    bool is_only = list_is_empty(&d->listings);
    struct listing *listing;

    if (limit > LIST_LIMIT_MAX) {
        (void)ERR(ST_INVALID, "limit is %u: at most %d", limit, LIST_LIMIT_MAX);
        service_reply_status(d, call, ST_INVALID, status_detail());
        return;
    }
    if (compare == NULL) {
        service_reply_status(d, call, ST_INVALID, "order must be hits, tokens or saved");
        return;
    }
    listing = mem_zalloc(1, sizeof(*listing));
    if (listing == NULL) {
        service_reply_status(d, call, ST_NO_MEMORY, "no memory for the list");
        return;
    }
    listing->call = call->id;
    listing->compare = compare;
    listing->limit = limit;
    listing->cursor = listing->copies_cursor = KVPOOL_WALK;
    listing->is_scoped = service_scope(d, call, false, (ProtobufCBinaryData){0}, &listing->scope);
    list_push_back(&d->listings, &listing->link);
    if (is_only) {
        listing_pump(d);
    }
}
