/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/attach.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/failpoint.h"
#include "kvpool/dockey.h"
#include "kvpool/kvpool.h"
#include "worker/attach_talk.h"
#include "worker/llama.h"
#include "worker/load_weights.h"
#include "worker/weights_record.h"

#include "kvasir/v1/worker.pb-c.h"

#define LOOK_AGAIN_MS 100

#define SHARE_GRAIN (2u << 20) /* bytes in which a device gives memory: a share is no more */

/* --- what kvasird asks for ----------------------------------------------------------- */

static const char *
kv_type_name(uint32_t type)
{
    return type == KV_F32 ? "f32" : type == KV_BF16 ? "bf16" : "of another version";
}

static enum status
take_settings(struct attachment *a, const Kvasir__V1__AttachReply *reply, uint32_t seqs_max)
{
    a->heartbeat_ms = reply->heartbeat_ms;
    a->step_tokens = reply->step_tokens;
    a->is_deterministic = reply->is_deterministic;
    a->orphan_timeout_ms = reply->orphan_timeout_ms;
    a->step_timeout_ms = reply->step_timeout_ms;
    if (reply->has_pool_id && reply->pool_id.len == sizeof(a->pool_id)) {
        memcpy(a->pool_id, reply->pool_id.data, sizeof(a->pool_id));
    }
    if (reply->model_path == NULL || reply->worker_endpoint == NULL || reply->heartbeat_ms == 0) {
        return ERR(ST_INVALID, "attach reply without model_path, worker_endpoint or heartbeat_ms");
    }
    if (strlen(reply->worker_endpoint) >= sizeof(a->worker_endpoint)) {
        return ERR(ST_INVALID, "worker_endpoint of %zu bytes: at most %zu",
                   strlen(reply->worker_endpoint), sizeof(a->worker_endpoint) - 1);
    }
    (void)snprintf(a->worker_endpoint, sizeof(a->worker_endpoint), "%s", reply->worker_endpoint);
    if (a->step_tokens < seqs_max || a->step_tokens > LLAMA_ROWS_MAX) {
        return ERR(ST_INVALID, "steps of %" PRIu32 " tokens: --seqs-max %" PRIu32 " to %u",
                   a->step_tokens, seqs_max, LLAMA_ROWS_MAX);
    }
    const struct device_kind *kind = a->device->kind;

    if (reply->kv_type != kind->kv_type || reply->kv_layout != kind->kv_layout) {
        return ERR(ST_INVALID,
                   "kvasird has --kv-type %s (layout %" PRIu32 "), device %s keeps %s (layout %u)",
                   kv_type_name(reply->kv_type), reply->kv_layout, a->device->name,
                   kv_type_name(kind->kv_type), kind->kv_layout);
    }
    return ST_OK;
}

static enum status
check_fingerprint(const char *what, ProtobufCBinaryData expected, const uint8_t ours[32])
{
    if (expected.len != 0 && (expected.len != 32 || memcmp(expected.data, ours, 32) != 0)) {
        return ERR(ST_INVALID,
                   "the %s fingerprint is not kvasird's: has the file changed under it?", what);
    }
    return ST_OK;
}

/* The fingerprint of what was opened: kvasird's, if it opened the same files, since hashing a large
 * checkpoint takes longer than all the rest of a start. */
static enum status
take_fingerprint(struct attachment *a, const Kvasir__V1__AttachReply *reply)
{
    const ProtobufCBinaryData *identity = &reply->checkpoint_identity;
    const ProtobufCBinaryData *fingerprint = &reply->checkpoint_fingerprint;
    uint8_t ours[32];

    if (fingerprint->len == 32 && identity->len == 32
        && checkpoint_identity(a->checkpoint, ours) == ST_OK
        && memcmp(identity->data, ours, sizeof(ours)) == 0) {
        memcpy(a->model.fingerprint, fingerprint->data, sizeof(a->model.fingerprint));
        return ST_OK;
    }
    talk_tell_supervisor(TALK_EXTEND_TIMEOUT "\nSTATUS=hashing the model");
    TRY(checkpoint_fingerprint(a->checkpoint, a->model.fingerprint));
    return check_fingerprint("checkpoint", *fingerprint, a->model.fingerprint);
}

static enum status
open_model(struct attachment *a, const Kvasir__V1__AttachReply *reply)
{
    const struct device_kind *kind = a->device->kind;
    struct pool_identity identity = {.kv_type = kind->kv_type,
                                     .kv_layout = kind->kv_layout,
                                     .block_tokens = reply->block_tokens};

    talk_tell_supervisor(TALK_EXTEND_TIMEOUT "\nSTATUS=opening the model");
    TRY(checkpoint_open(reply->model_path, &a->checkpoint));
    a->model = *checkpoint_config(a->checkpoint);
    TRY(take_fingerprint(a, reply));
    a->tokenizer = checkpoint_tokenizer(a->checkpoint);
    memcpy(identity.checkpoint, a->model.fingerprint, sizeof(identity.checkpoint));
    tokenizer_fingerprint(a->tokenizer, identity.tokenizer);
    TRY(pool_fingerprint(&identity, a->pool_fingerprint));
    TRY(check_fingerprint("pool", reply->pool_fingerprint, a->pool_fingerprint));
    a->layout = (struct kv_layout){.P = reply->block_tokens,
                                   .L = a->model.L,
                                   .Hkv = a->model.Hkv,
                                   .D = a->model.D,
                                   .type = kind->kv_type,
                                   .id = kind->kv_layout};
    TRY(kv_layout_check(&a->layout));
    return checkpoint_plan_weights(a->checkpoint, kind->weight_type, kind->keeps_quantised,
                                   &a->plan);
}

static void
report_progress(void *arg, size_t bytes_done, size_t bytes_total)
{
    int *percent_told = (int *)arg;
    int percent = bytes_total == 0 ? 100 : (int)(100.0 * (double)bytes_done / (double)bytes_total);
    char line[96];

    if (percent >= *percent_told + 10) {
        *percent_told = percent;
        (void)snprintf(line, sizeof(line), TALK_EXTEND_TIMEOUT "\nSTATUS=loading weights, %d %%",
                       percent);
        talk_tell_supervisor(line);
    }
}

/* Bytes of KV to make: what kvasird says, or its share of what is free now. */
static enum status
choose_kv_bytes(const struct attachment *a, const Kvasir__V1__AttachReply *reply,
                uint64_t *bytes_out)
{
    size_t block_bytes = kv_layout_block_bytes(&a->layout);
    uint64_t bytes = reply->kv_memory;
    uint64_t free_bytes = a->memory.free_after_workspace;

    if (bytes > 0) {
        if (bytes / block_bytes == 0 || bytes / block_bytes > KVPOOL_BLOCKS_MAX) {
            return ERR(ST_INVALID,
                       "--kv-memory of %" PRIu64 " bytes is %" PRIu64 " blocks of %zu: 1 to %u",
                       bytes, bytes / block_bytes, block_bytes, KVPOOL_BLOCKS_MAX);
        }
        *bytes_out = bytes;
        return ST_OK;
    }
    if (!(reply->kv_percent > 0.0 && reply->kv_percent <= 100.0)) {
        return ERR(ST_INVALID, "attach reply with neither kv_memory nor kv_percent in (0, 100]: %g",
                   reply->kv_percent);
    }
    bytes =
        (uint64_t)((double)free_bytes * (reply->kv_percent / 100.0)) / SHARE_GRAIN * SHARE_GRAIN;
    if (bytes < block_bytes) {
        return ERR(ST_NO_MEMORY,
                   "--kv-memory %g%% of the %" PRIu64 " bytes that %s has free after weights and "
                   "workspace is %" PRIu64 ": less than a block of %zu",
                   reply->kv_percent, free_bytes, a->device->name, bytes, block_bytes);
    }
    /* A share is what fits: more than the pool can count stays free. */
    *bytes_out =
        bytes / block_bytes > KVPOOL_BLOCKS_MAX ? (uint64_t)KVPOOL_BLOCKS_MAX * block_bytes : bytes;
    return ST_OK;
}

static enum status
make_kv(struct attachment *a, const Kvasir__V1__AttachReply *reply)
{
    size_t block_bytes = kv_layout_block_bytes(&a->layout);
    uint64_t bytes = 0;

    TRY(choose_kv_bytes(a, reply, &bytes));
    a->block_count = (uint32_t)(bytes / block_bytes);
    a->has_made_kv = true;
    return device_create_arena(a->device, "kvasir-kv", a->block_count * block_bytes, &a->kv);
}

static enum status
map_kv(struct attachment *a, uint32_t block_count, const char *mechanism, int fd)
{
    if (block_count == 0 || block_count > KVPOOL_BLOCKS_MAX) {
        (void)close(fd);
        return ERR(ST_INVALID, "%" PRIu32 " blocks: 1 to %u", block_count, KVPOOL_BLOCKS_MAX);
    }
    a->block_count = block_count;
    return device_import_arena(a->device, mechanism, fd,
                               block_count * kv_layout_block_bytes(&a->layout), true, &a->kv);
}

static enum status
make_weights(struct attachment *a)
{
    int percent_told = -10;

    a->has_made_weights = true;
    TRY(device_create_arena(a->device, "kvasir-weights", weights_record_arena_bytes(&a->plan),
                            &a->weights));
    return load_weights(a->device->kind, a->checkpoint, &a->plan, arena_base(a->weights),
                        report_progress, &percent_told);
}

/* The workspace is there: what it has measured is known. */
static enum status
seal_weights(struct attachment *a)
{
    TRY(weights_record_write(a->device->kind, &a->plan, a->model.fingerprint, &a->tuning,
                             arena_base(a->weights)));
    return arena_seal_readonly(a->weights);
}

/* Reads no tensor: what the maker left at the end says what they are. */
static enum status
map_weights(struct attachment *a, const char *mechanism, int fd)
{
    TRY(device_import_arena(a->device, mechanism, fd, weights_record_arena_bytes(&a->plan), false,
                            &a->weights));
    return weights_record_check(a->device->kind, &a->plan, a->model.fingerprint,
                                arena_base(a->weights), &a->tuning);
}

/* What kvasird says of an arena: its fd if it is there, else it is to be made. */
struct arena_order {
    const char *mechanism;
    uint64_t bytes;
    int *fd; /* in the caller's list; NULL: to be made */
    bool is_given;
};

/* KV and weights are always there; the host tier's memory only where kvasird has some. */
enum order_index {
    ORDER_KV,
    ORDER_WEIGHTS,
    ORDER_HOST,
    ORDERS,
};

static enum status
check_orders(const struct arena_order orders[ORDERS])
{
    if (!orders[ORDER_KV].is_given || !orders[ORDER_WEIGHTS].is_given) {
        return ERR(ST_INVALID, "attach reply without a KV or a weights arena");
    }
    if (orders[ORDER_HOST].is_given && orders[ORDER_HOST].fd == NULL) {
        return ERR(ST_INVALID, "a host tier that is to be made: kvasird makes it");
    }
    return ST_OK;
}

static enum status
read_orders(const Kvasir__V1__AttachReply *reply, int fds[TALK_FDS_MAX],
            struct arena_order orders[ORDERS])
{
    static const Kvasir__V1__ArenaKind kinds[ORDERS] = {KVASIR__V1__ARENA_KIND__ARENA_KV,
                                                        KVASIR__V1__ARENA_KIND__ARENA_WEIGHTS,
                                                        KVASIR__V1__ARENA_KIND__ARENA_HOST};
    size_t next_fd = 0;

    for (size_t i = 0; i < reply->n_arenas; i++) {
        const Kvasir__V1__ArenaInfo *info = reply->arenas[i];
        size_t index = 0;

        while (index < ORDERS && info->kind != kinds[index]) {
            index++;
        }
        if (index == ORDERS || orders[index].is_given) {
            return ERR(ST_INVALID, "an arena of kind %d: unknown, or there twice", (int)info->kind);
        }
        if (info->is_present && (next_fd >= TALK_FDS_MAX || fds[next_fd] < 0)) {
            return ERR(ST_INVALID, "an arena that is present comes without its fd");
        }
        orders[index] = (struct arena_order){
            .mechanism = info->mechanism != NULL ? info->mechanism : "",
            .bytes = info->bytes,
            .fd = info->is_present ? &fds[next_fd++] : NULL,
            .is_given = info->is_present || info->must_create,
        };
    }
    return check_orders(orders);
}

static int
take_fd(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

/* Nothing is pinned yet: that is the mover's, once the worker serves. */
static enum status
map_host(struct attachment *a, const struct arena_order *order)
{
    return order->is_given ? arena_shm.import(take_fd(order->fd), order->bytes, true, &a->host)
                           : ST_OK;
}

/* Maps what is there, makes what is missing: weights, then the workspace, then KV, which may be all
 * that is left.  Takes every fd that it uses out of `fds`. */
static enum status
take_arenas(const struct attach_options *options, struct attachment *a,
            const Kvasir__V1__AttachReply *reply, int fds[TALK_FDS_MAX])
{
    struct arena_order orders[ORDERS] = {0};
    const struct arena_order *kv = &orders[ORDER_KV], *weights = &orders[ORDER_WEIGHTS];
    const struct device_kind *kind = a->device->kind;

    TRY(read_orders(reply, fds, orders));
    TRY(map_host(a, &orders[ORDER_HOST]));
    TRY(kind->free_bytes(&a->memory.free_at_start));
    TRY(weights->fd == NULL ? make_weights(a)
                            : map_weights(a, weights->mechanism, take_fd(weights->fd)));
    TRY(kind->free_bytes(&a->memory.free_after_weights));
    if (options->make_workspace != NULL) {
        talk_tell_supervisor(TALK_EXTEND_TIMEOUT "\nSTATUS=making the workspace");
        TRY(options->make_workspace(options->arg, a));
    }
    if (a->has_made_weights) {
        TRY(seal_weights(a));
    }
    TRY(kind->free_bytes(&a->memory.free_after_workspace));
    TRY(kv->fd == NULL ? make_kv(a, reply)
                       : map_kv(a, reply->block_count, kv->mechanism, take_fd(kv->fd)));
    return kind->free_bytes(&a->memory.free_at_end);
}

static enum status
answer(struct attachment *a)
{
    Kvasir__V1__Attached attached = KVASIR__V1__ATTACHED__INIT;
    Kvasir__V1__ArenaInfo infos[ORDER_HOST];
    Kvasir__V1__ArenaInfo *list[ORDER_HOST] = {&infos[0], &infos[1]};
    const struct {
        bool is_made;
        Kvasir__V1__ArenaKind kind;
        const struct arena *arena;
    } arenas[] = {
        {a->has_made_kv, KVASIR__V1__ARENA_KIND__ARENA_KV, a->kv},
        {a->has_made_weights, KVASIR__V1__ARENA_KIND__ARENA_WEIGHTS, a->weights},
    };
    char mechanisms[ORDER_HOST][16]; /* protobuf-c takes no const strings */
    int fds[ORDER_HOST];
    size_t n = 0;

    for (size_t i = 0; i < ORDER_HOST; i++) {
        if (arenas[i].is_made) {
            kvasir__v1__arena_info__init(&infos[n]);
            infos[n].has_kind = true;
            infos[n].kind = arenas[i].kind;
            infos[n].has_bytes = true;
            infos[n].bytes = arena_bytes(arenas[i].arena);
            infos[n].has_is_present = true;
            infos[n].is_present = true;
            (void)snprintf(mechanisms[n], sizeof(mechanisms[n]), "%s",
                           arena_mechanism(arenas[i].arena));
            infos[n].mechanism = mechanisms[n];
            fds[n++] = arena_fd(arenas[i].arena);
        }
    }
    attached.n_arenas = n;
    attached.arenas = list;
    attached.has_block_bytes = true;
    attached.block_bytes = kv_layout_block_bytes(&a->layout);
    attached.has_block_count = true;
    attached.block_count = a->block_count;
    attached.has_pool_fingerprint = true;
    attached.pool_fingerprint = (ProtobufCBinaryData){.len = 32, .data = a->pool_fingerprint};
    return talk_send(a->socket, &attached.base, fds, n);
}

/* --- finding the daemon ----------------------------------------------------------------------- */

/* Who starts both at once starts the daemon first, but its sockets come when it has read the model.
 */
static enum status
find_daemon(const struct attach_options *options, int *socket_out)
{
    uint64_t until_us = clock_now_us() + options->patience_us;
    enum status st;

    while ((st = talk_connect(options->runtime_dir, socket_out)) == ST_UNAVAILABLE
           && clock_now_us() < until_us) {
        struct pollfd stop = {.fd = options->stop_fd, .events = POLLIN};

        if (poll(&stop, 1, LOOK_AGAIN_MS) > 0) {
            return ERR(ST_UNAVAILABLE, "told to stop");
        }
    }
    return st;
}

/* --- the talk ------------------------------------------------------------------------ */

static enum status
talk(const struct attach_options *options, struct attachment *a, int fds[TALK_FDS_MAX])
{
    Kvasir__V1__Attach attach = KVASIR__V1__ATTACH__INIT;
    const Kvasir__V1__AttachReply *reply = NULL;
    char device[DEVICE_NAME_MAX]; /* protobuf-c takes no const strings */
    char backend[DEVICE_NAME_MAX];

    a->device = options->device;
    a->runtime_dir = options->runtime_dir;
    a->seqs_max = options->seqs_max;
    (void)snprintf(device, sizeof(device), "%s", a->device->name);
    (void)snprintf(backend, sizeof(backend), "%s", a->device->kind->name);
    attach.has_version = true;
    attach.version = WIRE_VERSION;
    attach.device = device;
    attach.backend = backend;
    attach.has_seqs_max = true;
    attach.seqs_max = options->seqs_max;
    TRY(wire_arena_new(&a->replies));
    TRY(find_daemon(options, &a->socket));
    a->daemon_pidfd = talk_daemon_pidfd(a->socket);
    FAILPOINT(attach_connect);
    TRY(talk_send(a->socket, &attach.base, NULL, 0));
    FAILPOINT(attach_say);
    TRY(talk_receive(a, options->stop_fd, UINT64_MAX, fds, &reply));
    FAILPOINT(attach_orders);
    TRY(take_settings(a, reply, options->seqs_max));
    TRY(open_model(a, reply));
    FAILPOINT(attach_model);
    TRY(take_arenas(options, a, reply, fds));
    FAILPOINT(attach_arenas);
    TRY(answer(a));
    FAILPOINT(attach_offer);
    talk_close_fds(fds);
    TRY(talk_receive(a, options->stop_fd, UINT64_MAX, fds, &reply));
    a->worker = reply->worker;
    a->incarnation = reply->incarnation;
    FAILPOINT(attach_done);
    (void)close(a->socket);
    a->socket = -1;
    return ST_OK;
}

enum status
attach_open(const struct attach_options *options, struct attachment *attachment)
{
    int fds[TALK_FDS_MAX] = TALK_FDS_NONE;

    attachment->socket = -1;
    attachment->daemon_pidfd = -1;
    enum status st = talk(options, attachment, fds);

    talk_close_fds(fds);
    if (st != ST_OK) {
        attach_close(attachment);
    }
    return st;
}

void
attach_close(struct attachment *a)
{
    FAILPOINT(detach_unmap);
    if (a->socket > 0) {
        (void)close(a->socket);
    }
    if (a->daemon_pidfd > 0) {
        (void)close(a->daemon_pidfd);
    }
    a->socket = -1;
    a->daemon_pidfd = -1;
    wire_arena_destroy(&a->replies);
    arena_close(&a->kv);
    arena_close(&a->weights);
    arena_close(&a->host);
    checkpoint_close(&a->checkpoint);
}
