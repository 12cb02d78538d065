/* SPDX-License-Identifier: Apache-2.0 */
/* What operators and the Documents service ask of the pool; each call is one event. */
#include "daemon/sched.h"

#include <string.h>

#include "common/mem.h"
#include "daemon/sched_state.h"

static enum status
check_pool_exists(const struct sched *sched)
{
    return sched->pool == NULL ? ERR(ST_UNAVAILABLE, "no pool yet: no worker has attached") : ST_OK;
}

/* The list is in the order of their ends; most pins come with the same time to live. */
static enum status
note_end(struct sched *sched, const struct dockey *key, uint64_t ends_us)
{
    struct list_node *at = &sched->pins;
    struct pin *pin;

    if (sched->pin_count >= SCHED_PINS_MAX) {
        return ERR(ST_NO_MEMORY, "%u pins have an end: the limit", sched->pin_count);
    }
    pin = mem_zalloc(1, sizeof(*pin));
    if (pin == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for a pin");
    }
    pin->key = *key;
    pin->ends_us = ends_us;
    while (at->prev != &sched->pins && ends_us < LIST_ENTRY(at->prev, struct pin, link)->ends_us) {
        at = at->prev;
    }
    list_insert_before(at, &pin->link);
    sched->pin_count++;
    if (ends_us < sched->wakeup_us) {
        sched->wakeup_us = ends_us;
    }
    return ST_OK;
}

enum status
sched_pin(struct sched *sched, uint64_t now_us, const struct dockey *key, uint64_t ttl_us)
{
    enum status st;

    sched_begin(sched);
    TRY(check_pool_exists(sched));
    TRY(kvpool_pin(sched->pool, key));
    st = ttl_us == 0
             ? ST_OK
             : note_end(sched, key, ttl_us < UINT64_MAX - now_us ? now_us + ttl_us : UINT64_MAX);
    if (st != ST_OK) {
        (void)kvpool_unpin(sched->pool, key); /* it was pinned just now */
    }
    return st;
}

static void
remove_pin(struct sched *sched, struct pin *pin)
{
    list_unlink(&pin->link);
    sched->pin_count--;
    mem_free(pin);
}

static bool
is_of(const struct pin *pin, const struct dockey *key)
{
    return memcmp(pin->key.bytes, key->bytes, DOCKEY_BYTES) == 0;
}

uint64_t
sched_pin_ends_us(const struct sched *sched, const struct dockey *key)
{
    uint64_t ends_us = 0;

    LIST_FOR_EACH(node, &sched->pins)
    {
        const struct pin *pin = LIST_ENTRY(node, struct pin, link);

        ends_us = is_of(pin, key) ? pin->ends_us : ends_us;
    }
    return ends_us;
}

uint64_t
sched_end_pins(struct sched *sched, uint64_t now_us)
{
    while (!list_is_empty(&sched->pins)) {
        struct pin *pin = LIST_ENTRY(sched->pins.next, struct pin, link);

        if (pin->ends_us > now_us) {
            return pin->ends_us;
        }
        if (sched->pool != NULL && kvpool_unpin(sched->pool, &pin->key) == ST_OK) {
            sched->counters.pins_ended++;
            sched->has_news = true;
        }
        remove_pin(sched, pin);
    }
    return UINT64_MAX;
}

void
sched_forget_pins(struct sched *sched)
{
    LIST_FOR_EACH_SAFE(node, &sched->pins)
    {
        remove_pin(sched, LIST_ENTRY(node, struct pin, link));
    }
}

/* The document has no pin any more that could end: an operator's word, or it is forgotten. */
static void
forget_ends(struct sched *sched, const struct dockey *key, bool all)
{
    LIST_FOR_EACH_SAFE(node, &sched->pins)
    {
        struct pin *pin = LIST_ENTRY(node, struct pin, link);

        if (is_of(pin, key)) {
            remove_pin(sched, pin);
            if (!all) {
                return;
            }
        }
    }
}

/* Pins that stay go first: what ends by itself needs no unpinning. */
static bool
has_lasting_pin(const struct sched *sched, const struct dockey *key)
{
    const struct kvpool_doc *doc = kvpool_find(sched->pool, key);
    uint32_t ending = 0;

    LIST_FOR_EACH(node, &sched->pins)
    {
        ending += is_of(LIST_ENTRY(node, struct pin, link), key);
    }
    return doc != NULL && kvpool_doc_pins(doc) > ending;
}

enum status
sched_unpin(struct sched *sched, uint64_t now_us, const struct dockey *key)
{
    sched_begin(sched);
    TRY(check_pool_exists(sched));
    bool is_lasting = has_lasting_pin(sched, key);

    TRY(kvpool_unpin(sched->pool, key));
    if (!is_lasting) {
        forget_ends(sched, key, false);
    }
    sched->has_news = true;
    sched_take_turn(sched, now_us);
    return ST_OK;
}

void
sched_forget_pin_ends(struct sched *sched, const struct dockey *key)
{
    forget_ends(sched, key, true);
}

enum status
sched_prioritize(struct sched *sched, const struct dockey *key, uint32_t priority)
{
    sched_begin(sched);
    TRY(check_pool_exists(sched));
    return kvpool_prioritize(sched->pool, key, priority);
}

uint32_t
sched_evict(struct sched *sched, uint64_t now_us, uint32_t blocks)
{
    uint32_t gone;

    sched_begin(sched);
    if (sched->pool == NULL) {
        return 0;
    }
    gone = kvpool_evict(sched->pool, blocks);
    sched_take_turn(sched, now_us);
    return gone;
}

enum status
sched_evict_document(struct sched *sched, uint64_t now_us, const struct dockey *key,
                     uint32_t blocks, uint32_t *blocks_out)
{
    sched_begin(sched);
    TRY(check_pool_exists(sched));
    TRY(kvpool_evict_doc(sched->pool, key, blocks, blocks_out));
    sched_take_turn(sched, now_us);
    return ST_OK;
}
