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
    const struct kvpool_doc *cursor = NULL;
    const struct kvpool *pool = sched_pool(d->sched);

    if (pool == NULL || kvpool_find(pool, key) == NULL) {
        return false;
    }
    while (kvpool_next_doc(pool, &cursor, info_out)) {
        if (memcmp(info_out->key.bytes, key->bytes, DOCKEY_BYTES) == 0) {
            return true;
        }
    }
    return false;
}

/* Whatever is in the host tier and not in the pool, one after the other. */
static bool
next_copy(const struct kvpool *pool, const struct tier_doc **cursor,
          struct kvpool_doc_info *info_out)
{
    const struct tier *tier = kvpool_tier(pool);

    *info_out = (struct kvpool_doc_info){.n_tokens = 0};
    while (tier != NULL
           && tier->ops->next(tier, cursor, &info_out->key, &info_out->n_tokens,
                              &info_out->blocks_copied)) {
        if (info_out->blocks_copied > 0 && kvpool_find(pool, &info_out->key) == NULL) {
            return true;
        }
    }
    return false;
}

static bool
find_copy(const struct kvasird *d, const struct dockey *key, struct kvpool_doc_info *info_out)
{
    const struct tier_doc *cursor = NULL;
    const struct kvpool *pool = sched_pool(d->sched);

    while (pool != NULL && next_copy(pool, &cursor, info_out)) {
        if (memcmp(info_out->key.bytes, key->bytes, DOCKEY_BYTES) == 0) {
            return true;
        }
    }
    return false;
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
    } else if (find_info(d, key, &info) || find_copy(d, key, &info)) {
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

static bool
is_in_scope(const struct kvasird *d, const struct registry_scope *scope, const struct dockey *key)
{
    struct tokens *tokens = NULL;
    bool is_in = scope == NULL || registry_find(d->reader.registered, scope, key, &tokens) == ST_OK;

    tokens_release(&tokens);
    return is_in;
}

/* All documents of both levels, or those that are registered within `scope`. */
static size_t
collect_infos(const struct kvasird *d, const struct registry_scope *scope,
              struct kvpool_doc_info *infos, size_t count_max)
{
    const struct kvpool *pool = sched_pool(d->sched);
    const struct kvpool_doc *cursor = NULL;
    const struct tier_doc *copy = NULL;
    size_t count = 0;

    while (count < count_max && kvpool_next_doc(pool, &cursor, &infos[count])) {
        count += is_in_scope(d, scope, &infos[count].key);
    }
    while (count < count_max && next_copy(pool, &copy, &infos[count])) {
        count += is_in_scope(d, scope, &infos[count].key);
    }
    return count;
}

/* How many there may be. */
static size_t
count_documents(const struct kvpool *pool)
{
    struct kvpool_stats stats;
    struct tier_stats copies = {0};

    if (pool == NULL) {
        return 0;
    }
    kvpool_stats(pool, &stats);
    if (kvpool_tier(pool) != NULL) {
        kvpool_tier(pool)->ops->stat(kvpool_tier(pool), &copies);
    }
    return (size_t)stats.documents + copies.documents;
}

static void
send_list(struct kvasird *d, struct call *call, const struct kvpool_doc_info *infos, size_t count,
          uint64_t total)
{
    Kvasir__V1__ListReply reply = KVASIR__V1__LIST_REPLY__INIT;
    size_t listed = count + sched_gauges(d->sched).docs_in_quarantine;
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
        reply.total = total;
        deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
    }
    mem_free(wires);
    mem_free(list);
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
    struct service_scope scope;
    bool is_scoped = service_scope(d, call, false, (ProtobufCBinaryData){0}, &scope);
    struct kvpool_doc_info *infos;
    size_t count, count_max = count_documents(sched_pool(d->sched));

    if (limit > LIST_LIMIT_MAX) {
        (void)ERR(ST_INVALID, "limit is %u: at most %d", limit, LIST_LIMIT_MAX);
        service_reply_status(d, call, ST_INVALID, status_detail());
        return;
    }
    if (compare == NULL) {
        service_reply_status(d, call, ST_INVALID, "order must be hits, tokens or saved");
        return;
    }
    infos = mem_zalloc(count_max, sizeof(*infos));
    if (infos == NULL) {
        service_reply_status(d, call, ST_NO_MEMORY, "no memory for the list");
        return;
    }
    count =
        count_max == 0 ? 0 : collect_infos(d, is_scoped ? &scope.registry : NULL, infos, count_max);
    qsort(infos, count, sizeof(*infos), compare);
    send_list(d, call, infos, count < limit ? count : limit, count);
    mem_free(infos);
}
