/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fake_daemon.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "kvasir/v1/admin.pb-c.h"
#include "kvasir/v1/documents.pb-c.h"
#include "kvasir/v1/health.pb-c.h"
#include "kvasir/v1/rag.pb-c.h"
#include "kvasir/v1/wire.pb-c.h"
#include "proto/endpoints.h"
#include "proto/frames.h"
#include "proto/methods.h"
#include "proto/wire.h"

#define FLOOD_CHUNKS      160
#define FLOOD_CHUNK_BYTES 100000

struct fake_daemon {
    pthread_t thread;
    void *context;
    void *sockets[2]; /* client, admin */
    int stop_fd;
    int call_fd; /* a semaphore that counts calls */
    bool has_vanished;
    uint64_t held_id;
    struct wire_arena *arena;
    struct wire_buffer header;
    struct wire_buffer payload;
    atomic_uint calls;
    atomic_uint cancels;
};

/* One request being answered. */
struct exchange {
    struct fake_daemon *daemon;
    void *socket;
    const void *identity;
    size_t identity_length;
    uint64_t id;
    uint32_t seq;
};

static void
require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

static void
reply(struct exchange *to, Kvasir__V1__ReplyHeader *header, const ProtobufCMessage *payload)
{
    struct fake_daemon *daemon = to->daemon;

    header->has_request_id = true;
    header->request_id = to->id;
    header->has_seq = true;
    header->seq = to->seq++;
    require(wire_pack(&daemon->header, &header->base) == ST_OK);
    daemon->payload.length = 0;
    if (payload != NULL) {
        require(wire_pack(&daemon->payload, payload) == ST_OK);
    }
    struct frame parts[] = {{to->identity, to->identity_length},
                            {daemon->header.bytes, daemon->header.length},
                            {daemon->payload.bytes, daemon->payload.length}};

    (void)frames_send(to->socket, parts, payload == NULL ? 2 : 3); /* the client may be gone */
}

static void
end(struct exchange *to, enum rpc_code code, const char *message, const ProtobufCMessage *payload)
{
    Kvasir__V1__ReplyHeader header = KVASIR__V1__REPLY_HEADER__INIT;

    header.has_status = true;
    header.status = code;
    header.message = (char *)(uintptr_t)message;
    header.has_retry_after_ms = code == RPC_RESOURCE_EXHAUSTED;
    header.retry_after_ms = 250;
    reply(to, &header, payload);
}

static void
send_chunk(struct exchange *to, const char *text, uint32_t token)
{
    Kvasir__V1__ReplyHeader header = KVASIR__V1__REPLY_HEADER__INIT;
    Kvasir__V1__GenerateReply chunk = KVASIR__V1__GENERATE_REPLY__INIT;
    Kvasir__V1__TokenLogprob logprob = KVASIR__V1__TOKEN_LOGPROB__INIT;
    Kvasir__V1__TokenLogprob *logprobs[] = {&logprob};
    uint32_t top_ids[] = {token, token + 1};
    float top_logprobs[] = {-0.5f, -2.0f};

    header.has_more = true;
    header.more = true;
    chunk.has_text = true;
    chunk.text.data = (uint8_t *)(uintptr_t)text;
    chunk.text.len = strlen(text);
    chunk.token_ids = &token;
    chunk.n_token_ids = 1;
    logprob.has_id = true;
    logprob.id = token;
    logprob.has_logprob = true;
    logprob.logprob = -0.5f;
    logprob.top_ids = top_ids;
    logprob.n_top_ids = 2;
    logprob.top_logprobs = top_logprobs;
    logprob.n_top_logprobs = 2;
    chunk.logprobs = logprobs;
    chunk.n_logprobs = 1;
    reply(to, &header, &chunk.base);
}

static void
finish(struct exchange *to, const Kvasir__V1__GenerateRequest *request)
{
    Kvasir__V1__GenerateReply last = KVASIR__V1__GENERATE_REPLY__INIT;
    Kvasir__V1__Usage usage = KVASIR__V1__USAGE__INIT;
    Kvasir__V1__DocumentUsage document = KVASIR__V1__DOCUMENT_USAGE__INIT;
    Kvasir__V1__DocumentUsage *documents[] = {&document};
    size_t count = request->n_documents + request->n_segments;

    document.id = count == 0                 ? NULL
                  : request->n_documents > 0 ? request->documents[0]->id
                                             : request->segments[0]->id;
    document.has_tokens = true;
    document.tokens = 7;
    document.miss_reason = (char *)(uintptr_t) "cold";
    usage.documents = documents;
    usage.n_documents = count > 0;
    usage.has_completion_tokens = true;
    usage.completion_tokens = 3;
    usage.has_tokens_built = true;
    usage.tokens_built = 7;
    usage.has_ttft_us = true;
    usage.ttft_us = 1500;
    usage.has_total_us = true;
    usage.total_us = 2500;
    usage.has_seed = request->sampling != NULL && request->sampling->has_seed;
    usage.seed = usage.has_seed ? request->sampling->seed : 0;
    last.has_finish = true;
    last.finish = KVASIR__V1__FINISH_REASON__FINISH_STOP;
    last.usage = &usage;
    end(to, RPC_OK, NULL, &last.base);
}

static void
send_flood(struct exchange *to)
{
    char *text = malloc(FLOOD_CHUNK_BYTES + 1);

    require(text != NULL);
    memset(text, 'x', FLOOD_CHUNK_BYTES);
    text[FLOOD_CHUNK_BYTES] = '\0';
    for (int i = 0; i < FLOOD_CHUNKS; i++) {
        send_chunk(to, text, 1);
    }
    free(text);
}

static void
serve_generate(struct exchange *to, const Kvasir__V1__GenerateRequest *request)
{
    const char *text = request->n_messages > 0 ? request->messages[request->n_messages - 1]->content
                                               : request->query;

    text = text == NULL ? "" : text;
    if (strcmp(text, "full") == 0) {
        end(to, RPC_RESOURCE_EXHAUSTED, "queue of 8 requests: full", NULL);
        return;
    }
    if (strcmp(text, "late") == 0) {
        end(to, RPC_DEADLINE_EXCEEDED, "deadline of 5 ms passed", NULL);
        return;
    }
    if (strcmp(text, "flood") == 0) {
        send_flood(to);
    }
    send_chunk(to, "Hello ", 1);
    if (strcmp(text, "hold") == 0) {
        to->daemon->held_id = to->id;
    } else if (strcmp(text, "vanish") == 0) {
        to->daemon->has_vanished = true;
    } else if (strcmp(text, "gap") == 0) {
        to->seq++;
        send_chunk(to, "lost", 2);
    } else if (strcmp(text, "junk") == 0) {
        /* Field 5 is metadata there and usage here; the insides do not agree. */
        Kvasir__V1__RequestHeader junk = KVASIR__V1__REQUEST_HEADER__INIT;
        Kvasir__V1__Metadata entry = KVASIR__V1__METADATA__INIT;
        Kvasir__V1__Metadata *entries[] = {&entry};

        entry.key = (char *)(uintptr_t) "x";
        junk.metadata = entries;
        junk.n_metadata = 1;
        end(to, RPC_OK, NULL, &junk.base);
    } else if (strcmp(text, "deaf") != 0) {
        send_chunk(to, "wörld", 2);
        send_chunk(to, ".", 3);
        finish(to, request);
    }
}

static void
serve_cancel(struct exchange *to, const Kvasir__V1__CancelRequest *request)
{
    Kvasir__V1__Empty empty = KVASIR__V1__EMPTY__INIT;
    struct exchange held = *to;

    atomic_fetch_add(&to->daemon->cancels, 1);
    end(to, RPC_OK, NULL, &empty.base);
    if (request->request_id == to->daemon->held_id) {
        held.id = to->daemon->held_id;
        held.seq = 1;
        end(&held, RPC_CANCELLED, "cancelled by the client", NULL);
    }
}

static void
serve_tokenize(struct exchange *to, const Kvasir__V1__TokenizeRequest *request)
{
    Kvasir__V1__TokenizeReply tokens = KVASIR__V1__TOKENIZE_REPLY__INIT;
    uint32_t ids[256];

    if (strcmp(request->text, "mute") == 0) {
        return;
    }
    for (size_t i = 0; request->text[i] != '\0' && i < 256; i++) {
        ids[i] = (uint8_t)request->text[i];
        tokens.n_token_ids = i + 1;
    }
    tokens.token_ids = ids;
    end(to, RPC_OK, NULL, &tokens.base);
}

static void
serve_register(struct exchange *to, const Kvasir__V1__RegisterRequest *request)
{
    Kvasir__V1__RegisterReply key = KVASIR__V1__REGISTER_REPLY__INIT;
    uint8_t bytes[32];

    memset(bytes, request->document->text[0], sizeof(bytes));
    key.has_key = true;
    key.key.data = bytes;
    key.key.len = sizeof(bytes);
    key.has_tokens = true;
    key.tokens = (uint32_t)strlen(request->document->text);
    end(to, RPC_OK, NULL, &key.base);
}

static Kvasir__V1__DocumentInfo
info_of(uint8_t key[32])
{
    Kvasir__V1__DocumentInfo info = KVASIR__V1__DOCUMENT_INFO__INIT;

    info.has_key = true;
    info.key.data = key;
    info.key.len = 32;
    info.has_tokens = true;
    info.tokens = 70;
    info.has_hits = true;
    info.hits = 3;
    info.state = (char *)(uintptr_t) "sealed";
    return info;
}

static void
serve_documents(struct exchange *to, enum method_id method, const ProtobufCMessage *message)
{
    Kvasir__V1__Empty empty = KVASIR__V1__EMPTY__INIT;
    uint8_t key[32] = {0xab};
    Kvasir__V1__DocumentInfo info = info_of(key);
    Kvasir__V1__DocumentInfo *infos[] = {&info, &info};
    Kvasir__V1__ListReply list = KVASIR__V1__LIST_REPLY__INIT;
    const Kvasir__V1__DocumentRef *ref = (const void *)message;

    if (method == METHOD_LIST) {
        list.documents = infos;
        list.n_documents = 2;
        list.has_total = true;
        list.total = 9;
        end(to, RPC_OK, NULL, &list.base);
    } else if (ref->key.len != 32 || ref->key.data[0] == 0) {
        end(to, RPC_NOT_FOUND, "no document has this key", NULL);
    } else {
        memcpy(key, ref->key.data, sizeof(key));
        end(to, RPC_OK, NULL, method == METHOD_GET ? &info.base : &empty.base);
    }
}

/* Says that three blocks went, and how many readers were ended. */
static void
serve_forget(struct exchange *to, const Kvasir__V1__ForgetRequest *request)
{
    Kvasir__V1__ForgetReply reply = KVASIR__V1__FORGET_REPLY__INIT;

    if (request->key.len != 32 || request->key.data[0] == 0) {
        end(to, RPC_NOT_FOUND, "no document has this key", NULL);
        return;
    }
    reply.has_blocks = reply.has_bytes = reply.has_copies = reply.has_readers_aborted = true;
    reply.blocks = 3;
    reply.bytes = 3 << 20;
    reply.copies = 1;
    reply.readers_aborted = request->abort ? 2 : 0;
    end(to, RPC_OK, NULL, &reply.base);
}

static void
serve_probe(struct exchange *to, const Kvasir__V1__ProbeRequest *request)
{
    Kvasir__V1__ProbeReply probe = KVASIR__V1__PROBE_REPLY__INIT;
    Kvasir__V1__DocumentUsage usage = KVASIR__V1__DOCUMENT_USAGE__INIT;
    Kvasir__V1__DocumentUsage *usages[] = {&usage};

    usage.id = request->segments[0]->id;
    usage.has_tokens = true;
    usage.tokens = (uint32_t)request->n_segments;
    usage.miss_reason = (char *)(uintptr_t) "evicted";
    probe.documents = usages;
    probe.n_documents = 1;
    end(to, RPC_OK, NULL, &probe.base);
}

static void
serve_stats(struct exchange *to)
{
    Kvasir__V1__StatsReply stats = KVASIR__V1__STATS_REPLY__INIT;
    Kvasir__V1__Counter counter = KVASIR__V1__COUNTER__INIT;
    Kvasir__V1__Counter *counters[] = {&counter};

    counter.name = (char *)(uintptr_t) "doc_hits";
    counter.has_value = true;
    counter.value = 41;
    counter.help = (char *)(uintptr_t) "documents found resident";
    stats.counters = counters;
    stats.n_counters = 1;
    stats.version = (char *)(uintptr_t) "0.1.0";
    stats.model = (char *)(uintptr_t) "tiny";
    stats.has_uptime_ms = true;
    stats.uptime_ms = 61000;
    end(to, RPC_OK, NULL, &stats.base);
}

static void
serve_workers(struct exchange *to)
{
    Kvasir__V1__WorkersReply list = KVASIR__V1__WORKERS_REPLY__INIT;
    Kvasir__V1__WorkerInfo worker = KVASIR__V1__WORKER_INFO__INIT;
    Kvasir__V1__WorkerInfo *workers[] = {&worker};

    worker.has_worker = true;
    worker.worker = 0;
    worker.state = (char *)(uintptr_t) "ready";
    worker.device = (char *)(uintptr_t) "cpu";
    worker.has_tokens_decoded = true;
    worker.tokens_decoded = 1234567890123u;
    list.workers = workers;
    list.n_workers = 1;
    end(to, RPC_OK, NULL, &list.base);
}

static void
serve_health(struct exchange *to)
{
    Kvasir__V1__HealthReply health = KVASIR__V1__HEALTH_REPLY__INIT;

    health.has_status = true;
    health.status = KVASIR__V1__SERVING_STATUS__SERVING;
    health.detail = (char *)(uintptr_t) "1 worker";
    health.version = (char *)(uintptr_t) "0.1.0";
    health.has_protocol = true;
    health.protocol = WIRE_VERSION;
    end(to, RPC_OK, NULL, &health.base);
}

static void
serve_model(struct exchange *to)
{
    Kvasir__V1__ModelReply model = KVASIR__V1__MODEL_REPLY__INIT;

    model.name = (char *)(uintptr_t) "tiny.gguf";
    model.has_context_tokens = true;
    model.context_tokens = 2048;
    model.has_created_s = true;
    model.created_s = 1700000000;
    end(to, RPC_OK, NULL, &model.base);
}

/* The reverse of its Tokenize: an id is a byte. */
static void
serve_detokenize(struct exchange *to, const Kvasir__V1__DetokenizeRequest *request)
{
    Kvasir__V1__DetokenizeReply reply_ = KVASIR__V1__DETOKENIZE_REPLY__INIT;
    uint8_t bytes[256];

    require(request->n_token_ids <= sizeof(bytes));
    for (size_t i = 0; i < request->n_token_ids; i++) {
        bytes[i] = (uint8_t)request->token_ids[i];
    }
    reply_.has_text = true;
    reply_.text.data = bytes;
    reply_.text.len = request->n_token_ids;
    end(to, RPC_OK, NULL, &reply_.base);
}

static void
serve(struct exchange *to, const struct method *method, const ProtobufCMessage *request)
{
    switch (method->id) {
    case METHOD_GENERATE: serve_generate(to, (const void *)request); break;
    case METHOD_CANCEL: serve_cancel(to, (const void *)request); break;
    case METHOD_TOKENIZE: serve_tokenize(to, (const void *)request); break;
    case METHOD_PROBE: serve_probe(to, (const void *)request); break;
    case METHOD_REGISTER: serve_register(to, (const void *)request); break;
    case METHOD_GET:
    case METHOD_LIST:
    case METHOD_PIN:
    case METHOD_UNPIN:
    case METHOD_WARM: serve_documents(to, method->id, request); break;
    case METHOD_FORGET: serve_forget(to, (const void *)request); break;
    case METHOD_STATS:
    case METHOD_METRICS: serve_stats(to); break;
    case METHOD_MODEL: serve_model(to); break;
    case METHOD_DETOKENIZE: serve_detokenize(to, (const void *)request); break;
    case METHOD_WORKERS: serve_workers(to); break;
    case METHOD_HEALTH: serve_health(to); break;
    default: end(to, RPC_UNIMPLEMENTED, "the fake has no such method", NULL); break;
    }
}

static void
take_request(struct fake_daemon *daemon, void *socket)
{
    struct frames frames;
    const ProtobufCMessage *message;

    if (frames_recv(socket, &frames) != ST_OK) {
        return;
    }
    wire_arena_reset(daemon->arena);
    require(frames.count == 3);
    require(wire_unpack(daemon->arena, &kvasir__v1__request_header__descriptor,
                        frames_bytes(&frames, 1), frames_length(&frames, 1), WIRE_HEADER_BYTES_MAX,
                        &message)
            == ST_OK);
    const Kvasir__V1__RequestHeader *header = (const void *)message;
    const struct method *method = method_find(header->method);
    struct exchange to = {.daemon = daemon,
                          .socket = socket,
                          .identity = frames_bytes(&frames, 0),
                          .identity_length = frames_length(&frames, 0),
                          .id = header->request_id};

    require(header->version == WIRE_VERSION && method != NULL);
    require(wire_unpack(daemon->arena, method->request, frames_bytes(&frames, 2),
                        frames_length(&frames, 2), WIRE_CLIENT_BYTES_MAX, &message)
            == ST_OK);
    atomic_fetch_add(&daemon->calls, 1);
    serve(&to, method, message);
    frames_close(&frames);
    require(write(daemon->call_fd, &(uint64_t){1}, sizeof(uint64_t)) == sizeof(uint64_t));
}

static void
close_sockets(struct fake_daemon *daemon)
{
    for (int i = 0; i < 2; i++) {
        if (daemon->sockets[i] != NULL) {
            (void)zmq_close(daemon->sockets[i]);
            daemon->sockets[i] = NULL;
        }
    }
}

static void *
run(void *opaque)
{
    struct fake_daemon *daemon = opaque;
    bool is_stopped = false;

    while (!is_stopped && !daemon->has_vanished) {
        zmq_pollitem_t items[] = {{.socket = daemon->sockets[0], .events = ZMQ_POLLIN},
                                  {.socket = daemon->sockets[1], .events = ZMQ_POLLIN},
                                  {.fd = daemon->stop_fd, .events = ZMQ_POLLIN}};

        (void)zmq_poll(items, 3, -1);
        for (int i = 0; i < 2; i++) {
            if ((items[i].revents & ZMQ_POLLIN) != 0) {
                take_request(daemon, daemon->sockets[i]);
            }
        }
        is_stopped = (items[2].revents & ZMQ_POLLIN) != 0;
    }
    close_sockets(daemon);
    return NULL;
}

struct fake_daemon *
fake_daemon_start(const char *dir)
{
    struct fake_daemon *daemon = calloc(1, sizeof(*daemon));
    static const char *const names[] = {ENDPOINT_CLIENT, ENDPOINT_ADMIN};

    require(daemon != NULL);
    daemon->context = zmq_ctx_new();
    daemon->stop_fd = eventfd(0, EFD_CLOEXEC);
    daemon->call_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    require(daemon->context != NULL && daemon->stop_fd >= 0 && daemon->call_fd >= 0);
    require(wire_arena_new(&daemon->arena) == ST_OK);
    for (int i = 0; i < 2; i++) {
        char url[ENDPOINT_URL_MAX];

        daemon->sockets[i] = zmq_socket(daemon->context, ZMQ_ROUTER);
        require(endpoint_url(dir, names[i], url) == ST_OK);
        require(frames_configure(daemon->sockets[i], ZMQ_ROUTER, 1000, WIRE_CLIENT_BYTES_MAX)
                == ST_OK);
        /* The last chunk before "vanish" must still leave. */
        require(zmq_setsockopt(daemon->sockets[i], ZMQ_LINGER, &(int){10000}, sizeof(int)) == 0);
        require(zmq_bind(daemon->sockets[i], url) == 0);
    }
    require(pthread_create(&daemon->thread, NULL, run, daemon) == 0);
    return daemon;
}

void
fake_daemon_stop(struct fake_daemon **daemon)
{
    uint64_t one = 1;

    require(write((*daemon)->stop_fd, &one, sizeof(one)) == sizeof(one));
    require(pthread_join((*daemon)->thread, NULL) == 0);
    close_sockets(*daemon);
    (void)zmq_ctx_term((*daemon)->context);
    (void)close((*daemon)->stop_fd);
    (void)close((*daemon)->call_fd);
    wire_arena_destroy(&(*daemon)->arena);
    wire_buffer_deinit(&(*daemon)->header);
    wire_buffer_deinit(&(*daemon)->payload);
    free(*daemon);
    *daemon = NULL;
}

unsigned
fake_daemon_calls(struct fake_daemon *daemon)
{
    return atomic_load(&daemon->calls);
}

unsigned
fake_daemon_cancels(struct fake_daemon *daemon)
{
    return atomic_load(&daemon->cancels);
}

void
fake_daemon_wait_call(struct fake_daemon *daemon)
{
    uint64_t one;

    require(read(daemon->call_fd, &one, sizeof(one)) == sizeof(one));
}
