/* SPDX-License-Identifier: Apache-2.0 */
/* The real kvasir-worker under a kvasird played by the test: attach, the fds it hands over, a
 * document built by one worker and read by another, and every way to end. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <zmq.h>

#include "common/mem.h"
#include "kvpool/arena.h"
#include "model/checkpoint.h"
#include "model/tiny_model.h"
#include "proto/frames.h"
#include "proto/wire.h"
#include "tests/support/check_main.h"
#include "tests/support/process.h"

#include "kvasir/v1/worker.pb-c.h"

#define PATIENT_MS  20000 /* a heartbeat so slow that silence never ends a test by chance */
#define INCARNATION 4711

struct stage {
    char dir[64];
    char model[96];
    char attach_path[96];
    char endpoint[112];
    int listener;
    void *context;
    void *router;
    struct wire_arena *arena;
    int fds[2]; /* KV, weights */
    uint64_t arena_bytes[2];
    char mechanisms[2][16];
    uint32_t block_count;
    uint32_t heartbeat_ms;
    double kv_percent;       /* 0: 4 MiB */
    uint8_t fingerprint[32]; /* the pool's */
    bool has_fingerprint;
    uint8_t checkpoint[32]; /* what kvasird says its fingerprint is; empty: nothing */
    uint8_t identity[32];
    bool has_checkpoint;
};

struct actor {
    struct process *process;
    uint32_t worker;
    char routing_id[64];
    size_t routing_length;
};

/* --- kvasird's part
 * -------------------------------------------------------------------------------- */

static void
stage_open(struct stage *stage)
{
    struct tiny_model_config tiny = tiny_model_defaults();
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    *stage = (struct stage){.fds = {-1, -1}, .heartbeat_ms = PATIENT_MS};
    (void)snprintf(stage->dir, sizeof(stage->dir),
                   "/tmp/kvasir-test-"
                   "XX"
                   "XX"
                   "XX");
    ck_assert_ptr_nonnull(mkdtemp(stage->dir));
    (void)snprintf(stage->model, sizeof(stage->model), "%s/tiny.gguf", stage->dir);
    (void)snprintf(stage->attach_path, sizeof(stage->attach_path), "%s/attach.sock", stage->dir);
    (void)snprintf(stage->endpoint, sizeof(stage->endpoint), "ipc://%s/worker.sock", stage->dir);
    ck_assert_int_eq(tiny_model_write(&tiny, stage->model), ST_OK);
    stage->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    (void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", stage->attach_path);
    ck_assert_int_eq(bind(stage->listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
    ck_assert_int_eq(listen(stage->listener, 8), 0);
    stage->context = zmq_ctx_new();
    stage->router = zmq_socket(stage->context, ZMQ_ROUTER);
    ck_assert_int_eq(frames_configure(stage->router, ZMQ_ROUTER, 1000, WIRE_WORKER_BYTES_MAX),
                     ST_OK);
    ck_assert_int_eq(zmq_bind(stage->router, stage->endpoint), 0);
    ck_assert_int_eq(wire_arena_new(&stage->arena), ST_OK);
}

static void
stage_close(struct stage *stage)
{
    char socket_path[112];

    (void)zmq_close(stage->router);
    (void)zmq_ctx_term(stage->context);
    (void)close(stage->listener);
    for (size_t i = 0; i < 2; i++) {
        if (stage->fds[i] >= 0) {
            (void)close(stage->fds[i]);
        }
    }
    wire_arena_destroy(&stage->arena);
    (void)snprintf(socket_path, sizeof(socket_path), "%s/worker.sock", stage->dir);
    (void)unlink(socket_path);
    (void)unlink(stage->attach_path);
    (void)unlink(stage->model);
    ck_assert_int_eq(rmdir(stage->dir), 0);
}

static void
wait_for(int fd)
{
    struct pollfd item = {.fd = fd, .events = POLLIN};
    int n;

    do {
        n = poll(&item, 1, process_patience_ms());
    } while (n < 0 && errno == EINTR);
    ck_assert_int_eq(n, 1);
}

static const void *
parse(struct stage *stage, const ProtobufCMessageDescriptor *type, const void *bytes, size_t n)
{
    const ProtobufCMessage *message = NULL;

    wire_arena_reset(stage->arena);
    ck_assert_msg(wire_unpack(stage->arena, type, bytes, n, WIRE_WORKER_BYTES_MAX, &message)
                      == ST_OK,
                  "%s", status_detail());
    return message;
}

static void
send_reply(int fd, const Kvasir__V1__AttachReply *reply, const int *fds, size_t n_fds)
{
    struct wire_buffer buffer = {0};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 2)];
    } control = {0};

    ck_assert_int_eq(wire_pack(&buffer, &reply->base), ST_OK);
    struct iovec iov = {.iov_base = buffer.bytes, .iov_len = buffer.length};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};

    if (n_fds > 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&header);

        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(cmsg), fds, sizeof(int) * n_fds);
    }
    ck_assert_int_eq(sendmsg(fd, &header, MSG_NOSIGNAL), (ssize_t)buffer.length);
    wire_buffer_deinit(&buffer);
}

/* One datagram and the fds that came with it, in order of arrival. */
static size_t
receive(int fd, uint8_t *bytes, size_t max, int fds[2], size_t *n_fds)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 2)];
    } control;
    struct iovec iov = {.iov_base = bytes, .iov_len = max};
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};

    wait_for(fd);
    ssize_t n = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&header);

    *n_fds = cmsg == NULL ? 0 : (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    if (*n_fds > 0) {
        memcpy(fds, CMSG_DATA(cmsg), *n_fds * sizeof(int));
    }
    ck_assert_int_ge(n, 0);
    return (size_t)n;
}

static void
fill_reply(struct stage *stage, Kvasir__V1__AttachReply *reply, Kvasir__V1__ArenaInfo infos[2])
{
    kvasir__v1__attach_reply__init(reply);
    reply->model_path = stage->model;
    reply->has_kv_memory = true;
    reply->kv_memory = stage->kv_percent > 0 ? 0 : 4u << 20;
    reply->has_kv_percent = true;
    reply->kv_percent = stage->kv_percent;
    reply->has_block_tokens = true;
    reply->block_tokens = 16;
    reply->has_step_tokens = true;
    reply->step_tokens = 64;
    reply->worker_endpoint = stage->endpoint;
    reply->has_heartbeat_ms = true;
    reply->heartbeat_ms = stage->heartbeat_ms;
    reply->has_block_count = true;
    reply->block_count = stage->block_count;
    if (stage->has_fingerprint) {
        reply->has_pool_fingerprint = true;
        reply->pool_fingerprint = (ProtobufCBinaryData){.len = 32, .data = stage->fingerprint};
    }
    if (stage->has_checkpoint) {
        reply->has_checkpoint_fingerprint = reply->has_checkpoint_identity = true;
        reply->checkpoint_fingerprint = (ProtobufCBinaryData){.len = 32, .data = stage->checkpoint};
        reply->checkpoint_identity = (ProtobufCBinaryData){.len = 32, .data = stage->identity};
    }
    for (size_t i = 0; i < 2; i++) {
        kvasir__v1__arena_info__init(&infos[i]);
        infos[i].has_kind = true;
        infos[i].kind =
            i == 0 ? KVASIR__V1__ARENA_KIND__ARENA_KV : KVASIR__V1__ARENA_KIND__ARENA_WEIGHTS;
        infos[i].has_is_present = true;
        infos[i].is_present = stage->fds[i] >= 0;
        infos[i].mechanism = stage->mechanisms[i];
        infos[i].has_must_create = true;
        infos[i].must_create = stage->fds[i] < 0;
        infos[i].has_bytes = true;
        infos[i].bytes = stage->arena_bytes[i];
    }
}

static void
take_attached(struct stage *stage, int fd)
{
    static uint8_t bytes[65536];
    int fds[2] = {-1, -1};
    size_t n_fds;
    size_t n = receive(fd, bytes, sizeof(bytes), fds, &n_fds);
    const Kvasir__V1__Attached *attached =
        parse(stage, &kvasir__v1__attached__descriptor, bytes, n);

    ck_assert_uint_eq(n_fds, attached->n_arenas);
    for (size_t i = 0; i < attached->n_arenas; i++) {
        size_t kind = attached->arenas[i]->kind == KVASIR__V1__ARENA_KIND__ARENA_KV ? 0 : 1;

        stage->fds[kind] = fds[i];
        (void)snprintf(stage->mechanisms[kind], sizeof(stage->mechanisms[kind]), "%s",
                       attached->arenas[i]->mechanism);
        stage->arena_bytes[kind] = attached->arenas[i]->bytes;
    }
    stage->block_count = attached->block_count;
    ck_assert_uint_eq(attached->pool_fingerprint.len, 32);
    memcpy(stage->fingerprint, attached->pool_fingerprint.data, 32);
    stage->has_fingerprint = true;
}

static struct process *
start(struct stage *stage)
{
    const char *args[] = {"--runtime-dir", stage->dir, "--seqs-max", "4", NULL};

    return process_start("./kvasir-worker", args, NULL);
}

/* The whole talk up to Ready. */
static struct actor
attach(struct stage *stage, uint32_t worker)
{
    struct actor actor = {.process = start(stage), .worker = worker};
    static uint8_t bytes[65536];
    Kvasir__V1__AttachReply reply;
    Kvasir__V1__ArenaInfo infos[2], *list[2] = {&infos[0], &infos[1]};
    int none[2];
    size_t n_fds;

    wait_for(stage->listener);
    int fd = accept(stage->listener, NULL, NULL);

    ck_assert_int_ge(fd, 0);
    size_t n = receive(fd, bytes, sizeof(bytes), none, &n_fds);
    const Kvasir__V1__Attach *hello = parse(stage, &kvasir__v1__attach__descriptor, bytes, n);

    ck_assert_str_eq(hello->device, "cpu");
    ck_assert_uint_eq(hello->seqs_max, 4);
    fill_reply(stage, &reply, infos);
    reply.n_arenas = 2;
    reply.arenas = list;
    send_reply(fd, &reply, stage->fds, stage->fds[0] >= 0 ? 2 : 0);
    take_attached(stage, fd);
    kvasir__v1__attach_reply__init(&reply);
    reply.has_worker = true;
    reply.worker = worker;
    reply.has_incarnation = true;
    reply.incarnation = INCARNATION + worker;
    send_reply(fd, &reply, NULL, 0);
    process_wait_ready(actor.process);
    (void)close(fd);
    return actor;
}

/* The next message of this worker that is not a heartbeat. */
static const Kvasir__V1__WorkerMessage *
hear(struct stage *stage, struct actor *actor)
{
    for (;;) {
        struct frames frames;
        zmq_pollitem_t item = {.socket = stage->router, .events = ZMQ_POLLIN};

        ck_assert_int_eq(zmq_poll(&item, 1, process_patience_ms()), 1);
        ck_assert_int_eq(frames_recv(stage->router, &frames), ST_OK);
        ck_assert_uint_eq(frames.count, 2);
        actor->routing_length = frames_length(&frames, 0);
        ck_assert_uint_le(actor->routing_length, sizeof(actor->routing_id));
        memcpy(actor->routing_id, frames_bytes(&frames, 0), actor->routing_length);
        const Kvasir__V1__WorkerMessage *message =
            parse(stage, &kvasir__v1__worker_message__descriptor, frames_bytes(&frames, 1),
                  frames_length(&frames, 1));

        frames_close(&frames);
        ck_assert_uint_eq(message->worker, actor->worker);
        ck_assert_uint_eq(message->incarnation, INCARNATION + actor->worker);
        if (message->body_case != KVASIR__V1__WORKER_MESSAGE__BODY_HEARTBEAT) {
            return message;
        }
    }
}

static void
tell(struct stage *stage, const struct actor *actor, Kvasir__V1__DaemonMessage *message)
{
    struct wire_buffer buffer = {0};

    message->has_incarnation = true;
    message->incarnation = INCARNATION + actor->worker;
    ck_assert_int_eq(wire_pack(&buffer, &message->base), ST_OK);
    ck_assert_int_eq(frames_send(stage->router,
                                 (struct frame[]){{actor->routing_id, actor->routing_length},
                                                  {buffer.bytes, buffer.length}},
                                 2),
                     ST_OK);
    wire_buffer_deinit(&buffer);
}

static void
hear_ready(struct stage *stage, struct actor *actor)
{
    const Kvasir__V1__WorkerMessage *message = hear(stage, actor);

    ck_assert_int_eq((int)message->body_case, KVASIR__V1__WORKER_MESSAGE__BODY_READY);
    ck_assert_uint_eq(message->ready->seqs_max, 4);
}

/* Asks a question over one document; returns the answer's ids. */
static void
ask(struct stage *stage, struct actor *actor, bool must_build, uint32_t own_block,
    uint32_t ids_out[8])
{
    Kvasir__V1__DaemonMessage message = KVASIR__V1__DAEMON_MESSAGE__INIT;
    Kvasir__V1__Assign assign = KVASIR__V1__ASSIGN__INIT;
    Kvasir__V1__AssignSegment segment = KVASIR__V1__ASSIGN_SEGMENT__INIT, *segments = &segment;
    Kvasir__V1__Build build = KVASIR__V1__BUILD__INIT, *builds = &build;
    Kvasir__V1__Sampling sampling = KVASIR__V1__SAMPLING__INIT;
    uint32_t document[20], blocks[2] = {5, 3}, query[3] = {70, 80, 90};
    uint32_t n = 0;
    bool is_sealed = false, is_over = false;

    for (uint32_t i = 0; i < 20; i++) {
        document[i] = 40 + i * 7;
    }
    build.has_build = true;
    build.build = 1;
    build.n_token_ids = 20;
    build.token_ids = document;
    segment.n_block_ids = build.n_block_ids = 2;
    segment.block_ids = build.block_ids = blocks;
    segment.has_n_tokens = true;
    segment.n_tokens = 20;
    segment.has_build = must_build;
    segment.build = must_build ? 1 : 0;
    sampling.has_max_tokens = true;
    sampling.max_tokens = 8;
    assign.has_request = true;
    assign.request = 99;
    assign.n_builds = must_build ? 1 : 0;
    assign.builds = &builds;
    assign.n_segments = 1;
    assign.segments = &segments;
    assign.has_own_offset = true;
    assign.own_offset = 20;
    assign.n_own_block_ids = 1;
    assign.own_block_ids = &own_block;
    assign.n_query_ids = 3;
    assign.query_ids = query;
    assign.sampling = &sampling;
    assign.has_ignore_end = true;
    assign.ignore_end = true;
    message.body_case = KVASIR__V1__DAEMON_MESSAGE__BODY_ASSIGN;
    message.assign = &assign;
    tell(stage, actor, &message);
    while (!is_over) {
        const Kvasir__V1__WorkerMessage *heard = hear(stage, actor);

        ck_assert_int_eq((int)heard->body_case, KVASIR__V1__WORKER_MESSAGE__BODY_STEP);
        is_sealed = is_sealed || heard->step->n_sealed > 0;
        for (size_t i = 0; i < heard->step->n_results; i++) {
            ck_assert_ptr_null(heard->step->results[i]->error);
            ck_assert_uint_lt(n, 8);
            ids_out[n++] = heard->step->results[i]->token_ids[0];
        }
        is_over = heard->step->n_released > 0;
    }
    ck_assert_uint_eq(n, 8);
    ck_assert_int_eq(is_sealed, must_build);
}

static void
leave(struct stage *stage, struct actor *actor, const char *reason)
{
    const Kvasir__V1__WorkerMessage *message = hear(stage, actor);

    ck_assert_int_eq((int)message->body_case, KVASIR__V1__WORKER_MESSAGE__BODY_BYE);
    ck_assert_str_eq(message->bye->reason, reason);
    ck_assert_int_eq(process_wait(actor->process), 0);
    process_destroy(&actor->process);
}

/* --- the play
 * -------------------------------------------------------------------------------------- */

START_TEST(a_second_worker_reads_what_the_first_has_built_and_survives_it)
{
    struct stage stage;
    uint32_t cold[8], hot[8];

    stage_open(&stage);
    struct actor first = attach(&stage, 0);

    ck_assert_int_ge(stage.fds[0], 0);
    ck_assert_int_ge(stage.fds[1], 0);
    ck_assert_uint_eq(stage.block_count, (4u << 20) / (16 * 2 * 2 * 2 * 64 * 4));
    hear_ready(&stage, &first);
    ask(&stage, &first, true, 7, cold);
    process_signal(first.process, SIGKILL);
    ck_assert_int_eq(process_wait(first.process), 128 + SIGKILL);
    process_destroy(&first.process);
    struct actor second = attach(&stage, 1);

    hear_ready(&stage, &second);
    ask(&stage, &second, false, 8, hot);
    ck_assert_mem_eq(cold, hot, sizeof(cold));
    process_signal(second.process, SIGTERM);
    leave(&stage, &second, "told to stop");
    stage_close(&stage);
}
END_TEST

START_TEST(a_drained_worker_says_bye_and_ends_well)
{
    struct stage stage;
    Kvasir__V1__DaemonMessage message = KVASIR__V1__DAEMON_MESSAGE__INIT;
    Kvasir__V1__DrainWorker drain = KVASIR__V1__DRAIN_WORKER__INIT;

    stage_open(&stage);
    struct actor actor = attach(&stage, 0);

    hear_ready(&stage, &actor);
    message.body_case = KVASIR__V1__DAEMON_MESSAGE__BODY_DRAIN;
    message.drain = &drain;
    tell(&stage, &actor, &message);
    leave(&stage, &actor, "drained");
    stage_close(&stage);
}
END_TEST

START_TEST(a_fenced_worker_ends_at_once_with_a_failure)
{
    struct stage stage;
    Kvasir__V1__DaemonMessage message = KVASIR__V1__DAEMON_MESSAGE__INIT;
    Kvasir__V1__Fenced fenced = KVASIR__V1__FENCED__INIT;

    stage_open(&stage);
    struct actor actor = attach(&stage, 0);

    hear_ready(&stage, &actor);
    message.body_case = KVASIR__V1__DAEMON_MESSAGE__BODY_FENCED;
    message.fenced = &fenced;
    tell(&stage, &actor, &message);
    ck_assert_int_eq(process_wait(actor.process), EXIT_FAILURE);
    process_destroy(&actor.process);
    stage_close(&stage);
}
END_TEST

START_TEST(a_worker_whose_daemon_is_silent_ends_with_a_failure)
{
    struct stage stage;

    stage_open(&stage);
    stage.heartbeat_ms = 50;
    struct actor actor = attach(&stage, 0);

    ck_assert_int_eq(process_wait(actor.process), EXIT_FAILURE);
    process_destroy(&actor.process);
    stage_close(&stage);
}
END_TEST

/* Accepts the worker and answers its Attach with this, and with the fds there are; it must give up.
 */
static void
check_refused(struct stage *stage, Kvasir__V1__AttachReply *reply)
{
    struct process *process = start(stage);
    static uint8_t bytes[65536];
    int none[2];
    size_t n_fds;

    wait_for(stage->listener);
    int fd = accept(stage->listener, NULL, NULL);

    (void)receive(fd, bytes, sizeof(bytes), none, &n_fds);
    send_reply(fd, reply, stage->fds, stage->fds[0] >= 0 ? 2 : 0);
    ck_assert_int_eq(process_wait(process), EXIT_FAILURE);
    process_destroy(&process);
    (void)close(fd);
}

START_TEST(a_share_of_what_is_free_is_resolved_by_the_worker_that_makes_the_kv)
{
    struct stage stage;

    stage_open(&stage);
    stage.kv_percent = 1.0;
    struct actor maker = attach(&stage, 0);
    uint64_t available = arena_shm_available();

    ck_assert_uint_ne(available, UINT64_MAX);
    ck_assert_uint_gt(stage.block_count, 0);
    /* Others use this machine too: half and twice are not missed. */
    ck_assert_uint_ge(stage.arena_bytes[0], available / 200);
    ck_assert_uint_le(stage.arena_bytes[0], available / 50);
    ck_assert_uint_eq(stage.arena_bytes[0] % stage.block_count, 0);

    uint32_t block_count = stage.block_count;
    struct actor user = attach(&stage, 1);

    ck_assert_uint_eq(stage.block_count, block_count);
    process_stop(&maker.process);
    process_stop(&user.process);
    stage_close(&stage);
}
END_TEST

START_TEST(a_refused_worker_ends_with_a_failure)
{
    struct stage stage;
    Kvasir__V1__AttachReply reply = KVASIR__V1__ATTACH_REPLY__INIT;
    char reason[] = "no room on this host";

    stage_open(&stage);
    reply.has_is_refused = true;
    reply.is_refused = true;
    reply.reason = reason;
    check_refused(&stage, &reply);
    stage_close(&stage);
}
END_TEST

START_TEST(a_worker_that_is_told_impossible_things_gives_up)
{
    struct stage stage;
    Kvasir__V1__AttachReply reply;
    Kvasir__V1__ArenaInfo infos[2], *list[2] = {&infos[0], &infos[1]};

    for (int what = 0; what < 11; what++) {
        stage_open(&stage);
        fill_reply(&stage, &reply, infos);
        reply.n_arenas = 2;
        reply.arenas = list;
        switch (what) {
        case 0:
            reply.has_kv_type = true;
            reply.kv_type = 1;
            break;
        case 1: reply.block_tokens = 17; break;
        case 2: reply.kv_memory = 100; break;
        case 3: reply.step_tokens = 3; break;
        case 4:
            reply.has_pool_fingerprint = true;
            reply.pool_fingerprint = (ProtobufCBinaryData){.len = 32, .data = stage.fingerprint};
            break;
        case 5: infos[0].is_present = true; break; /* and no fd comes */
        case 6: infos[0].kind = KVASIR__V1__ARENA_KIND__ARENA_WEIGHTS; break;
        case 7: reply.n_arenas = 1; break;
        case 8: reply.kv_memory = 0; break; /* and no share */
        case 9:
            reply.kv_memory = 0;
            reply.kv_percent = 100.1;
            break;
        case 10: /* not a block, on any machine */
            reply.kv_memory = 0;
            reply.kv_percent = 1e-12;
            break;
        default: break;
        }
        check_refused(&stage, &reply);
        stage_close(&stage);
    }
}
END_TEST

/* A fingerprint that the file does not have shows who hashes: only a worker that does not would
 * take it. */
static void
say_fingerprint(struct stage *stage, uint8_t byte)
{
    struct checkpoint *checkpoint;

    ck_assert_int_eq(checkpoint_open(stage->model, &checkpoint), ST_OK);
    ck_assert_int_eq(checkpoint_identity(checkpoint, stage->identity), ST_OK);
    checkpoint_close(&checkpoint);
    memset(stage->checkpoint, byte, sizeof(stage->checkpoint));
    stage->has_checkpoint = true;
}

START_TEST(a_worker_of_the_same_files_does_not_hash_them)
{
    struct stage stage;

    stage_open(&stage);
    say_fingerprint(&stage, 7);
    struct actor first = attach(&stage, 0);
    struct actor second = attach(&stage, 1); /* arrives at the same pool fingerprint, or ends */

    process_signal(first.process, SIGTERM);
    process_signal(second.process, SIGTERM);
    ck_assert_int_eq(process_wait(first.process), 0);
    ck_assert_int_eq(process_wait(second.process), 0);
    process_destroy(&first.process);
    process_destroy(&second.process);
    stage_close(&stage);
}
END_TEST

START_TEST(a_worker_of_other_files_hashes_them_and_finds_out)
{
    struct stage stage;
    Kvasir__V1__AttachReply reply;
    Kvasir__V1__ArenaInfo infos[2], *list[2] = {&infos[0], &infos[1]};

    stage_open(&stage);
    say_fingerprint(&stage, 7);
    stage.identity[0] ^= 1;
    fill_reply(&stage, &reply, infos);
    reply.n_arenas = 2;
    reply.arenas = list;
    check_refused(&stage, &reply);
    stage_close(&stage);
}
END_TEST

START_TEST(a_worker_does_not_map_the_weights_of_another_checkpoint)
{
    struct stage stage;
    Kvasir__V1__AttachReply reply;
    Kvasir__V1__ArenaInfo infos[2], *list[2] = {&infos[0], &infos[1]};

    stage_open(&stage);
    say_fingerprint(&stage, 7);
    struct actor first = attach(&stage, 0);

    say_fingerprint(&stage, 8);
    stage.has_fingerprint = false;
    fill_reply(&stage, &reply, infos);
    reply.n_arenas = 2;
    reply.arenas = list;
    check_refused(&stage, &reply);
    process_signal(first.process, SIGTERM);
    ck_assert_int_eq(process_wait(first.process), 0);
    process_destroy(&first.process);
    stage_close(&stage);
}
END_TEST

CHECK_MAIN("worker_process", a_second_worker_reads_what_the_first_has_built_and_survives_it,
           a_drained_worker_says_bye_and_ends_well, a_fenced_worker_ends_at_once_with_a_failure,
           a_worker_whose_daemon_is_silent_ends_with_a_failure,
           a_share_of_what_is_free_is_resolved_by_the_worker_that_makes_the_kv,
           a_worker_of_the_same_files_does_not_hash_them,
           a_worker_of_other_files_hashes_them_and_finds_out,
           a_worker_does_not_map_the_weights_of_another_checkpoint,
           a_refused_worker_ends_with_a_failure, a_worker_that_is_told_impossible_things_gives_up)
