/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for people; changes nothing. */
#include "daemon/sched.h"

#include "daemon/sched_state.h"

const struct kvpool *
sched_pool(const struct sched *sched)
{
    return sched->pool;
}

const struct sched_config *
sched_config(const struct sched *sched)
{
    return &sched->config;
}

const struct traffic *
sched_traffic(const struct sched *sched)
{
    return sched->traffic;
}

const struct ttft *
sched_ttft(const struct sched *sched)
{
    return &sched->ttft;
}

const struct sched_counters *
sched_counters(const struct sched *sched)
{
    return &sched->counters;
}

struct sched_gauges
sched_gauges(const struct sched *sched)
{
    struct sched_gauges gauges = {
        .waiting = sched->waiting_count,
        .running = sched->running_count - sched->background_count,
        .background = sched->background_count,
        .starving = sched->starving_count,
        .forgets = sched->forget_count,
        .docs_in_quarantine = sched->quarantined_count,
        .is_draining = sched->is_draining,
    };

    LIST_FOR_EACH(node, &sched->kept)
    {
        gauges.kept++;
    }
    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        gauges.workers += sched->workers[i].is_ready;
        gauges.workers_ready += sched->workers[i].is_ready && !sched->workers[i].is_draining;
    }
    return gauges;
}

bool
sched_worker_info(const struct sched *sched, uint32_t worker, struct sched_worker_info *info_out)
{
    const struct worker *w;

    if (worker >= SCHED_WORKERS_MAX || !sched->workers[worker].is_known) {
        return false;
    }
    w = &sched->workers[worker];
    *info_out = w->info;
    info_out->incarnation = w->incarnation;
    info_out->is_ready = w->is_ready;
    info_out->is_draining = w->is_draining;
    info_out->running = w->assigned;
    info_out->seqs_max = w->seqs_max;
    return true;
}

const struct session *
sched_next_session(const struct sched *sched, const struct session *cursor)
{
    struct htab_node *node = htab_next(&sched->sessions, cursor == NULL ? NULL : &cursor->by_id);

    return node == NULL ? NULL : HTAB_ENTRY(node, struct session, by_id);
}
