/* SPDX-License-Identifier: Apache-2.0 */
/* A worker is back after a restart of kvasird: what it has kept becomes what the scheduler takes.
 */
#include "daemon/kvasird.h"

#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"

#include "kvasir/v1/worker.pb-c.h"

static enum status
read_segment(const Kvasir__V1__KeptSegment *wire, struct sched_kept_segment *segment_out)
{
    if (wire->key.len != DOCKEY_BYTES || wire->n_block_ids > UINT32_MAX) {
        return ERR(ST_INVALID, "a document's key of %zu bytes", wire->key.len);
    }
    *segment_out = (struct sched_kept_segment){
        .generation = wire->generation,
        .n_tokens = wire->n_tokens,
        .blocks = wire->block_ids,
        .block_count = (uint32_t)wire->n_block_ids,
    };
    memcpy(segment_out->key.bytes, wire->key.data, DOCKEY_BYTES);
    return ST_OK;
}

static enum status
read_kept(const Kvasir__V1__Kept *wire, struct sched_kept_segment *segments,
          struct sched_kept *kept_out)
{
    if (wire->kept == 0 || wire->name.len != SESSION_NAME_BYTES
        || wire->n_own_block_ids > UINT32_MAX || wire->n_segments > UINT32_MAX) {
        return ERR(ST_INVALID, "kept under number %llu, a name of %zu bytes",
                   (unsigned long long)wire->kept, wire->name.len);
    }
    *kept_out = (struct sched_kept){
        .kept = wire->kept,
        .query_tokens = wire->query_tokens,
        .answer_tokens = wire->answer_tokens,
        .is_done = wire->is_done,
        .blocks = wire->own_block_ids,
        .block_count = (uint32_t)wire->n_own_block_ids,
        .segments = segments,
        .segment_count = (uint32_t)wire->n_segments,
    };
    memcpy(kept_out->name, wire->name.data, SESSION_NAME_BYTES);
    for (size_t i = 0; i < wire->n_segments; i++) {
        TRY(read_segment(wire->segments[i], &segments[i]));
    }
    return ST_OK;
}

static size_t
count_segments(const Kvasir__V1__Step *step)
{
    size_t count = 0;

    for (size_t i = 0; i < step->n_kept; i++) {
        count += step->kept[i]->n_segments;
    }
    return count;
}

/* Both arrays are the caller's to free, also on failure. */
static enum status
read_all(const Kvasir__V1__Step *step, struct sched_kept **kept_out,
         struct sched_kept_segment **segments_out)
{
    struct sched_kept_segment *at;

    *kept_out = mem_zalloc(step->n_kept, sizeof(**kept_out));
    *segments_out = at = mem_zalloc(count_segments(step), sizeof(**segments_out));
    if (*kept_out == NULL || at == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for what a worker has kept");
    }
    for (size_t i = 0; i < step->n_kept; i++) {
        TRY(read_kept(step->kept[i], at, &(*kept_out)[i]));
        at += step->kept[i]->n_segments;
    }
    return ST_OK;
}

void
peers_count_expected(struct kvasird *d)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        enum peer_state state = d->peers[i].state;

        count += state == PEER_EXPECTED || state == PEER_RETURNING;
    }
    sched_expect(d->sched, count, d->started_us + d->options.worker_liveness * 1000);
}

void
peers_back(struct kvasird *d, uint32_t worker, const Kvasir__V1__Step *step)
{
    struct peer_link *peer = &d->peers[worker];
    struct sched_kept *kept = NULL;
    struct sched_kept_segment *segments = NULL;
    enum status st = read_all(step, &kept, &segments);
    struct sched_back back = {
        .worker = worker,
        .incarnation = peer->incarnation,
        .seqs_max = peer->seqs_max,
        .kept = kept,
        .kept_count = step->n_kept,
        .wait_us = d->options.orphan_timeout * 1000,
    };

    peers_count_expected(d);
    if (st != ST_OK || !sched_worker_back(d->sched, clock_now_us(), &back)) {
        log_warn("worker_odd", "worker=%u says=kept count=%zu detail=\"%s\"", worker, step->n_kept,
                 status_detail());
        /* As one that never becomes ready: it must end, and its fence stands until it has. */
        peers_refuse(d, worker);
    }
    mem_free(kept);
    mem_free(segments);
    deliver(d);
}
