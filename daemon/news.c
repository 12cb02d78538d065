/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/news.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/kvasird.h"

#define EVENT_BYTES  48
#define DETAIL_BYTES 512

struct item {
    uint64_t time_us;
    enum log_level level;
    bool is_document;
    char event[EVENT_BYTES];
    char detail[DETAIL_BYTES];
};

struct listener {
    uint64_t call;
    enum log_level level;
    bool with_documents;
};

struct news {
    struct kvpool_watch watch;
    const struct kvpool_watch *next;
    struct listener listeners[NEWS_LISTENERS_MAX];
    size_t listener_count;
    bool wants_documents; /* one of them does */

    pthread_mutex_t lock; /* over the items */
    struct item items[NEWS_ITEMS_MAX];
    size_t item_count;
    uint64_t dropped; /* for want of room */
};

/* --- what happens ----------------------------------------------------------------------------- */

static void
add(struct news *news, enum log_level level, bool is_document, const char *event,
    const char *detail)
{
    (void)pthread_mutex_lock(&news->lock);
    if (news->item_count == NEWS_ITEMS_MAX) {
        news->dropped++;
    } else {
        struct item *item = &news->items[news->item_count++];

        item->time_us = clock_wall_us();
        item->level = level;
        item->is_document = is_document;
        (void)snprintf(item->event, sizeof(item->event), "%s", event);
        (void)snprintf(item->detail, sizeof(item->detail), "%s", detail);
    }
    (void)pthread_mutex_unlock(&news->lock);
}

static void
on_log(void *arg, enum log_level level, const char *event, const char *detail)
{
    add(arg, level, false, event, detail);
}

static void
add_document(struct news *news, const char *event, const struct dockey *key, uint32_t first,
             uint32_t count)
{
    char detail[2 * DOCKEY_BYTES + 64];
    int length;

    if (!news->wants_documents) {
        return;
    }
    length = snprintf(detail, sizeof(detail), "first_block=%u blocks=%u key=", first, count);
    for (int i = 0; i < DOCKEY_BYTES; i++, length += 2) {
        (void)snprintf(detail + length, sizeof(detail) - (size_t)length, "%02x", key->bytes[i]);
    }
    add(news, LOG_LEVEL_INFO, true, event, detail);
}

static void
on_stored(void *arg, const struct dockey *key, uint32_t first, uint32_t count, const uint32_t *ids)
{
    struct news *news = arg;

    add_document(news, "document_stored", key, first, count);
    if (news->next != NULL) {
        news->next->stored(news->next->arg, key, first, count, ids);
    }
}

static void
on_removed(void *arg, const struct dockey *key, uint32_t first, uint32_t count)
{
    struct news *news = arg;

    add_document(news, "document_removed", key, first, count);
    if (news->next != NULL) {
        news->next->removed(news->next->arg, key, first, count);
    }
}

static void
on_copied(void *arg, const struct dockey *key, uint32_t first, uint32_t count)
{
    struct news *news = arg;

    add_document(news, "document_copied", key, first, count);
    if (news->next != NULL) {
        news->next->copied(news->next->arg, key, first, count);
    }
}

static void
on_uncopied(void *arg, const struct dockey *key, uint32_t first, uint32_t count)
{
    struct news *news = arg;

    add_document(news, "document_copy_removed", key, first, count);
    if (news->next != NULL) {
        news->next->uncopied(news->next->arg, key, first, count);
    }
}

/* --- life ------------------------------------------------------------------------------------- */

enum status
news_new(struct news **news_out)
{
    struct news *news = mem_zalloc(1, sizeof(*news));

    if (news == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for events");
    }
    (void)pthread_mutex_init(&news->lock, NULL);
    news->watch = (struct kvpool_watch){
        .arg = news,
        .stored = on_stored,
        .removed = on_removed,
        .copied = on_copied,
        .uncopied = on_uncopied,
    };
    log_set_tap(on_log, news);
    *news_out = news;
    return ST_OK;
}

void
news_destroy(struct news **news)
{
    if (*news != NULL) {
        log_set_tap_level(-1);
        (void)pthread_mutex_destroy(&(*news)->lock);
        MEM_FREE(*news);
    }
}

const struct kvpool_watch *
news_watch(struct news *news, const struct kvpool_watch *next)
{
    news->next = next;
    return &news->watch;
}

/* --- who listens ------------------------------------------------------------------------------ */

/* Nothing is formatted that nobody would hear. */
static void
set_wishes(struct news *news)
{
    int level = -1;

    news->wants_documents = false;
    for (size_t i = 0; i < news->listener_count; i++) {
        const struct listener *listener = &news->listeners[i];

        level = (int)listener->level > level ? (int)listener->level : level;
        news->wants_documents |= listener->with_documents;
    }
    log_set_tap_level(level);
}

static void
send_item(struct kvasird *d, struct call *call, const struct item *item)
{
    Kvasir__V1__Event event = KVASIR__V1__EVENT__INIT;

    event.has_time_us = true;
    event.time_us = item->time_us;
    event.level = (char *)(uintptr_t)log_level_name(item->level); /* only packed */
    event.event = (char *)(uintptr_t)item->event;
    event.detail = (char *)(uintptr_t)item->detail;
    deliver_reply(d, call, RPC_OK, NULL, 0, &event.base, false);
}

void
news_listen(struct kvasird *d, struct call *call, const Kvasir__V1__EventsRequest *request)
{
    struct news *news = d->news;
    int level = request->level == NULL ? LOG_LEVEL_INFO : log_level_parse(request->level);

    if (level < 0) {
        service_reply_status(d, call, ST_INVALID,
                             "level must be error, warn, info, debug or trace");
    } else if (news->listener_count == NEWS_LISTENERS_MAX) {
        service_reply_status(d, call, ST_NO_MEMORY, "too many listen to events already");
    } else {
        struct item first = {.time_us = clock_wall_us(), .level = (enum log_level)level};

        (void)snprintf(first.event, sizeof(first.event), "listening");
        (void)snprintf(first.detail, sizeof(first.detail), "documents=%d", request->with_documents);
        send_item(d, call, &first); /* from here on nothing is missed */
        news->listeners[news->listener_count++] = (struct listener){
            .call = call->id,
            .level = (enum log_level)level,
            .with_documents = request->with_documents,
        };
        set_wishes(news);
    }
}

/* False: the listener is gone, or his time is over. */
static bool
tell(struct kvasird *d, const struct listener *listener, const struct item *items, size_t count,
     uint64_t now_us)
{
    struct call *call = calls_find(d->calls, listener->call);

    for (size_t i = 0; call != NULL && i < count; i++) {
        if (items[i].level <= listener->level
            && (!items[i].is_document || listener->with_documents)) {
            send_item(d, call, &items[i]);
        }
    }
    if (call != NULL && now_us >= call->deadline_us) {
        deliver_reply(d, call, RPC_DEADLINE_EXCEEDED, "the time is over", 0, NULL, true);
        call = NULL;
    }
    return call != NULL;
}

/* What is logged while we send waits for the next turn, or a listener of level trace would hear of
 * his own replies for ever. */
void
news_flush(struct kvasird *d)
{
    struct news *news = d->news;
    struct item *items = NULL;
    size_t count, kept = 0;
    uint64_t dropped;

    if (news->listener_count == 0) {
        return;
    }
    (void)pthread_mutex_lock(&news->lock);
    count = news->item_count;
    items = mem_dup(news->items, count * sizeof(items[0]));
    dropped = news->dropped;
    news->item_count = news->dropped = 0;
    (void)pthread_mutex_unlock(&news->lock);
    if (items == NULL) {
        dropped += count;
        count = 0;
    }
    for (size_t i = 0; i < news->listener_count; i++) {
        if (tell(d, &news->listeners[i], items, count, clock_now_us())) {
            news->listeners[kept++] = news->listeners[i];
        }
    }
    mem_free(items);
    if (kept != news->listener_count) {
        news->listener_count = kept;
        set_wishes(news);
    }
    if (dropped > 0) {
        log_warn("events_dropped", "count=%llu", (unsigned long long)dropped);
    }
    deliver(d);
}
