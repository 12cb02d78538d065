/* SPDX-License-Identifier: Apache-2.0 */
/* Coming back after a restart of kvasird: one datagram each way.  What was loaded and mapped stays,
 * so what the engine was made for must still be what kvasird wants. */
#include "worker/attach.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "worker/attach_talk.h"

static enum status
say_attach(const struct attachment *a)
{
    Kvasir__V1__Attach attach = KVASIR__V1__ATTACH__INIT;
    char device[DEVICE_NAME_MAX]; /* protobuf-c takes no const strings */
    char backend[DEVICE_NAME_MAX];
    uint8_t pool_id[sizeof(a->pool_id)];

    (void)snprintf(device, sizeof(device), "%s", a->device->name);
    (void)snprintf(backend, sizeof(backend), "%s", a->device->kind->name);
    memcpy(pool_id, a->pool_id, sizeof(pool_id));
    attach.has_version = attach.has_seqs_max = attach.has_pool_id = true;
    attach.has_worker = attach.has_incarnation = attach.has_maps_host = true;
    attach.version = WIRE_VERSION;
    attach.device = device;
    attach.backend = backend;
    attach.seqs_max = a->seqs_max;
    attach.pool_id = (ProtobufCBinaryData){sizeof(pool_id), pool_id};
    attach.worker = a->worker;
    attach.incarnation = a->incarnation;
    attach.maps_host = a->host != NULL;
    return talk_send(a->socket, &attach.base, NULL, 0);
}

static enum status
take_back(struct attachment *a, const Kvasir__V1__AttachReply *reply)
{
    if (reply->worker != a->worker || reply->incarnation != a->incarnation || reply->life == 0
        || reply->heartbeat_ms == 0 || reply->worker_endpoint == NULL
        || strlen(reply->worker_endpoint) >= sizeof(a->worker_endpoint)) {
        return ERR(ST_INVALID, "kvasird took back somebody else, or says too little");
    }
    if (reply->step_tokens != a->step_tokens || reply->is_deterministic != a->is_deterministic) {
        return ERR(ST_INVALID,
                   "kvasird wants steps of %" PRIu32 " tokens, deterministic=%d; this worker was "
                   "made for %" PRIu32 " and %d",
                   reply->step_tokens, reply->is_deterministic, a->step_tokens,
                   a->is_deterministic);
    }
    (void)snprintf(a->worker_endpoint, sizeof(a->worker_endpoint), "%s", reply->worker_endpoint);
    a->heartbeat_ms = reply->heartbeat_ms;
    a->orphan_timeout_ms = reply->orphan_timeout_ms;
    a->step_timeout_ms = reply->step_timeout_ms;
    a->life = reply->life;
    return ST_OK;
}

enum status
attach_again(struct attachment *a, int stop_fd, uint64_t until_us)
{
    const Kvasir__V1__AttachReply *reply = NULL;
    int fds[TALK_FDS_MAX] = TALK_FDS_NONE;
    int daemon_pidfd;
    enum status st;

    TRY(talk_connect(a->runtime_dir, &a->socket));
    daemon_pidfd = talk_daemon_pidfd(a->socket);
    st = say_attach(a);
    if (st == ST_OK) {
        st = talk_receive(a, stop_fd, until_us, fds, &reply);
    }
    if (st == ST_OK) {
        st = take_back(a, reply);
    }
    talk_close_fds(fds);
    (void)close(a->socket);
    a->socket = -1;
    if (st != ST_OK) {
        if (daemon_pidfd >= 0) {
            (void)close(daemon_pidfd);
        }
        return st;
    }
    if (a->daemon_pidfd >= 0) {
        (void)close(a->daemon_pidfd);
    }
    a->daemon_pidfd = daemon_pidfd;
    return ST_OK;
}
