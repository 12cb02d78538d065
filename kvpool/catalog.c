/* SPDX-License-Identifier: Apache-2.0 */
#include "kvpool/catalog.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "common/checksum.h"
#include "common/mem.h"
#include "kvpool/kvpool.h"

#define CATALOG_VERSION 4
#define CATALOG_MAGIC   UINT64_C(0x676f6c6174616376) /* "vcatalog" */
#define PAGE            4096

/* Every sealed structure begins with its seal; the checksum is over what follows it. */
struct head {
    _Atomic uint64_t seal;
    uint64_t magic;
    uint64_t version;
    struct catalog_pool pool;
};

struct forget_slot {
    _Atomic uint64_t seal;
    struct dockey document;
    uint64_t is_aborting;
};

struct worker_slot {
    _Atomic uint64_t seal;
    struct catalog_worker worker;
};

struct record_slot {
    _Atomic uint64_t seal;
    _Atomic uint64_t lender; /* not under the seal: facts of their own */
    _Atomic uint64_t held;
    struct catalog_record record;
    uint32_t ids[]; /* [block_tokens] */
};

struct layout {
    struct head head;
    struct forget_slot forgets[CATALOG_FORGETS_MAX]; /* on the head's page, which had room */
    _Alignas(PAGE) struct worker_slot workers[CATALOG_WORKERS_MAX];
    _Alignas(PAGE) uint8_t records[];
};

static_assert(sizeof(struct record_slot) == 96, "mapped by the next kvasird");
static_assert(offsetof(struct layout, workers) == PAGE, "mapped by the next kvasird");
static_assert(sizeof(struct catalog_pool) == 160, "mapped by the next kvasird");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "seals are stored in one piece");

struct catalog {
    struct layout *at;
    size_t record_bytes;
};

/* --- seals ------------------------------------------------------------------------------------ */

/* Binds what is sealed to its pool and its place, so that a record found elsewhere says nothing. */
static uint64_t
seal_of(const struct layout *at, const void *sealed, uint64_t place, size_t bytes)
{
    uint64_t pool;

    memcpy(&pool, at->head.pool.id, sizeof(pool));
    return checksum64(pool ^ (place * UINT64_C(0x94D049BB133111EB)),
                      (const uint8_t *)sealed + sizeof(uint64_t), bytes - sizeof(uint64_t));
}

/* Stores of the fields may not pass those of the seal, in the order in which the dead writer made
 * them: that is all that a reader in a later process needs. */
static void
break_seal(_Atomic uint64_t *seal)
{
    atomic_store_explicit(seal, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

static void
set_seal(_Atomic uint64_t *seal, uint64_t value)
{
    atomic_store_explicit(seal, value, memory_order_release);
}

static uint64_t
get_seal(const _Atomic uint64_t *seal)
{
    return atomic_load_explicit(seal, memory_order_acquire);
}

/* --- the head --------------------------------------------------------------------------------- */

static size_t
record_bytes(uint32_t block_tokens)
{
    return sizeof(struct record_slot) + (size_t)block_tokens * sizeof(uint32_t);
}

size_t
catalog_bytes(const struct catalog_pool *pool)
{
    return sizeof(struct layout) + record_bytes(pool->block_tokens) * pool->block_count;
}

static enum status
make_handle(void *memory, struct catalog **catalog_out)
{
    struct catalog *catalog = mem_zalloc(1, sizeof(*catalog));

    assert((uintptr_t)memory % PAGE == 0);
    if (catalog == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for a catalog");
    }
    catalog->at = memory;
    *catalog_out = catalog;
    return ST_OK;
}

enum status
catalog_format(void *memory, const struct catalog_pool *pool, struct catalog **catalog_out)
{
    struct head *head = &((struct layout *)memory)->head;
    struct catalog *catalog = NULL;

    TRY(make_handle(memory, &catalog));
    catalog->record_bytes = record_bytes(pool->block_tokens);
    head->magic = CATALOG_MAGIC;
    head->version = CATALOG_VERSION;
    head->pool = *pool;
    set_seal(&head->seal, seal_of(catalog->at, head, 0, sizeof(*head)));
    *catalog_out = catalog;
    return ST_OK;
}

static enum status
check_head(const struct layout *at, size_t bytes)
{
    const struct catalog_pool *pool = &at->head.pool;

    if (bytes < sizeof(*at)) {
        return ERR(ST_INVALID, "catalog of %zu bytes: at least %zu", bytes, sizeof(*at));
    }
    if (at->head.magic != CATALOG_MAGIC || at->head.version != CATALOG_VERSION) {
        return ERR(ST_INVALID, "no catalog of version %d", CATALOG_VERSION);
    }
    if (get_seal(&at->head.seal) != seal_of(at, &at->head, 0, sizeof(at->head))) {
        return ERR(ST_INVALID, "the head of the catalog does not verify");
    }
    if (pool->block_count == 0 || pool->block_count > KVPOOL_BLOCKS_MAX || pool->block_tokens == 0
        || pool->block_tokens > PAGE || catalog_bytes(pool) > bytes) {
        return ERR(ST_INVALID,
                   "catalog of %" PRIu32 " blocks of %" PRIu32 " tokens does not fit in %zu bytes",
                   pool->block_count, pool->block_tokens, bytes);
    }
    if (pool->device[CATALOG_DEVICE_BYTES - 1] != '\0'
        || pool->arenas[0].mechanism[CATALOG_MECHANISM_BYTES - 1] != '\0'
        || pool->arenas[1].mechanism[CATALOG_MECHANISM_BYTES - 1] != '\0') {
        return ERR(ST_INVALID, "a name in the catalog has no end");
    }
    return ST_OK;
}

enum status
catalog_open(void *memory, size_t bytes, struct catalog **catalog_out)
{
    struct catalog *catalog = NULL;

    TRY(check_head(memory, bytes));
    TRY(make_handle(memory, &catalog));
    catalog->record_bytes = record_bytes(catalog->at->head.pool.block_tokens);
    *catalog_out = catalog;
    return ST_OK;
}

void
catalog_close(struct catalog **catalog)
{
    MEM_FREE(*catalog);
}

const struct catalog_pool *
catalog_pool(const struct catalog *catalog)
{
    return &catalog->at->head.pool;
}

/* --- blocks ----------------------------------------------------------------------------------- */

static struct record_slot *
slot_of(const struct catalog *catalog, uint32_t block)
{
    assert(block < catalog->at->head.pool.block_count);
    return (struct record_slot *)(void *)(catalog->at->records + block * catalog->record_bytes);
}

/* Lender and held stand between the seal and what it is over. */
static uint64_t
record_seal(const struct catalog *catalog, const struct record_slot *slot, uint32_t block)
{
    size_t skipped = offsetof(struct record_slot, held);

    return seal_of(catalog->at, (const uint8_t *)slot + skipped, block,
                   catalog->record_bytes - skipped);
}

uint32_t
catalog_ids_count(const struct catalog *catalog, const struct catalog_record *record)
{
    uint32_t block_tokens = catalog->at->head.pool.block_tokens;
    uint64_t first = (uint64_t)record->index * block_tokens;
    uint64_t left = first < record->n_tokens ? record->n_tokens - first : 0;

    return left < block_tokens ? (uint32_t)left : block_tokens;
}

void
catalog_write(struct catalog *catalog, uint32_t block, const struct catalog_record *record,
              const uint32_t *ids)
{
    struct record_slot *slot = slot_of(catalog, block);
    size_t ids_bytes = catalog->record_bytes - sizeof(*slot);
    size_t known_bytes = ids == NULL ? 0 : catalog_ids_count(catalog, record) * sizeof(ids[0]);

    break_seal(&slot->seal);
    slot->record = *record;
    if (known_bytes > 0) {
        memcpy(slot->ids, ids, known_bytes);
    }
    memset((uint8_t *)slot->ids + known_bytes, 0, ids_bytes - known_bytes);
}

void
catalog_seal(struct catalog *catalog, uint32_t block, uint32_t origin, uint64_t content)
{
    struct record_slot *slot = slot_of(catalog, block);

    assert(get_seal(&slot->seal) == 0);
    slot->record.origin = origin;
    slot->record.content = content;
    set_seal(&slot->seal, record_seal(catalog, slot, block));
    atomic_store_explicit(&slot->lender, 0, memory_order_release);
}

void
catalog_unseal(struct catalog *catalog, uint32_t block)
{
    break_seal(&slot_of(catalog, block)->seal);
}

void
catalog_lend(struct catalog *catalog, uint32_t block, uint64_t incarnation)
{
    atomic_store_explicit(&slot_of(catalog, block)->lender, incarnation, memory_order_release);
}

uint64_t
catalog_lender(const struct catalog *catalog, uint32_t block)
{
    return atomic_load_explicit(&slot_of(catalog, block)->lender, memory_order_acquire);
}

void
catalog_set_held(struct catalog *catalog, uint32_t block, uint64_t document)
{
    atomic_store_explicit(&slot_of(catalog, block)->held, document, memory_order_release);
}

uint64_t
catalog_held(const struct catalog *catalog, uint32_t block)
{
    return atomic_load_explicit(&slot_of(catalog, block)->held, memory_order_acquire);
}

void
catalog_clear(struct catalog *catalog, uint32_t block)
{
    struct record_slot *slot = slot_of(catalog, block);

    break_seal(&slot->seal);
    atomic_store_explicit(&slot->lender, 0, memory_order_release);
}

void
catalog_erase(struct catalog *catalog, uint32_t block)
{
    catalog_clear(catalog, block);
    memset((char *)slot_of(catalog, block) + offsetof(struct record_slot, record), 0,
           catalog->record_bytes - offsetof(struct record_slot, record));
}

void
catalog_set_pins(struct catalog *catalog, uint32_t block, uint32_t pins)
{
    struct record_slot *slot = slot_of(catalog, block);

    assert(get_seal(&slot->seal) != 0);
    break_seal(&slot->seal);
    slot->record.pins = pins;
    set_seal(&slot->seal, record_seal(catalog, slot, block));
}

void
catalog_set_content(struct catalog *catalog, uint32_t block, uint64_t content)
{
    struct record_slot *slot = slot_of(catalog, block);

    if (get_seal(&slot->seal) == 0) {
        return;
    }
    break_seal(&slot->seal);
    slot->record.content = content;
    set_seal(&slot->seal, record_seal(catalog, slot, block));
}

bool
catalog_read(const struct catalog *catalog, uint32_t block, struct catalog_record *record_out,
             const uint32_t **ids_out)
{
    const struct record_slot *slot = slot_of(catalog, block);
    uint64_t seal = get_seal(&slot->seal);

    if (seal == 0 || seal != record_seal(catalog, slot, block)
        || catalog_ids_count(catalog, &slot->record) == 0) {
        return false;
    }
    *record_out = slot->record;
    if (ids_out != NULL) {
        *ids_out = slot->ids;
    }
    return true;
}

bool
catalog_is_torn(const struct catalog *catalog, uint32_t block)
{
    struct catalog_record record;

    return get_seal(&slot_of(catalog, block)->seal) != 0
           && !catalog_read(catalog, block, &record, NULL);
}

/* --- documents that are being forgotten ------------------------------------------------------- */

static uint64_t
forget_seal(const struct catalog *catalog, const struct forget_slot *slot, uint32_t number)
{
    return seal_of(catalog->at, slot, CATALOG_WORKERS_MAX + number, sizeof(*slot));
}

void
catalog_set_forget(struct catalog *catalog, uint32_t number, const struct dockey *document,
                   bool is_aborting)
{
    struct forget_slot *slot = &catalog->at->forgets[number];

    assert(number < CATALOG_FORGETS_MAX);
    break_seal(&slot->seal);
    slot->document = *document;
    slot->is_aborting = is_aborting;
    set_seal(&slot->seal, forget_seal(catalog, slot, number));
}

void
catalog_drop_forget(struct catalog *catalog, uint32_t number)
{
    assert(number < CATALOG_FORGETS_MAX);
    break_seal(&catalog->at->forgets[number].seal);
}

bool
catalog_get_forget(const struct catalog *catalog, uint32_t number, struct dockey *document_out,
                   bool *is_aborting_out)
{
    const struct forget_slot *slot = &catalog->at->forgets[number];
    uint64_t seal = get_seal(&slot->seal);

    assert(number < CATALOG_FORGETS_MAX);
    if (seal == 0 || seal != forget_seal(catalog, slot, number)) {
        return false;
    }
    *document_out = slot->document;
    *is_aborting_out = slot->is_aborting != 0;
    return true;
}

/* --- workers ---------------------------------------------------------------------------------- */

void
catalog_set_worker(struct catalog *catalog, uint32_t number, const struct catalog_worker *worker)
{
    struct worker_slot *slot = &catalog->at->workers[number];

    assert(number < CATALOG_WORKERS_MAX && worker->incarnation != 0);
    break_seal(&slot->seal);
    slot->worker = *worker;
    set_seal(&slot->seal, seal_of(catalog->at, slot, number, sizeof(*slot)));
}

void
catalog_drop_worker(struct catalog *catalog, uint32_t number)
{
    assert(number < CATALOG_WORKERS_MAX);
    break_seal(&catalog->at->workers[number].seal);
}

bool
catalog_get_worker(const struct catalog *catalog, uint32_t number,
                   struct catalog_worker *worker_out)
{
    const struct worker_slot *slot = &catalog->at->workers[number];
    uint64_t seal = get_seal(&slot->seal);

    assert(number < CATALOG_WORKERS_MAX);
    if (seal == 0 || seal != seal_of(catalog->at, slot, number, sizeof(*slot))) {
        return false;
    }
    *worker_out = slot->worker;
    return true;
}
