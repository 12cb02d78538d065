/* SPDX-License-Identifier: Apache-2.0 */
/* catalog - what the next kvasird must know of a pool, in memory that outlives this one.
 *
 * One writer, kvasird's scheduler thread; the next kvasird reads it after the writer is dead.  The
 * memory (a memfd) is the caller's; here are only its contents:
 *
 *   head      which pool this is: fingerprint, sizes, arenas; written once
 *   forgets   documents that are being forgotten for good, and are not yet
 *   workers   who is attached: their processes may outlive kvasird and go on writing blocks
 *   records   one a block: which part of which document it holds, and who may still write it
 *
 * A document is the blocks that name its key; so there is no list to keep whole, a lost tail is a
 * shorter document, and each record stands or falls alone.  A record is written in three steps: its
 * seal, a checksum over all of it and its place, becomes 0; the fields change; the new seal is
 * stored last.  Whoever dies in between leaves a record that does not verify, and that is a miss.
 *
 * Nothing is trusted because it is there: catalog_open checks the head, catalog_read each record.
 */
#ifndef KVPOOL_CATALOG_H
#define KVPOOL_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "kvpool/dockey.h"

#define CATALOG_WORKERS_MAX     64
#define CATALOG_FORGETS_MAX     64
#define CATALOG_POOL_ID_BYTES   16
#define CATALOG_DEVICE_BYTES    32
#define CATALOG_MECHANISM_BYTES 16

struct catalog;

/* An arena that goes with the catalog: KV, then weights. */
struct catalog_arena {
    uint64_t bytes;
    char mechanism[CATALOG_MECHANISM_BYTES];
};

/* All of it must be the next kvasird's as well, or the pool is of no use to it. */
struct catalog_pool {
    uint8_t id[CATALOG_POOL_ID_BYTES]; /* random; arenas are stored under it */
    uint8_t fingerprint[32];
    uint32_t block_count;
    uint32_t block_tokens;
    uint64_t block_bytes;
    uint64_t kv_memory; /* as it was asked for: bytes, or 0 and a percentage */
    double kv_percent;
    char device[CATALOG_DEVICE_BYTES];
    struct catalog_arena arenas[2];
};

/* Bytes of memory that a pool's catalog takes. */
size_t catalog_bytes(const struct catalog_pool *pool);

/* Writes an empty catalog into zeroed memory of at least catalog_bytes.  ST_NO_MEMORY. */
enum status catalog_format(void *memory, const struct catalog_pool *pool,
                           struct catalog **catalog_out);

/* Reads one that another process left.  ST_INVALID: it is none, of another version, torn, or does
 * not fit into `bytes`. */
enum status catalog_open(void *memory, size_t bytes, struct catalog **catalog_out);

/* The memory stays the caller's. */
void catalog_close(struct catalog **catalog);

const struct catalog_pool *catalog_pool(const struct catalog *catalog);

/* --- blocks ----------------------------------------------------------------------------------- */

/* What a block holds: tokens [index * block_tokens, ...) of a document. */
struct catalog_record {
    struct dockey key;
    uint64_t generation; /* of the build that wrote it */
    uint64_t content;    /* checksum of the block as its worker sealed it; 0: not known */
    uint64_t source;     /* dockey_hash of the document that it is of, or a copy of */
    uint32_t index;
    uint32_t n_tokens; /* of the document */
    uint32_t origin;   /* the worker that built it */
    uint32_t pins;     /* of the document; kept in its first block */
};

/* Tokens of the document that lie in the block. */
uint32_t catalog_ids_count(const struct catalog *catalog, const struct catalog_record *record);

/* Says what a block is to hold, before anybody writes it; not sealed.  `ids`: the block's own, or
 * NULL: not known. */
void catalog_write(struct catalog *catalog, uint32_t block, const struct catalog_record *record,
                   const uint32_t *ids);

/* The block is complete: from now on it outlives us.  Nobody may write it any more. */
void catalog_seal(struct catalog *catalog, uint32_t block, uint32_t origin, uint64_t content);

/* The document has left the index; who may still write the block stays. */
void catalog_unseal(struct catalog *catalog, uint32_t block);

/* The worker of this incarnation may write the block until it is sealed or cleared. */
void catalog_lend(struct catalog *catalog, uint32_t block, uint64_t incarnation);
uint64_t catalog_lender(const struct catalog *catalog, uint32_t block); /* 0: nobody */

/* The document (dockey_hash) that a block may hold something of, whatever its record says and when
 * it is free; UINT64_MAX: any, 0: none. */
void catalog_set_held(struct catalog *catalog, uint32_t block, uint64_t document);
uint64_t catalog_held(const struct catalog *catalog, uint32_t block);

/* The block is free. */
void catalog_clear(struct catalog *catalog, uint32_t block);

/* The same, and nothing is left of what was noted of it. */
void catalog_erase(struct catalog *catalog, uint32_t block);

/* Changes the pins noted in a sealed block. */
void catalog_set_pins(struct catalog *catalog, uint32_t block, uint32_t pins);

/* The checksum became known later; if the block is sealed. */
void catalog_set_content(struct catalog *catalog, uint32_t block, uint64_t content);

/* False if the block is not sealed, or its record does not verify.  *ids_out (may be NULL) is
 * borrowed until the record changes: catalog_ids_count of them, zeros if they were not known. */
bool catalog_read(const struct catalog *catalog, uint32_t block, struct catalog_record *record_out,
                  const uint32_t **ids_out);

/* There is something in the record that does not verify: for the count of what was dropped. */
bool catalog_is_torn(const struct catalog *catalog, uint32_t block);

/* --- documents that are being forgotten ------------------------------------------------------- */

/* From now on the next process has to go on with it, and end its readers if it `is_aborting`. */
void catalog_set_forget(struct catalog *catalog, uint32_t number, const struct dockey *document,
                        bool is_aborting);
void catalog_drop_forget(struct catalog *catalog, uint32_t number);

/* False if there is none of this number, or it does not verify. */
bool catalog_get_forget(const struct catalog *catalog, uint32_t number, struct dockey *document_out,
                        bool *is_aborting_out);

/* --- workers ---------------------------------------------------------------------------------- */

/* A process that has the arena mapped.  Pids are used again, so its start counts as well. */
struct catalog_worker {
    uint64_t incarnation; /* 0: none */
    uint64_t start_ticks; /* since boot; field 22 of /proc/PID/stat */
    uint32_t pid;
    uint32_t seqs_max;
};

void catalog_set_worker(struct catalog *catalog, uint32_t number,
                        const struct catalog_worker *worker);
void catalog_drop_worker(struct catalog *catalog, uint32_t number);

/* False if there is none of this number, or its record does not verify. */
bool catalog_get_worker(const struct catalog *catalog, uint32_t number,
                        struct catalog_worker *worker_out);

#endif
