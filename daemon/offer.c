/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/offer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "kvpool/kvpool.h"

#define FINGERPRINT_BYTES 32
#define SHOWN_BYTES       8                   /* of a fingerprint, in a message */
#define SHARE_BYTES_MAX   (UINT64_C(1) << 50) /* of KV, where its worker says how much it is */

static_assert(DATAGRAM_FDS_MAX >= ARENA_INDEX_COUNT, "an offer is one datagram");

bool
arenas_are_held(const struct arenas *arenas)
{
    return arenas->held[ARENA_INDEX_KV].fd >= 0;
}

bool
arenas_outlive_workers(const struct arenas *arenas)
{
    for (size_t i = 0; i < ARENA_INDEX_COUNT; i++) {
        if (strcmp(arenas->held[i].mechanism, "ipc") == 0) {
            return false;
        }
    }
    return true;
}

void
arenas_close(struct arenas *arenas)
{
    for (size_t i = 0; i < ARENA_INDEX_COUNT; i++) {
        fd_close(&arenas->held[i].fd);
    }
}

static void
show_fingerprint(const uint8_t *bytes, char out[2 * SHOWN_BYTES + 1])
{
    for (size_t i = 0; i < SHOWN_BYTES; i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    }
}

static enum status
check_fingerprint(ProtobufCBinaryData theirs, const uint8_t ours[FINGERPRINT_BYTES])
{
    char their_text[2 * SHOWN_BYTES + 1], our_text[2 * SHOWN_BYTES + 1];

    if (theirs.len != FINGERPRINT_BYTES) {
        return ERR(ST_INVALID, "the worker's pool fingerprint has %zu bytes: %d", theirs.len,
                   FINGERPRINT_BYTES);
    }
    if (memcmp(theirs.data, ours, FINGERPRINT_BYTES) != 0) {
        show_fingerprint(theirs.data, their_text);
        show_fingerprint(ours, our_text);
        return ERR(ST_INVALID, "the worker's pool fingerprint is %s..., kvasird's %s...",
                   their_text, our_text);
    }
    return ST_OK;
}

enum status
offer_check_pool(const Kvasir__V1__Attached *attached, const uint8_t fingerprint[32],
                 const struct arenas *held, uint64_t kv_memory)
{
    uint32_t count = attached->block_count;
    uint64_t bytes = attached->block_bytes;

    TRY(check_fingerprint(attached->pool_fingerprint, fingerprint));
    if (arenas_are_held(held) && (count != held->block_count || bytes != held->block_bytes)) {
        return ERR(ST_INVALID,
                   "the worker counts %" PRIu32 " blocks of %" PRIu64
                   " bytes, the arena has %" PRIu32 " of %" PRIu64,
                   count, bytes, held->block_count, held->block_bytes);
    }
    if (kv_memory == 0) {
        kv_memory = SHARE_BYTES_MAX;
    }
    if (bytes == 0 || count == 0 || count > KVPOOL_BLOCKS_MAX || count > kv_memory / bytes) {
        return ERR(ST_INVALID,
                   "the worker counts %" PRIu32 " blocks of %" PRIu64
                   " bytes: 1 to %u blocks in the %" PRIu64 " bytes of --kv-memory",
                   count, bytes, KVPOOL_BLOCKS_MAX, kv_memory);
    }
    return ST_OK;
}

/* A memfd must be as long as its worker says and stay so: a mapping of a file that shrinks faults.
 */
static enum status
check_memfd(const char *name, int fd, uint64_t bytes)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat info;

    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        return ERR(ST_INVALID, "the %s arena is not memory sealed against shrinking", name);
    }
    if (fstat(fd, &info) != 0) {
        return ERR(ST_SYSTEM, "the %s arena: %s", name, strerror(errno));
    }
    if (info.st_size < 0 || (uint64_t)info.st_size < bytes) {
        return ERR(ST_INVALID, "the %s arena has %lld bytes, its worker says %" PRIu64, name,
                   (long long)info.st_size, bytes);
    }
    return ST_OK;
}

/* Device memory ("vmm", "ipc") cannot be measured without its driver: whoever imports it will. */
static enum status
check_arena(const char *name, const char *mechanism, int fd, uint64_t bytes, uint64_t bytes_min)
{
    if (bytes < bytes_min) {
        return ERR(ST_INVALID, "the %s arena is said to have %" PRIu64 " bytes: at least %" PRIu64,
                   name, bytes, bytes_min);
    }
    if (strcmp(mechanism, "shm") == 0) {
        return check_memfd(name, fd, bytes);
    }
    if (strcmp(mechanism, "vmm") != 0 && strcmp(mechanism, "ipc") != 0) {
        return ERR(ST_INVALID, "the mechanism of the %s arena is none of shm, vmm, ipc", name);
    }
    return ST_OK;
}

enum status
offer_check_held(const struct arenas *held)
{
    const struct arena_held *kv = &held->held[ARENA_INDEX_KV];
    const struct arena_held *weights = &held->held[ARENA_INDEX_WEIGHTS];

    if (held->block_count == 0 || held->block_count > KVPOOL_BLOCKS_MAX || held->block_bytes == 0
        || held->block_bytes > SHARE_BYTES_MAX / held->block_count) {
        return ERR(ST_INVALID, "%" PRIu32 " blocks of %" PRIu64 " bytes", held->block_count,
                   held->block_bytes);
    }
    TRY(check_arena("KV", kv->mechanism, kv->fd, kv->bytes, held->block_count * held->block_bytes));
    return check_arena("weights", weights->mechanism, weights->fd, weights->bytes, 1);
}

static enum status
take_arena(const Kvasir__V1__Attached *attached, size_t i, struct datagram *d,
           struct arenas *arenas)
{
    const Kvasir__V1__ArenaInfo *info = attached->arenas[i];
    bool is_kv = info->kind == KVASIR__V1__ARENA_KIND__ARENA_KV;
    const char *name = is_kv ? "KV" : "weights";
    struct arena_held *held = &arenas->held[is_kv ? ARENA_INDEX_KV : ARENA_INDEX_WEIGHTS];

    if (!is_kv && info->kind != KVASIR__V1__ARENA_KIND__ARENA_WEIGHTS) {
        return ERR(ST_INVALID, "an arena of unknown kind %d", (int)info->kind);
    }
    if (held->fd >= 0) {
        return ERR(ST_INVALID, "the %s arena is offered twice", name);
    }
    if (!info->is_present) {
        return ERR(ST_INVALID, "the %s arena is offered without being present", name);
    }
    /* The product cannot overflow: offer_check_pool found it within kv_memory. */
    TRY(check_arena(name, info->mechanism == NULL ? "" : info->mechanism, d->fds[i], info->bytes,
                    is_kv ? attached->block_count * attached->block_bytes : 1));
    held->bytes = info->bytes;
    (void)snprintf(held->mechanism, sizeof(held->mechanism), "%s", info->mechanism);
    held->fd = d->fds[i];
    d->fds[i] = -1;
    return ST_OK;
}

enum status
offer_take(const Kvasir__V1__Attached *attached, struct datagram *d, struct arenas *arenas_out)
{
    struct arenas arenas = ARENAS_NONE;

    if (attached->n_arenas != ARENA_INDEX_COUNT || d->fd_count != ARENA_INDEX_COUNT) {
        return ERR(ST_INVALID, "%zu arenas with %zu file descriptors offered: %d were asked for",
                   attached->n_arenas, d->fd_count, ARENA_INDEX_COUNT);
    }
    for (size_t i = 0; i < ARENA_INDEX_COUNT; i++) {
        enum status st = take_arena(attached, i, d, &arenas);

        if (st != ST_OK) {
            arenas_close(&arenas);
            return st;
        }
    }
    arenas.block_count = attached->block_count;
    arenas.block_bytes = attached->block_bytes;
    *arenas_out = arenas;
    return ST_OK;
}
