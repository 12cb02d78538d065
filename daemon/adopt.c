/* SPDX-License-Identifier: Apache-2.0 */
/* What outlives a kvasird, from its side: at the start the pool of the one before, in the middle
 * what the next one will need.
 *
 * A worker of the earlier kvasird may live on and write the blocks that it was given.  So each is
 * noted in the catalog by its process, and while that process lives what it was lent is fenced: it
 * comes back and says that it has let go of all, or it ends. */
#include "daemon/kvasird.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/failpoint.h"
#include "common/log.h"
#include "daemon/offer.h"

#define SAVE_US       60000000u /* a minute of popularity is no loss */
#define SAVE_PAUSE_US 1000u     /* between its parts */

/* When a process was started, in ticks since boot; 0: there is none.  Together with its pid this
 * names a process for good. */
static uint64_t
start_ticks(int pid)
{
    char path[64], text[1024];
    const char *at;
    uint64_t ticks = 0;
    size_t length;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    length = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[length] = '\0';
    at = strrchr(text, ')'); /* the end of field 2, the only one that may hold spaces */
    for (int field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    return at != NULL && sscanf(at, " %" SCNu64, &ticks) == 1 ? ticks : 0;
}

/* --- at the start ----------------------------------------------------------------------------- */

/* Makes the catalog of a host tier whose blocks are as the pool's; without one it has none. */
static void
keep_host(struct kvasird *d, const struct catalog_pool *pool)
{
    if (d->host.bytes == 0 || d->host.catalog != NULL) {
        return;
    }
    if (host_memory_index(&d->host, pool) != ST_OK) {
        log_warn("host_tier_unused", "detail=\"%s\"", status_detail());
    } else if (d->estate.is_open
               && estate_keep_host(&d->estate, d->host.fd, d->host.index_fd) != ST_OK) {
        log_warn("host_tier_not_kept", "detail=\"%s\", it will end with this process",
                 status_detail());
    }
}

void
adopt_erase_free_host(const struct kvasird *d)
{
    if (host_memory_erase_free(&d->host) != ST_OK) {
        log_warn("host_tier_not_erased", "detail=\"%s\"", status_detail());
    }
}

/* A pidfd of the process, or -1 if it is gone. */
static int
open_worker(const struct catalog_worker *worker)
{
    int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)worker->pid, 0);

    /* Looked at after the pidfd: if it is the right one then, it was before. */
    if (pidfd >= 0 && start_ticks((int)worker->pid) != worker->start_ticks) {
        (void)close(pidfd);
        return -1;
    }
    return pidfd;
}

static uint32_t
expect_workers(struct kvasird *d)
{
    uint32_t living = 0;

    for (uint32_t i = 0; i < CATALOG_WORKERS_MAX; i++) {
        struct catalog_worker worker;
        int pidfd;

        if (!catalog_get_worker(d->estate.catalog, i, &worker)) {
            continue;
        }
        pidfd = open_worker(&worker);
        if (pidfd < 0) {
            catalog_drop_worker(d->estate.catalog, i);
            continue;
        }
        handoff_expect(d->handoff, i, worker.incarnation, (pid_t)worker.pid);
        peers_expect(d, i, &worker, pidfd);
        living++;
    }
    return living;
}

static bool
may_write(void *arg, uint64_t incarnation)
{
    const struct kvasird *d = arg;

    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        if (d->peers[i].state != PEER_FREE && d->peers[i].incarnation == incarnation) {
            return true;
        }
    }
    return false;
}

/* The arenas go to whoever keeps them; the catalog says what they are. */
static enum status
hand_over_arenas(struct kvasird *d)
{
    const struct catalog_pool *pool = catalog_pool(d->estate.catalog);
    struct arenas arenas = {.block_count = pool->block_count, .block_bytes = pool->block_bytes};
    int fds[2];
    enum status st;

    estate_take_arenas(&d->estate, fds);
    for (int i = 0; i < 2; i++) {
        arenas.held[i].fd = fds[i];
        arenas.held[i].bytes = pool->arenas[i].bytes;
        (void)snprintf(arenas.held[i].mechanism, sizeof(arenas.held[i].mechanism), "%s",
                       pool->arenas[i].mechanism);
    }
    st = handoff_adopt(d->handoff, &arenas, pool->device);
    if (st != ST_OK) {
        arenas_close(&arenas);
    }
    return st;
}

/* The host tier of the earlier kvasird, if it is the one that is wanted; else a new one. */
static enum status
take_over_host(struct kvasird *d, bool *is_adopted_out)
{
    const struct catalog_pool *pool = catalog_pool(d->estate.catalog);
    int fds[2];
    enum status st;

    estate_take_host(&d->estate, fds);
    if (d->options.host_memory > 0) {
        st = host_memory_adopt(fds[0], fds[1], pool, d->options.host_memory, &d->host);
        if (st == ST_OK) {
            *is_adopted_out = true;
            return ST_OK;
        }
        log_warn("host_tier_dropped", "reason=\"%s\", starting without copies", status_detail());
    } else {
        fd_close(&fds[0]);
        fd_close(&fds[1]);
    }
    estate_drop_host(&d->estate);
    TRY(host_memory_make(d->options.host_memory, &d->host));
    keep_host(d, pool);
    return ST_OK;
}

static enum status
take_over(struct kvasird *d)
{
    const struct catalog_pool *pool = catalog_pool(d->estate.catalog);
    struct kvpool_adopted adopted = {0};
    uint64_t start_us = clock_now_us();
    bool is_host_adopted = false;
    uint32_t living;

    handoff_name_pool(d->handoff, pool->id);
    living = expect_workers(d);
    peers_count_expected(d);
    sched_use_catalog(d->sched, d->estate.catalog);
    TRY(take_over_host(d, &is_host_adopted));
    sched_use_host_tier(d->sched, d->host.places, d->host.catalog);
    handoff_use_host(d->handoff, d->host.fd, d->host.bytes, is_host_adopted);
    TRY(sched_adopt_pool(d->sched, pool->block_count, may_write, d, &adopted));
    if (d->estate.learned_fd >= 0
        && sched_restore_learned(d->sched, d->estate.learned_fd) != ST_OK) {
        log_info("learned_nothing", "detail=\"%s\"", status_detail());
    }
    FAILPOINT(adopt_pool);
    if (living == 0) {
        adopt_erase_free_host(d);
    }
    log_info("pool_adopted",
             "documents=%u blocks=%u of=%u blocks_dropped=%u blocks_fenced=%u workers=%u "
             "elapsed_us=%llu",
             adopted.documents, adopted.blocks, pool->block_count, adopted.blocks_dropped,
             adopted.blocks_fenced, living, (unsigned long long)(clock_now_us() - start_us));
    return ST_OK;
}

static void
fill_wanted(const struct kvasird *d, struct catalog_pool *pool)
{
    struct kv_memory kv_memory = {0};

    (void)options_kv_memory(&d->options, &kv_memory); /* checked at the start */
    *pool = (struct catalog_pool){.block_tokens = (uint32_t)d->options.block_tokens,
                                  .kv_memory = kv_memory.bytes,
                                  .kv_percent = kv_memory.percent};
    memcpy(pool->fingerprint, handoff_pool_fingerprint(d->handoff), sizeof(pool->fingerprint));
}

enum status
adopt_pool(struct kvasird *d)
{
    struct catalog_pool wanted;
    uint8_t id[CATALOG_POOL_ID_BYTES];
    enum status st;

    fill_wanted(d, &wanted);
    st = estate_open(&wanted, &d->estate);
    if (st == ST_OK) {
        st = hand_over_arenas(d);
        if (st == ST_OK) {
            return take_over(d);
        }
        estate_give_up(&d->estate, true);
        estate_close(&d->estate);
    }
    if (st == ST_UNAVAILABLE) {
        return st;
    }
    if (st != ST_NOT_FOUND) {
        log_warn("pool_dropped", "reason=\"%s\", starting cold", status_detail());
    }
    TRY(estate_new_id(id));
    handoff_name_pool(d->handoff, id);
    TRY(host_memory_make(d->options.host_memory, &d->host));
    handoff_use_host(d->handoff, d->host.fd, d->host.bytes, false);
    return ST_OK;
}

/* --- for the next one ------------------------------------------------------------------------- */

static void
describe_pool(const struct kvasird *d, const struct handoff_event *event, struct catalog_pool *pool)
{
    const struct arenas *arenas = handoff_arenas(d->handoff);

    fill_wanted(d, pool);
    memcpy(pool->id, handoff_pool_id(d->handoff), sizeof(pool->id));
    pool->block_count = arenas->block_count;
    pool->block_bytes = arenas->block_bytes;
    (void)snprintf(pool->device, sizeof(pool->device), "%s", event->device);
    for (int i = 0; i < 2; i++) {
        pool->arenas[i].bytes = arenas->held[i].bytes;
        (void)snprintf(pool->arenas[i].mechanism, sizeof(pool->arenas[i].mechanism), "%s",
                       arenas->held[i].mechanism);
    }
}

/* Has the supervisor keep what the first worker has made, if that can outlive it. */
static void
keep_pool(struct kvasird *d, const struct catalog_pool *pool)
{
    int fds[2];
    enum status st;

    if (!handoff_keeps_arenas(d->handoff)) {
        log_info("pool_not_kept", "reason=\"its memory ends with its last worker\"");
        return;
    }
    handoff_arena_fds(d->handoff, fds);
    st = estate_make(pool, fds, &d->estate);
    if (st != ST_OK) { /* it serves all the same, for one life */
        log_warn("pool_not_kept", "status=%s detail=\"%s\", it will end with this process",
                 status_name(st), status_detail());
        return;
    }
    sched_use_catalog(d->sched, d->estate.catalog);
}

void
adopt_new_pool(struct kvasird *d, const struct handoff_event *event)
{
    struct catalog_pool pool;

    if (sched_pool(d->sched) != NULL) {
        return;
    }
    describe_pool(d, event, &pool);
    keep_pool(d, &pool);
    keep_host(d, &pool);
    sched_use_host_tier(d->sched, d->host.places, d->host.catalog);
}

static bool
keeps_learned(const struct kvasird *d)
{
    return d->estate.learned_fd >= 0 && sched_pool(d->sched) != NULL;
}

static void
warn_unless(enum status st)
{
    if (st != ST_OK) {
        log_warn("learned_not_saved", "detail=\"%s\"", status_detail());
    }
}

void
adopt_save_some(struct kvasird *d, uint64_t now_us)
{
    if (now_us >= d->next_save_us) {
        if (keeps_learned(d)) {
            warn_unless(learned_save_some(&d->saving, d->estate.learned_fd, sched_pool(d->sched)));
        } else {
            learned_saving_deinit(&d->saving);
        }
        d->next_save_us = now_us + (d->saving.bytes != NULL ? SAVE_PAUSE_US : SAVE_US);
    }
}

void
adopt_save_learned(struct kvasird *d)
{
    learned_saving_deinit(&d->saving); /* from the beginning: nothing comes in between now */
    if (keeps_learned(d)) {
        warn_unless(learned_save(&d->saving, d->estate.learned_fd, sched_pool(d->sched)));
    }
}

void
adopt_note_worker(struct kvasird *d, const struct handoff_event *event)
{
    struct catalog_worker worker = {.incarnation = event->incarnation,
                                    .start_ticks = start_ticks((int)event->pid),
                                    .pid = (uint32_t)event->pid,
                                    .seqs_max = event->seqs_max};

    if (d->estate.catalog != NULL) {
        catalog_set_worker(d->estate.catalog, event->worker, &worker);
        FAILPOINT(worker_noted);
    }
}

void
adopt_drop_worker(struct kvasird *d, uint32_t worker)
{
    if (d->estate.catalog != NULL) {
        catalog_drop_worker(d->estate.catalog, worker);
    }
}
