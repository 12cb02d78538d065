/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/kv_events.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/msgpack.h"

/* Odd, and far from a multiple of anything: two blocks of one document never have one name. */
#define BLOCK_STEP UINT64_C(0x9e3779b97f4a7c15)

#define BATCH_EVENTS_MAX 4096 /* a whole tier may be adopted in one turn */

struct kv_events {
    struct kv_events_config config;
    struct kvpool_watch watch;
    struct kv_publisher *publisher;
    const char *medium, *tier_medium;
    uint64_t next_number;
    /* Of the batch in hand; where things lie is not known before the batch is handed over. */
    struct pending {
        enum {
            STORED,
            REMOVED,
            COPIED,
            UNCOPIED,
            CLEARED
        } kind;
        struct dockey key;
        uint32_t first, count;
        size_t ids_at; /* in `ids` */
    } * pending;
    size_t pending_count, pending_capacity;
    uint32_t *ids;
    size_t id_count, id_capacity;
    bool has_failed; /* for want of memory */
};

/* A key is a SHA-256 already: any 64 bits of it are as good as a hash. */
uint64_t
kv_events_hash(const struct dockey *key, uint32_t block)
{
    uint64_t head = 0;

    for (int i = 0; i < 8; i++) {
        head = head << 8 | key->bytes[i];
    }
    return head + block * BLOCK_STEP;
}

/* --- collecting ------------------------------------------------------------------------------- */

/* Room for `count` more elements; what grows doubles. */
static void *
reserve(struct kv_events *events, void *old, size_t used, size_t *capacity, size_t count,
        size_t size)
{
    size_t wanted = *capacity == 0 ? 64 : *capacity;
    void *grown;

    while (wanted - used < count) {
        wanted *= 2;
    }
    if (wanted == *capacity) {
        return old;
    }
    grown = mem_realloc(old, wanted, size);
    if (grown == NULL) {
        events->has_failed = true;
        return old;
    }
    *capacity = wanted;
    return grown;
}

static void
add(struct kv_events *events, struct pending event)
{
    events->pending = reserve(events, events->pending, events->pending_count,
                              &events->pending_capacity, 1, sizeof(event));
    if (!events->has_failed) {
        events->pending[events->pending_count++] = event;
    }
}

static void
on_stored(void *arg, const struct dockey *key, uint32_t first, uint32_t count, const uint32_t *ids)
{
    struct kv_events *events = arg;
    size_t id_count = (size_t)count * events->config.block_tokens;

    events->ids = reserve(events, events->ids, events->id_count, &events->id_capacity, id_count,
                          sizeof(ids[0]));
    if (events->has_failed) {
        return;
    }
    for (size_t i = 0; i < id_count; i++) {
        events->ids[events->id_count + i] = ids[i];
    }
    add(events, (struct pending){.kind = STORED,
                                 .key = *key,
                                 .first = first,
                                 .count = count,
                                 .ids_at = events->id_count});
    events->id_count += id_count;
    if (events->id_count >= KV_EVENTS_IDS_MAX) {
        kv_events_flush(events);
    }
}

static void
on_removed(void *arg, const struct dockey *key, uint32_t first, uint32_t count)
{
    add(arg, (struct pending){.kind = REMOVED, .key = *key, .first = first, .count = count});
}

static void
on_copied(void *arg, const struct dockey *key, uint32_t first, uint32_t count)
{
    add(arg, (struct pending){.kind = COPIED, .key = *key, .first = first, .count = count});
}

static void
on_uncopied(void *arg, const struct dockey *key, uint32_t first, uint32_t count)
{
    add(arg, (struct pending){.kind = UNCOPIED, .key = *key, .first = first, .count = count});
}

void
kv_events_clear(struct kv_events *events)
{
    if (events != NULL) {
        add(events, (struct pending){.kind = CLEARED});
    }
}

/* --- writing ---------------------------------------------------------------------------------- */

struct writer {
    struct msgpack out;
    bool is_array;
    uint32_t block_tokens;
    const char *medium, *tier_medium;
};

/* A struct of `count` fields: a map of them, or an array. */
static void
begin(struct writer *w, uint32_t count)
{
    if (w->is_array) {
        msgpack_array(&w->out, count);
    } else {
        msgpack_map(&w->out, count);
    }
}

static void
name(struct writer *w, const char *field)
{
    if (!w->is_array) {
        msgpack_text(&w->out, field);
    }
}

/* The name of its type comes first, as field "type". */
static void
begin_event(struct writer *w, const char *type, uint32_t fields)
{
    begin(w, 1 + fields);
    name(w, "type");
    msgpack_text(&w->out, type);
}

static void
write_hashes(struct writer *w, const struct pending *event)
{
    name(w, "block_hashes");
    msgpack_array(&w->out, event->count);
    for (uint32_t i = 0; i < event->count; i++) {
        msgpack_u64(&w->out, kv_events_hash(&event->key, event->first + i));
    }
}

/* A copy has no tokens: of what is copied they were told when it was stored, as vLLM has it. */
static void
write_stored(struct writer *w, const struct pending *event, const uint32_t *ids)
{
    uint32_t id_count = event->kind == COPIED ? 0 : event->count * w->block_tokens;

    begin_event(w, "BlockStored", 7);
    write_hashes(w, event);
    name(w, "parent_block_hash"); /* a document depends on nothing before it */
    if (event->first == 0) {
        msgpack_nil(&w->out);
    } else {
        msgpack_u64(&w->out, kv_events_hash(&event->key, event->first - 1));
    }
    name(w, "token_ids");
    msgpack_array(&w->out, id_count);
    for (uint32_t i = 0; i < id_count; i++) {
        msgpack_u64(&w->out, ids[i]);
    }
    name(w, "block_size");
    msgpack_u64(&w->out, w->block_tokens);
    name(w, "lora_id");
    msgpack_nil(&w->out);
    name(w, "medium");
    msgpack_text(&w->out, event->kind == COPIED ? w->tier_medium : w->medium);
    name(w, "lora_name");
    msgpack_nil(&w->out);
}

static void
write_event(struct writer *w, const struct pending *event, const uint32_t *ids)
{
    switch (event->kind) {
    case STORED:
    case COPIED: write_stored(w, event, ids + event->ids_at); break;
    case REMOVED:
    case UNCOPIED:
        begin_event(w, "BlockRemoved", 2);
        write_hashes(w, event);
        name(w, "medium");
        msgpack_text(&w->out, event->kind == UNCOPIED ? w->tier_medium : w->medium);
        break;
    case CLEARED: begin_event(w, "AllBlocksCleared", 0); break;
    }
}

void
kv_events_set_media(struct kv_events *events, const char *medium, const char *tier_medium)
{
    events->medium = medium;
    events->tier_medium = tier_medium;
}

/* One batch of events [first, end). */
static void
submit(struct kv_events *events, size_t first, size_t end)
{
    struct writer w = {.is_array = false};

    w.medium = events->medium;
    w.tier_medium = events->tier_medium;
    w.is_array = events->config.is_array;
    w.block_tokens = events->config.block_tokens;
    begin(&w, 3);
    name(&w, "ts");
    msgpack_f64(&w.out, (double)clock_wall_us() / 1e6);
    name(&w, "events");
    msgpack_array(&w.out, (uint32_t)(end - first));
    for (size_t i = first; i < end; i++) {
        write_event(&w, &events->pending[i], events->ids);
    }
    name(&w, "data_parallel_rank");
    msgpack_u64(&w.out, 0);
    if (events->has_failed || w.out.has_failed) {
        msgpack_deinit(&w.out); /* bytes NULL: lost */
    }
    kv_publisher_submit(events->publisher, events->next_number++, w.out.bytes, w.out.length);
}

void
kv_events_flush(struct kv_events *events)
{
    if (events == NULL || (events->pending_count == 0 && !events->has_failed)) {
        return;
    }
    size_t first = 0;

    do { /* also if there is none: a batch that was lost has a number */
        size_t left = events->pending_count - first;
        size_t end = first + (left < BATCH_EVENTS_MAX ? left : BATCH_EVENTS_MAX);

        submit(events, first, end);
        first = end;
    } while (first < events->pending_count);
    events->pending_count = events->id_count = 0;
    events->has_failed = false;
}

/* --- life ------------------------------------------------------------------------------------- */

enum status
kv_events_new(const struct kv_events_config *config, struct kv_events **events_out)
{
    struct kv_events *events = mem_zalloc(1, sizeof(*events));
    enum status st;

    if (events == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for KV events");
    }
    events->config = *config;
    kv_events_set_media(events, "CPU", "HOST");
    events->watch = (struct kvpool_watch){
        .arg = events,
        .stored = on_stored,
        .removed = on_removed,
        .copied = on_copied,
        .uncopied = on_uncopied,
    };
    st = kv_publisher_new(&config->publisher, &events->publisher);
    if (st != ST_OK) {
        kv_events_destroy(&events);
        return st;
    }
    kv_events_clear(events);
    *events_out = events;
    return ST_OK;
}

enum status
kv_events_start(struct kv_events *events, void *context)
{
    return kv_publisher_start(events->publisher, context);
}

void
kv_events_stop(struct kv_events *events)
{
    if (events != NULL) {
        kv_publisher_stop(events->publisher);
    }
}

void
kv_events_destroy(struct kv_events **events)
{
    if (*events != NULL) {
        kv_publisher_destroy(&(*events)->publisher);
        mem_free((*events)->pending);
        mem_free((*events)->ids);
        MEM_FREE(*events);
    }
}

const struct kvpool_watch *
kv_events_watch(const struct kv_events *events)
{
    return events == NULL ? NULL : &events->watch;
}

struct kv_publisher_stats
kv_events_stats(const struct kv_events *events)
{
    return events == NULL ? (struct kv_publisher_stats){0} : kv_publisher_stats(events->publisher);
}
