/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/estate.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "common/failpoint.h"
#include "common/notify.h"
#include "daemon/datagram.h"
#include "daemon/learned.h"

#define NAME_PREFIX "kvasir-"

enum part {
    PART_CATALOG,
    PART_KV,
    PART_WEIGHTS,
    PART_LEARNED,
    PART_HOST,
    PART_HOST_CATALOG,
    PARTS,
};

static const char *const part_names[PARTS] = {"catalog", "kv",   "weights",
                                              "learned", "host", "hostcatalog"};

static void
name_part(enum part part, const uint8_t id[CATALOG_POOL_ID_BYTES], char out[NOTIFY_NAME_BYTES])
{
    int length = snprintf(out, NOTIFY_NAME_BYTES, NAME_PREFIX "%s-", part_names[part]);

    for (size_t i = 0; i < CATALOG_POOL_ID_BYTES; i++) {
        (void)snprintf(out + length + 2 * i, 3, "%02x", id[i]);
    }
}

/* --- the catalog's memory --------------------------------------------------------------------- */

static enum status
map_catalog(struct estate *e)
{
    e->memory = mmap(NULL, e->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, e->catalog_fd, 0);
    if (e->memory == MAP_FAILED) {
        e->memory = NULL;
        return ERR(ST_SYSTEM, "mmap of a catalog of %zu bytes: %s", e->bytes, strerror(errno));
    }
    return ST_OK;
}

/* One kvasird a pool.  Of the whole process and dropped by closing any fd of the file: there is
 * only this one. */
static enum status
lock_catalog(const struct estate *e)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (fcntl(e->catalog_fd, F_SETLK, &lock) == 0) {
        return ST_OK;
    }
    if (errno != EAGAIN && errno != EACCES) {
        return ERR(ST_SYSTEM, "lock of the catalog: %s", strerror(errno));
    }
    (void)fcntl(e->catalog_fd, F_GETLK, &lock);
    return ERR(ST_UNAVAILABLE, "another kvasird, process %d, serves this pool", (int)lock.l_pid);
}

enum status
estate_new_id(uint8_t id_out[CATALOG_POOL_ID_BYTES])
{
    return getrandom(id_out, CATALOG_POOL_ID_BYTES, 0) == CATALOG_POOL_ID_BYTES
               ? ST_OK
               : ERR(ST_SYSTEM, "getrandom: %s", strerror(errno));
}

/* --- a pool that was left --------------------------------------------------------------------- */

/* Memory whose mapping may fault later is refused, as arenas are. */
static enum status
check_catalog_fd(struct estate *e)
{
    struct stat info;
    int seals = fcntl(e->catalog_fd, F_GET_SEALS);

    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(e->catalog_fd, &info) != 0
        || info.st_size <= 0) {
        return ERR(ST_INVALID, "what was kept as the catalog is not memory sealed against "
                               "shrinking");
    }
    e->bytes = (size_t)info.st_size;
    return ST_OK;
}

static enum status
check_wanted(const struct catalog_pool *found, const struct catalog_pool *wanted)
{
    if (memcmp(found->fingerprint, wanted->fingerprint, sizeof(found->fingerprint)) != 0) {
        return ERR(ST_INVALID, "it is of another checkpoint, tokenizer or kind of KV");
    }
    if (found->block_tokens != wanted->block_tokens) {
        return ERR(ST_INVALID, "its blocks have %" PRIu32 " tokens, now they are to have %" PRIu32,
                   found->block_tokens, wanted->block_tokens);
    }
    if (found->kv_memory != wanted->kv_memory || found->kv_percent != wanted->kv_percent) {
        return ERR(ST_INVALID, "--kv-memory is another one now");
    }
    return ST_OK;
}

static enum status
find_arenas(struct estate *e, struct notify_fd *fds, size_t count)
{
    for (int i = 0; i < 2; i++) {
        char name[NOTIFY_NAME_BYTES];

        name_part(PART_KV + i, catalog_pool(e->catalog)->id, name);
        for (size_t j = 0; j < count; j++) {
            if (fds[j].fd >= 0 && strcmp(fds[j].name, name) == 0) {
                e->arena_fds[i] = fds[j].fd;
                fds[j].fd = -1;
                break;
            }
        }
        if (e->arena_fds[i] < 0) {
            return ERR(ST_INVALID, "its %s was not kept", part_names[PART_KV + i]);
        }
    }
    return ST_OK;
}

/* What may be there. */
static void
find_part(const struct estate *e, enum part part, struct notify_fd *fds, size_t count, int *fd_out)
{
    char name[NOTIFY_NAME_BYTES];

    name_part(part, catalog_pool(e->catalog)->id, name);
    for (size_t i = 0; i < count && *fd_out < 0; i++) {
        if (fds[i].fd >= 0 && strcmp(fds[i].name, name) == 0) {
            *fd_out = fds[i].fd;
            fds[i].fd = -1;
        }
    }
}

/* `at` is the catalog's place in the list. */
static enum status
open_left(struct estate *e, struct notify_fd *fds, size_t count, size_t at,
          const struct catalog_pool *wanted)
{
    char name[NOTIFY_NAME_BYTES];

    e->catalog_fd = fds[at].fd;
    fds[at].fd = -1;
    TRY(check_catalog_fd(e));
    TRY(lock_catalog(e));
    TRY(map_catalog(e));
    TRY(catalog_open(e->memory, e->bytes, &e->catalog));
    name_part(PART_CATALOG, catalog_pool(e->catalog)->id, name);
    if (strcmp(fds[at].name, name) != 0) {
        return ERR(ST_INVALID, "it was kept under the name %s", fds[at].name);
    }
    TRY(check_wanted(catalog_pool(e->catalog), wanted));
    TRY(find_arenas(e, fds, count));
    find_part(e, PART_LEARNED, fds, count, &e->learned_fd);
    find_part(e, PART_HOST, fds, count, &e->host_fds[0]);
    find_part(e, PART_HOST_CATALOG, fds, count, &e->host_fds[1]);
    e->is_open = e->is_kept = true;
    return ST_OK;
}

static bool
is_ours(const struct notify_fd *fd)
{
    return strncmp(fd->name, NAME_PREFIX, strlen(NAME_PREFIX)) == 0;
}

/* What is of no use does not stay in the store: it is memory of a device, maybe most of it. */
static void
drop_rest(struct notify_fd *fds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (fds[i].fd >= 0 && is_ours(&fds[i])) {
            (void)notify_unstore(fds[i].name, true); /* then it lasts until the unit stops */
        }
        fd_close(&fds[i].fd);
    }
}

/* As drop_rest, for what has been taken out of the list.  Why it is dropped stays in the detail. */
static enum status
drop_taken(struct estate *e, const char *catalog_name)
{
    char why[256];

    (void)snprintf(why, sizeof(why), "%s", status_detail());
    (void)notify_unstore(catalog_name, true);
    estate_give_up(e, true);
    estate_close(e);
    return ERR(ST_INVALID, "%s", why);
}

enum status
estate_open(const struct catalog_pool *wanted, struct estate *estate_out)
{
    struct notify_fd fds[NOTIFY_FDS_MAX];
    size_t count = notify_take_fds(fds);
    enum status st = ERR(ST_NOT_FOUND, "no pool was kept");

    for (size_t i = 0; i < count && st != ST_OK && st != ST_UNAVAILABLE; i++) {
        struct estate e = ESTATE_NONE;

        if (strncmp(fds[i].name, NAME_PREFIX "catalog-", strlen(NAME_PREFIX "catalog-")) != 0) {
            continue;
        }
        st = open_left(&e, fds, count, i, wanted);
        if (st == ST_OK) {
            *estate_out = e;
        } else if (st == ST_UNAVAILABLE) {
            estate_close(&e); /* it is another's: nothing is dropped */
        } else {
            st = drop_taken(&e, fds[i].name);
        }
    }
    if (st != ST_UNAVAILABLE) {
        drop_rest(fds, count);
    }
    return st;
}

void
estate_take_arenas(struct estate *e, int fds_out[2])
{
    for (int i = 0; i < 2; i++) {
        fds_out[i] = e->arena_fds[i];
        e->arena_fds[i] = -1;
    }
}

void
estate_take_host(struct estate *e, int fds_out[2])
{
    for (int i = 0; i < 2; i++) {
        fds_out[i] = e->host_fds[i];
        e->host_fds[i] = -1;
    }
}

enum status
estate_keep_host(const struct estate *e, int fd, int index_fd)
{
    char name[NOTIFY_NAME_BYTES];

    name_part(PART_HOST, catalog_pool(e->catalog)->id, name);
    TRY(notify_store(name, fd));
    name_part(PART_HOST_CATALOG, catalog_pool(e->catalog)->id, name);
    return notify_store(name, index_fd);
}

void
estate_drop_host(const struct estate *e)
{
    char name[NOTIFY_NAME_BYTES];

    for (enum part part = PART_HOST; part <= PART_HOST_CATALOG; part++) {
        name_part(part, catalog_pool(e->catalog)->id, name);
        (void)notify_unstore(name, true);
    }
}

/* --- a new pool ------------------------------------------------------------------------------- */

/* Its pages are taken now: later the lack of one would be SIGBUS. */
static enum status
make_memory(struct estate *e)
{
    e->catalog_fd = memfd_create("kvasir-catalog", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (e->catalog_fd < 0) {
        return ERR(ST_SYSTEM, "memfd_create kvasir-catalog: %s", strerror(errno));
    }
    int error = posix_fallocate(e->catalog_fd, 0, (off_t)e->bytes);

    if (error != 0) {
        return ERR(ST_NO_MEMORY, "a catalog of %zu bytes: %s", e->bytes, strerror(error));
    }
    if (fcntl(e->catalog_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        return ERR(ST_SYSTEM, "catalog: F_ADD_SEALS: %s", strerror(errno));
    }
    TRY(lock_catalog(e));
    return map_catalog(e);
}

/* Nothing depends on it: without it the next kvasird learns anew. */
static void
keep_learned(struct estate *e)
{
    char name[NOTIFY_NAME_BYTES];

    name_part(PART_LEARNED, catalog_pool(e->catalog)->id, name);
    if (learned_make(&e->learned_fd) == ST_OK && notify_store(name, e->learned_fd) != ST_OK) {
        fd_close(&e->learned_fd);
    }
}

/* The catalog last: without it the others mean nothing. */
static enum status
keep(const struct estate *e, const int arena_fds[2])
{
    const uint8_t *id = catalog_pool(e->catalog)->id;
    char name[NOTIFY_NAME_BYTES];

    for (int i = 0; i < 2; i++) {
        name_part(PART_KV + i, id, name);
        TRY(notify_store(name, arena_fds[i]));
        FAILPOINT(estate_kept);
    }
    name_part(PART_CATALOG, id, name);
    return notify_store(name, e->catalog_fd);
}

enum status
estate_make(const struct catalog_pool *pool, const int arena_fds[2], struct estate *estate_out)
{
    struct estate e = ESTATE_NONE;
    enum status st;

    e.bytes = catalog_bytes(pool);
    st = make_memory(&e);
    if (st == ST_OK) {
        st = catalog_format(e.memory, pool, &e.catalog);
    }
    if (st == ST_OK) {
        keep_learned(&e);
        e.is_kept = keep(&e, arena_fds) == ST_OK;
    }
    if (st != ST_OK) {
        estate_close(&e);
        return st;
    }
    FAILPOINT(catalog_kept);
    e.is_open = true;
    *estate_out = e;
    return ST_OK;
}

/* --- its end ---------------------------------------------------------------------------------- */

void
estate_give_up(const struct estate *e, bool may_wait)
{
    char name[NOTIFY_NAME_BYTES];

    if (e->catalog == NULL) {
        return;
    }
    for (enum part part = PART_CATALOG; part < PARTS; part++) {
        name_part(part, catalog_pool(e->catalog)->id, name);
        (void)notify_unstore(name, may_wait); /* else it drops it when we are gone */
    }
}

void
estate_close(struct estate *e)
{
    catalog_close(&e->catalog);
    if (e->memory != NULL) {
        (void)munmap(e->memory, e->bytes);
    }
    fd_close(&e->catalog_fd);
    fd_close(&e->learned_fd);
    fd_close(&e->host_fds[0]);
    fd_close(&e->host_fds[1]);
    fd_close(&e->arena_fds[0]);
    fd_close(&e->arena_fds[1]);
    *e = ESTATE_NONE;
}
