/* SPDX-License-Identifier: Apache-2.0 */
/* What outlived an earlier kvasird: its arenas, and the workers that have them mapped.
 *
 * A worker that comes back keeps its number and its incarnation: late messages and fences of its
 * life stay known by them.  It loads nothing and offers nothing, so one datagram each way is all.
 */
#include "daemon/handoff_state.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void
handoff_name_pool(struct handoff *h, const uint8_t *id)
{
    memcpy(h->pool_id, id, sizeof(h->pool_id));
}

void
handoff_use_host(struct handoff *h, int fd, uint64_t bytes, bool is_adopted)
{
    h->is_host_adopted = is_adopted;
    h->host_fd = fd;
    h->host_bytes = bytes;
}

enum status
handoff_adopt(struct handoff *h, const struct arenas *arenas, const char *device)
{
    assert(!arenas_are_held(&h->arenas));
    TRY(offer_check_held(arenas));
    h->arenas = *arenas;
    (void)snprintf(h->device, sizeof(h->device), "%s", device);
    return ST_OK;
}

void
handoff_expect(struct handoff *h, uint32_t worker, uint64_t incarnation, pid_t pid)
{
    assert(worker < SCHED_WORKERS_MAX && !h->is_taken[worker]);
    h->is_taken[worker] = true;
    h->expected[worker] = (struct expected){.incarnation = incarnation, .pid = pid};
}

const char *
handoff_device(const struct handoff *h)
{
    return h->device;
}

const struct arenas *
handoff_arenas(const struct handoff *h)
{
    return &h->arenas;
}

const uint8_t *
handoff_pool_id(const struct handoff *h)
{
    return h->pool_id;
}

uint64_t
handoff_life(const struct handoff *h)
{
    return h->life;
}

static enum status
check_return(const struct handoff *h, const struct connection *c, const Kvasir__V1__Attach *attach)
{
    if (attach->pool_id.len != sizeof(h->pool_id)
        || memcmp(attach->pool_id.data, h->pool_id, sizeof(h->pool_id)) != 0) {
        return ERR(ST_INVALID, "the worker is back with the arenas of another pool: it must start "
                               "anew");
    }
    if (attach->worker >= SCHED_WORKERS_MAX
        || h->expected[attach->worker].incarnation != attach->incarnation
        || attach->incarnation == 0 || h->expected[attach->worker].pid != c->event.pid) {
        return ERR(ST_INVALID,
                   "nobody expects worker %" PRIu32 " of incarnation %" PRIu64
                   ", process %d: it must start anew",
                   attach->worker, attach->incarnation, (int)c->event.pid);
    }
    if (attach->maps_host && !h->is_host_adopted) {
        return ERR(ST_INVALID, "the worker is back with the memory of a host tier that is no more: "
                               "it must start anew");
    }
    return ST_OK;
}

enum status
handoff_take_back(struct handoff *h, struct connection *c, const Kvasir__V1__Attach *attach)
{
    Kvasir__V1__AttachReply reply = KVASIR__V1__ATTACH_REPLY__INIT;

    TRY(check_return(h, c, attach));
    reply.has_worker = reply.has_incarnation = reply.has_life = true;
    reply.worker = attach->worker;
    reply.incarnation = attach->incarnation;
    reply.life = h->life;
    reply.worker_endpoint = h->worker_endpoint;
    reply.has_pool_id = reply.has_orphan_timeout_ms = reply.has_step_timeout_ms = true;
    reply.step_timeout_ms = h->config.step_timeout_ms;
    reply.pool_id = (ProtobufCBinaryData){sizeof(h->pool_id), h->pool_id};
    reply.orphan_timeout_ms = h->config.orphan_timeout_ms;
    reply.has_step_tokens = reply.has_heartbeat_ms = reply.has_is_deterministic = true;
    reply.step_tokens = h->config.step_tokens;
    reply.heartbeat_ms = h->config.heartbeat_ms;
    reply.is_deterministic = h->config.is_deterministic;
    TRY(datagram_send(c->socket, &reply.base, NULL, 0));
    c->event.worker = attach->worker;
    c->event.incarnation = attach->incarnation;
    c->event.maps_host = attach->maps_host;
    c->event.block_count = h->arenas.block_count;
    c->event.block_bytes = h->arenas.block_bytes;
    handoff_end_talk(c, HANDOFF_REJOINED);
    return ST_OK;
}
