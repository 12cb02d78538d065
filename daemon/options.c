/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/options.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "daemon/ingest.h"
#include "daemon/kv_events.h"
#include "daemon/reuse.h"
#include "daemon/sched.h"
#include "kvpool/evict.h"
#include "model/shape.h"
#include "model/template.h"

#define BUSY_POLL_MAX       60000000u /* us */
#define STEP_TOKENS_MAX     65536
#define RESERVE_TOKENS_MAX  65536
#define REQUEST_TIMEOUT_MAX (24ull * 3600 * 1000)
#define HEARTBEAT_MAX       60000
#define DRAIN_TIMEOUT_MAX   3600000
#define STEP_TIMEOUT_MAX    3600000
#define SCRUB_INTERVAL_MAX  (7u * 24 * 3600000)
#define ORPHAN_TIMEOUT_MAX  3600000
#define AT(field)           offsetof(struct options, field)

static const struct conf_option table[] = {
    {"model", CONF_STRING, NULL, 0, 0, "PATH",
     "checkpoint to serve: a GGUF file, or a directory as Hugging Face lays it out; required",
     AT(model)},
    {"load-format", CONF_STRING, "auto", 0, 0, "FORMAT",
     "auto, or dummy: random weights of a --shape, for measuring cost", AT(load_format)},
    {"shape", CONF_STRING, NULL, 0, 0, "NAME", "of a dummy: " SHAPE_NAMES, AT(shape)},
    {"runtime-dir", CONF_STRING, NULL, 0, 0, "DIR",
     "where the sockets are; default $KVASIR_RUNTIME_DIR, /run/kvasir or $XDG_RUNTIME_DIR/kvasir",
     AT(runtime_dir)},
    {"listen", CONF_STRING, NULL, 0, 0, "URL",
     "serve clients over a network, too, e.g. tcp://0.0.0.0:7077; with --curve-secret and "
     "--curve-clients",
     AT(listen)},
    {"curve-secret", CONF_STRING, NULL, 0, 0, "FILE",
     "secret key of this server (kvasirctl keygen), readable by its owner alone", AT(curve_secret)},
    {"curve-clients", CONF_STRING, NULL, 0, 0, "DIR",
     "who may come: a file NAME.conf a key; read again on SIGHUP", AT(curve_clients)},
    {"tenants", CONF_STRING, NULL, 0, 0, "DIR",
     "a file NAME.conf a tenant: its share, its corpora; read again on SIGHUP", AT(tenants)},
    {"isolation", CONF_STRING, "none", 0, 0, "KIND",
     "what a tenant can tell of shared documents from time: none, or constant-time: nothing",
     AT(isolation)},
    {"kv-memory", CONF_STRING, "1GiB", 0, 0, "SIZE",
     "memory for the KV of documents and answers: bytes, or a share (0.9, 90%) of what is free "
     "after weights and workspace",
     AT(kv_memory)},
    {"host-memory", CONF_SIZE, "0", 0, 0, "BYTES",
     "memory of this machine for KV of documents that the pool has no room for; 0: none",
     AT(host_memory)},
    {"block-tokens", CONF_U64, "32", 16, 64, "N", "tokens in a block of KV: 16, 32 or 64",
     AT(block_tokens)},
    {"kv-type", CONF_STRING, "auto", 0, 0, "TYPE",
     "element of K and V: f32 (cpu), bf16 (cuda); auto is f32", AT(kv_type)},
    {"deterministic", CONF_BOOL, "false", 0, 0, NULL,
     "a token's result never depends on what else is computed with it; costs speed on CUDA, "
     "holds on the CPU anyway",
     AT(deterministic)},
    {"eviction", CONF_STRING, "zipf", 0, 0, "POLICY",
     "which documents go when room is needed: " EVICT_POLICY_NAMES, AT(eviction)},
    {"reuse", CONF_STRING, "lazy", 0, 0, "MODE",
     "of requests that name none: lazy, reencode, prefix or none (the last two: full attention)",
     AT(reuse)},
    {"keep-turns", CONF_BOOL, "true", 0, 0, NULL,
     "the KV of a chat's turn is kept, evictable as documents are, for a follow-up",
     AT(keep_turns)},
    {"reserve-tokens", CONF_U64, "256", 1, RESERVE_TOKENS_MAX, "N",
     "part of an answer that must have room when its request starts", AT(reserve_tokens)},
    {"max-waiting", CONF_U64, "1024", 1, SCHED_WAITING_MAX, "N",
     "requests that may wait; more are refused", AT(max_waiting)},
    {"step-tokens", CONF_U64, "512", 1, STEP_TOKENS_MAX, "N",
     "tokens a worker computes in one step at most", AT(step_tokens)},
    {"busy-poll", CONF_U64, "0", 0, BUSY_POLL_MAX, "US",
     "microseconds to look out for more work without sleeping; keeps two cores busy",
     AT(busy_poll)},
    {"tokenizer-threads", CONF_U64, "2", 1, INGEST_THREADS_MAX, "N",
     "threads that parse and tokenise", AT(tokenizer_threads)},
    {"template", CONF_STRING, "auto", 0, 0, "NAME",
     "chat template: plain, chatml, llama3, mistral; auto asks the checkpoint", AT(chat_template)},
    {"request-timeout", CONF_DURATION, "10min", 1, REQUEST_TIMEOUT_MAX, "TIME",
     "for requests that name none", AT(request_timeout)},
    {"heartbeat", CONF_DURATION, "1s", 10, HEARTBEAT_MAX, "TIME",
     "how often daemon and workers tell each other that they live", AT(heartbeat)},
    {"worker-liveness", CONF_DURATION, "5s", 20, 10 * HEARTBEAT_MAX, "TIME",
     "silence after which a worker's requests move elsewhere", AT(worker_liveness)},
    {"step-timeout", CONF_DURATION, "5min", 0, STEP_TIMEOUT_MAX, "TIME",
     "a worker whose step takes longer hangs, and ends; 0: never", AT(step_timeout)},
    {"orphan-timeout", CONF_DURATION, "30s", 0, ORPHAN_TIMEOUT_MAX, "TIME",
     "how long workers wait for the next kvasird when this one is gone", AT(orphan_timeout)},
    {"drain-timeout", CONF_DURATION, "10s", 0, DRAIN_TIMEOUT_MAX, "TIME",
     "for open requests when the daemon is told to stop", AT(drain_timeout)},
    {"memo-memory", CONF_SIZE, "64MiB", 1, 0, "BYTES",
     "memory for token ids of known texts, and as much for registered documents", AT(memo_memory)},
    {"corpus-memory", CONF_SIZE, "256MiB", 1, 0, "BYTES",
     "memory for token ids of documents that are kept ready", AT(corpus_memory)},
    {"pin-share", CONF_F64, "0.5", 0, 1, "SHARE", "part of the pool that may be pinned",
     AT(pin_share)},
    {"kv-events", CONF_STRING, NULL, 0, 0, "URL",
     "tell routers (llm-d, Dynamo) what the pool holds, as vLLM does: ZeroMQ PUB, e.g. "
     "tcp://*:5557; tells the documents' tokens to all who may connect",
     AT(kv_events)},
    {"kv-events-replay", CONF_STRING, NULL, 0, 0, "URL",
     "where they ask for events that they missed, e.g. tcp://*:5558; with --kv-events",
     AT(kv_events_replay)},
    {"kv-events-topic", CONF_STRING, "", 0, 0, "TEXT",
     "first frame of events; llm-d wants kv@HOST:PORT@MODEL", AT(kv_events_topic)},
    {"kv-events-format", CONF_STRING, "map", 0, 0, "FORMAT",
     "structs of events: map, or array as vLLM had it before", AT(kv_events_format)},
    {"verify-reuse", CONF_F64, "0", 0, 100, "PERCENT",
     "so many of the documents that requests found are computed again in idle time and compared",
     AT(verify_reuse)},
    {"scrub-interval", CONF_DURATION, "10min", 0, SCRUB_INTERVAL_MAX, "TIME",
     "in which idle workers read every document again and compare it with its checksum; 0: never",
     AT(scrub_interval)},
    {"log-level", CONF_STRING, "info", 0, 0, "LEVEL", "error, warn, info, debug or trace",
     AT(log_level)},
    {"check-pool", CONF_BOOL, "false", 0, 0, NULL,
     "check every invariant of the pool after every event; slow, for tests", AT(check_pool)},
};

struct conf
options_conf(struct options *options)
{
    return (struct conf){
        .table = table,
        .count = sizeof(table) / sizeof(table[0]),
        .options = options,
    };
}

/* A checkpoint, or the shape of a dummy; not both. */
static enum status
check_model(const struct options *o)
{
    bool is_dummy = strcmp(o->load_format, "dummy") == 0;

    if (!is_dummy && strcmp(o->load_format, "auto") != 0) {
        return ERR(ST_INVALID, "load-format %s: it must be auto or dummy", o->load_format);
    }
    if (is_dummy && (o->shape == NULL || o->model != NULL)) {
        return ERR(ST_INVALID, "load-format dummy goes with --shape and without --model");
    }
    if (!is_dummy && o->shape != NULL) {
        return ERR(ST_INVALID, "shape %s: it goes with --load-format dummy only", o->shape);
    }
    if (!is_dummy && o->model == NULL) {
        return ERR(ST_INVALID, "model is missing: name a checkpoint with --model");
    }
    return ST_OK;
}

/* Nothing is served over a network without keys, and keys alone serve nobody. */
static enum status
check_listen(const struct options *o)
{
    bool has_keys = o->curve_secret != NULL && o->curve_clients != NULL;

    if (o->listen != NULL && !has_keys) {
        return ERR(ST_INVALID, "listen %s: it goes with --curve-secret and --curve-clients",
                   o->listen);
    }
    if (o->listen == NULL && (o->curve_secret != NULL || o->curve_clients != NULL)) {
        return ERR(ST_INVALID, "%s goes with --listen",
                   o->curve_secret != NULL ? "curve-secret" : "curve-clients");
    }
    return ST_OK;
}

static enum status
check_kv_events(const struct options *o)
{
    if (o->kv_events == NULL && o->kv_events_replay != NULL) {
        return ERR(ST_INVALID, "kv-events-replay goes with --kv-events");
    }
    if (strlen(o->kv_events_topic) > KV_EVENTS_TOPIC_MAX) {
        return ERR(ST_INVALID, "kv-events-topic: longer than %d bytes", KV_EVENTS_TOPIC_MAX);
    }
    if (strcmp(o->kv_events_format, "map") != 0 && strcmp(o->kv_events_format, "array") != 0) {
        return ERR(ST_INVALID, "kv-events-format %s: it must be map or array", o->kv_events_format);
    }
    return ST_OK;
}

/* A share has a point or a percent sign; a whole number without either is one of bytes. */
enum status
options_kv_memory(const struct options *o, struct kv_memory *memory_out)
{
    const char *text = o->kv_memory;
    size_t length = strspn(text, "0123456789.");
    bool is_percent = strcmp(text + length, "%") == 0;
    double share;
    char *end;

    if (!is_percent && (text[length] != '\0' || strchr(text, '.') == NULL)) {
        uint64_t bytes = 0;

        TRY(conf_read_size("kv-memory", text, &bytes));
        *memory_out = (struct kv_memory){.bytes = bytes};
        return ST_OK;
    }
    share = strtod(text, &end);
    if (end == text || end != text + length || share <= 0.0 || share > (is_percent ? 100.0 : 1.0)) {
        return ERR(ST_INVALID, "kv-memory %s: a share must be above 0 and at most 1.0, or 100%%",
                   text);
    }
    *memory_out = (struct kv_memory){.percent = is_percent ? share : 100.0 * share};
    return ST_OK;
}

enum status
options_check(const struct options *o)
{
    enum template_kind kind;
    enum reuse_mode reuse;
    struct kv_memory kv_memory;

    TRY(check_model(o));
    TRY(check_listen(o));
    if (strcmp(o->isolation, "none") != 0 && strcmp(o->isolation, "constant-time") != 0) {
        return ERR(ST_INVALID, "isolation %s: it must be none or constant-time", o->isolation);
    }
    TRY(check_kv_events(o));
    TRY(options_kv_memory(o, &kv_memory));
    if ((o->block_tokens & (o->block_tokens - 1)) != 0) {
        return ERR(ST_INVALID, "block-tokens %llu: it must be 16, 32 or 64",
                   (unsigned long long)o->block_tokens);
    }
    if (strcmp(o->kv_type, "auto") != 0 && strcmp(o->kv_type, "f32") != 0
        && strcmp(o->kv_type, "bf16") != 0) {
        return ERR(ST_INVALID, "kv-type %s: it must be auto, f32 or bf16", o->kv_type);
    }
    if (evict_policy_find(o->eviction) == NULL) {
        return ERR(ST_INVALID, "eviction %s: it must be " EVICT_POLICY_NAMES, o->eviction);
    }
    TRY(reuse_parse(o->reuse, &reuse));
    if (strcmp(o->chat_template, "auto") != 0) {
        TRY(template_parse(o->chat_template, &kind));
    }
    if (o->worker_liveness < 2 * o->heartbeat) {
        return ERR(ST_INVALID, "worker-liveness %llums: it must be at least twice the heartbeat",
                   (unsigned long long)o->worker_liveness);
    }
    return log_level_check(o->log_level);
}

enum status
options_read(int argc, char **argv, struct options *options)
{
    return conf_read(options_conf(options), argc, argv);
}

enum status
options_read_text(int argc, char **argv, const char *name, const char *text,
                  struct options *options)
{
    struct conf conf = options_conf(options);
    size_t length = strlen(text);
    FILE *file = length == 0 ? NULL : fmemopen((char *)(uintptr_t)text, length, "r");
    enum status st = conf_defaults(conf);

    if (st == ST_OK && length > 0) {
        st = file == NULL ? ERR(ST_SYSTEM, "fmemopen: %s", strerror(errno))
                          : conf_read_lines(conf, name, file);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return st == ST_OK ? conf_read_args(conf, argc, argv) : st;
}

void
options_deinit(struct options *options)
{
    conf_deinit(options_conf(options));
}
