/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "daemon/kvasird.h"

#define LOCK_NAME "kvasird.lock"

/* Numbers of kernels/kv_layout.h, which this folder may not know: f32 plain, bf16 in ck8. */
#define KV_TYPE_F32     0
#define KV_TYPE_BF16    1
#define KV_LAYOUT_PLAIN 0
#define KV_LAYOUT_CK8   1

/* --- the directory ---------------------------------------------------------------------------- */

/* Holding the lock of a file that was removed meanwhile protects nothing. */
static bool
is_same_file(int fd, const char *path)
{
    struct stat held, named;

    return fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_ino == named.st_ino
           && held.st_dev == named.st_dev;
}

static enum status
lock_directory(struct kvasird *d)
{
    char path[ENDPOINT_PATH_MAX];

    TRY(endpoint_path(d->dir, LOCK_NAME, path));
    do {
        if (d->lock_fd >= 0) {
            (void)close(d->lock_fd);
        }
        d->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (d->lock_fd < 0) {
            return ERR(ST_SYSTEM, "%s: %s", path, strerror(errno));
        }
        if (flock(d->lock_fd, LOCK_EX | LOCK_NB) != 0) {
            int error = errno;

            (void)close(d->lock_fd);
            d->lock_fd = -1;
            return error == EWOULDBLOCK
                       ? ERR(ST_UNAVAILABLE, "another kvasird serves in %s", d->dir)
                       : ERR(ST_SYSTEM, "%s: %s", path, strerror(error));
        }
    } while (!is_same_file(d->lock_fd, path));
    return ST_OK;
}

/* We hold the lock, so whoever made these is gone. */
static enum status
remove_stale(const struct kvasird *d)
{
    static const char *const names[] = {ENDPOINT_CLIENT, ENDPOINT_ADMIN, ENDPOINT_WORKER,
                                        ENDPOINT_ATTACH};
    char path[ENDPOINT_PATH_MAX];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        TRY(endpoint_path(d->dir, names[i], path));
        if (unlink(path) == 0) {
            log_info("stale_socket_removed", "path=%s", path);
        } else if (errno != ENOENT) {
            return ERR(ST_SYSTEM, "%s: %s", path, strerror(errno));
        }
    }
    return ST_OK;
}

enum status
start_directory(struct kvasird *d)
{
    char named[ENDPOINT_PATH_MAX];
    char absolute[PATH_MAX];

    TRY(endpoint_dir(d->options.runtime_dir, named));
    if (mkdir(named, 0750) != 0 && errno != EEXIST) {
        return ERR(ST_SYSTEM, "runtime directory %s: %s", named, strerror(errno));
    }
    if (realpath(named, absolute) == NULL) {
        return ERR(ST_SYSTEM, "runtime directory %s: %s", named, strerror(errno));
    }
    if (strlen(absolute) >= sizeof(d->dir)) {
        return ERR(ST_INVALID, "runtime directory %s: longer than %zu bytes", absolute,
                   sizeof(d->dir) - 1);
    }
    memcpy(d->dir, absolute, strlen(absolute) + 1);
    TRY(lock_directory(d));
    return remove_stale(d);
}

/* --- the model -------------------------------------------------------------------------------- */

static enum status
choose_template(struct kvasird *d)
{
    size_t length = 0;
    const char *jinja;

    if (strcmp(d->options.chat_template, "auto") != 0) {
        return template_parse(d->options.chat_template, &d->reader.template_kind);
    }
    jinja = tokenizer_chat_template(d->reader.tokenizer, &length);
    d->reader.template_kind = template_detect(jinja, length);
    return ST_OK;
}

/* As the workers must open it too: absolute, or the name of a dummy. */
static enum status
name_model(struct kvasird *d)
{
    if (d->options.model != NULL) {
        return realpath(d->options.model, d->model_path) != NULL
                   ? ST_OK
                   : ERR(ST_SYSTEM, "model %s: %s", d->options.model, strerror(errno));
    }
    (void)snprintf(d->model_path, sizeof(d->model_path), CHECKPOINT_DUMMY "%s", d->options.shape);
    return ST_OK;
}

enum status
start_model(struct kvasird *d)
{
    uint64_t start_us = clock_now_us();

    TRY(name_model(d));
    TRY(checkpoint_open(d->model_path, &d->checkpoint));
    d->model = *checkpoint_config(d->checkpoint);
    TRY(checkpoint_fingerprint(d->checkpoint, d->model.fingerprint));
    TRY(checkpoint_identity(d->checkpoint, d->checkpoint_identity));
    d->reader.tokenizer = checkpoint_tokenizer(d->checkpoint);
    d->reader.vocab_size = d->model.V;
    tokenizer_fingerprint(d->reader.tokenizer, d->reader.tokenizer_fingerprint);
    TRY(choose_template(d));
    log_info("model_opened",
             "path=%s layers=%u context=%u vocabulary=%u template=%s elapsed_ms=%llu",
             d->model_path, d->model.L, d->model.context_max, d->model.V,
             template_name(d->reader.template_kind),
             (unsigned long long)((clock_now_us() - start_us) / 1000));
    return ST_OK;
}

/* --- the parts -------------------------------------------------------------------------------- */

static enum status
start_handoff(struct kvasird *d)
{
    bool is_bf16 = strcmp(d->options.kv_type, "bf16") == 0;
    char path[ENDPOINT_PATH_MAX];
    char worker_url[ENDPOINT_URL_MAX];
    struct kv_memory kv_memory;

    TRY(options_kv_memory(&d->options, &kv_memory));
    struct handoff_config config = {
        .path = path,
        .model_path = d->model_path,
        .worker_endpoint = worker_url,
        .kv_type = is_bf16 ? KV_TYPE_BF16 : KV_TYPE_F32,
        .kv_layout = is_bf16 ? KV_LAYOUT_CK8 : KV_LAYOUT_PLAIN,
        .block_tokens = (uint32_t)d->options.block_tokens,
        .step_tokens = (uint32_t)d->options.step_tokens,
        .heartbeat_ms = (uint32_t)d->options.heartbeat,
        .is_deterministic = d->options.deterministic,
        .kv_memory = kv_memory.bytes,
        .kv_percent = kv_memory.percent,
        .step_timeout_ms = (uint32_t)d->options.step_timeout,
        .orphan_timeout_ms = (uint32_t)d->options.orphan_timeout,
    };

    TRY(endpoint_path(d->dir, ENDPOINT_ATTACH, path));
    TRY(endpoint_url(d->dir, ENDPOINT_WORKER, worker_url));
    memcpy(config.checkpoint, d->model.fingerprint, sizeof(config.checkpoint));
    memcpy(config.checkpoint_identity, d->checkpoint_identity, sizeof(d->checkpoint_identity));
    memcpy(config.tokenizer, d->reader.tokenizer_fingerprint, sizeof(config.tokenizer));
    TRY(handoff_new(&config, &d->handoff));
    memcpy(d->reader.pool_fingerprint, handoff_pool_fingerprint(d->handoff),
           sizeof(d->reader.pool_fingerprint));
    return ST_OK;
}

/* A token costs 2 flops for each weight, and 4 H D in each layer for each token before it. */
static double
quadratic_tokens(const struct model_config *model)
{
    double width = model->C, heads = (double)model->H * model->D;
    double kv_heads = (double)model->Hkv * model->D;
    double weights = width * (2 * heads + 2 * kv_heads + 3.0 * model->F);

    return 2 * weights / (4 * heads);
}

static enum status
start_kv_events(struct kvasird *d)
{
    struct kv_events_config config = {
        .publisher = {.url = d->options.kv_events,
                      .replay_url = d->options.kv_events_replay,
                      .topic = d->options.kv_events_topic},
        .block_tokens = (uint32_t)d->options.block_tokens,
        .is_array = strcmp(d->options.kv_events_format, "array") == 0,
    };

    return d->options.kv_events == NULL ? ST_OK : kv_events_new(&config, &d->kv_events);
}

static enum status
start_sched(struct kvasird *d)
{
    struct sched_config config = {
        .block_tokens = (uint32_t)d->options.block_tokens,
        .reserve_tokens = (uint32_t)d->options.reserve_tokens,
        .waiting_max = (uint32_t)d->options.max_waiting,
        .context_max = d->model.context_max,
        .policy = evict_policy_find(d->options.eviction),
        .pin_share_max = d->options.pin_share,
        .is_constant_time = strcmp(d->options.isolation, "constant-time") == 0,
        .quadratic_tokens = quadratic_tokens(&d->model),
        .watch = news_watch(d->news, kv_events_watch(d->kv_events)),
        .verify_share = d->options.verify_reuse / 100,
        .is_bitwise = d->options.deterministic || strcmp(d->options.kv_type, "bf16") != 0,
        .scrub_interval_us = d->options.scrub_interval * 1000,
        .check_pool = d->options.check_pool,
    };

    return sched_new(&config, &d->sched);
}

/* Sent while the others still wait for their turn: what the last event of the loop left. */
static void
on_lost(void *arg, enum router_socket socket, int connection)
{
    struct kvasird *d = arg;

    if (calls_lose_connection(d->calls, socket, connection) > 0) {
        deliver(d);
    }
}

static void
on_message(void *arg, const struct message *message)
{
    serve_is_busy(arg);
    if (message->from.socket == ROUTER_WORKER) {
        peers_message(arg, message);
    } else {
        service_message(arg, message);
    }
}

static const char *
on_knock(void *arg, const uint8_t key[CURVE_KEY_BYTES])
{
    struct kvasird *d = arg;
    const struct access_entry *entry = access_find_key(d->access, key);

    if (entry == NULL) {
        log_warn("client_refused", "reason=unknown_key");
    }
    return entry == NULL ? NULL : entry->name;
}

void
start_reload_access(struct kvasird *d)
{
    struct tenants *tenants;
    struct access *access;

    if (tenants_read(d->options.tenants, &tenants) == ST_OK) {
        tenants_destroy(&d->tenants);
        d->tenants = tenants;
        log_info("tenants_read", "count=%zu", tenants_count(tenants));
    } else {
        log_error("reload_failed", "detail=\"%s\", keeping the old tenants", status_detail());
    }
    if (d->options.listen == NULL) {
        return;
    }
    if (access_read(d->options.curve_clients, &access) != ST_OK) {
        log_error("reload_failed", "detail=\"%s\", keeping the old keys", status_detail());
        return;
    }
    access_destroy(&d->access);
    d->access = access;
    log_info("keys_read", "count=%zu", access_count(access));
}

static enum status
start_router(struct kvasird *d, const struct router_handlers *handlers)
{
    char secret[CURVE_KEY_TEXT];
    struct router_config config = {.dir = d->dir, .remote_url = d->options.listen};

    if (config.remote_url != NULL) {
        TRY(curve_read_secret(d->options.curve_secret, secret));
        TRY(access_read(d->options.curve_clients, &d->access));
        config.remote_secret = secret;
    }
    TRY(router_new(&config, handlers, &d->router));
    if (config.remote_url != NULL) {
        log_info("listening", "url=%s keys=%zu", config.remote_url, access_count(d->access));
    }
    return ST_OK;
}

enum status
start_parts(struct kvasird *d)
{
    struct router_handlers handlers = {
        .arg = d,
        .on_message = on_message,
        .on_lost = on_lost,
        .on_knock = on_knock,
    };

    d->started_us = clock_now_us();
    measures_init(&d->measures);
    TRY(reuse_parse(d->options.reuse, &d->reader.reuse));
    d->reader.keeps_turns = d->options.keep_turns;
    d->reader.block_tokens = (uint32_t)d->options.block_tokens;
    TRY(wire_arena_new(&d->arena));
    TRY(calls_new(&d->calls));
    TRY(tenants_read(d->options.tenants, &d->tenants));
    TRY(start_kv_events(d));
    TRY(news_new(&d->news));
    TRY(start_sched(d));
    TRY(memo_new(d->options.memo_memory, &d->reader.memo));
    TRY(corpus_new(
        &(struct corpus_config){
            .bytes_max = d->options.corpus_memory,
            .quadratic_tokens = quadratic_tokens(&d->model),
            .block_tokens = (uint32_t)d->options.block_tokens,
        },
        &d->corpus));
    TRY(memo_new(d->options.memo_memory, &d->reader.registered));
    TRY(start_handoff(d));
    TRY(adopt_pool(d));
    TRY(insight_new(&d->insight));
    TRY(ingest_new(&d->reader, (uint32_t)d->options.tokenizer_threads, d->options.busy_poll,
                   &d->ingest));
    TRY(start_router(d, &handlers));
    if (d->kv_events != NULL) {
        TRY(kv_events_start(d->kv_events, router_context(d->router)));
        serve_tell_events(d);
        TRY(sched_announce_adopted(d->sched)); /* published while it is collected */
        log_info("kv_events", "url=%s", d->options.kv_events);
    }
    return ST_OK;
}

static void
end_calls(struct kvasird *d)
{
    struct call *call;

    while (d->calls != NULL && d->router != NULL && (call = calls_any(d->calls)) != NULL) {
        call->is_lost |= d->leaves_pool; /* its client hears from the next one, not from us */
        deliver_reply(d, call, RPC_UNAVAILABLE, "the daemon stops", SCHED_RETRY_AFTER_MS, NULL,
                      true);
    }
}

static void
unlock_directory(struct kvasird *d)
{
    char path[ENDPOINT_PATH_MAX];

    if (d->lock_fd < 0) {
        return;
    }
    if (endpoint_path(d->dir, LOCK_NAME, path) == ST_OK) {
        (void)unlink(path); /* a leftover is harmless: the lock counts */
    }
    (void)close(d->lock_fd);
    d->lock_fd = -1;
}

/* A pool that is left stays with the supervisor; one that ends takes its memory with it at once. */
static void
end_estate(struct kvasird *d)
{
    if (!d->leaves_pool) {
        estate_give_up(&d->estate, false);
    }
    estate_close(&d->estate);
    host_memory_close(&d->host);
}

/* A pool that ends with us is gone; of one that stays the next kvasird tells anew. */
static void
end_kv_events(struct kvasird *d)
{
    if (d->handoff == NULL) {
        return; /* nothing has begun */
    }
    if (!d->leaves_pool) {
        kv_events_clear(d->kv_events);
    }
    serve_tell_events(d);
    kv_events_stop(d->kv_events);
}

void
start_undo(struct kvasird *d)
{
    end_calls(d);
    ingest_destroy(&d->ingest);
    insight_deinit(&d->insight);
    end_kv_events(d);
    router_destroy(&d->router);
    access_destroy(&d->access);
    tenants_destroy(&d->tenants);
    peers_close(d);
    handoff_destroy(&d->handoff);
    if (d->leaves_pool && d->sched != NULL) { /* if we got so far */
        adopt_save_learned(d);
        sched_leave_pool(d->sched); /* workers go on with what they were lent */
    }
    sched_destroy(&d->sched);
    kv_events_destroy(&d->kv_events);
    news_destroy(&d->news);
    learned_saving_deinit(&d->saving);
    listing_deinit(d);
    forget_deinit(d);
    end_estate(d);
    calls_destroy(&d->calls);
    recent_deinit(&d->recent);
    memo_destroy(&d->reader.registered);
    memo_destroy(&d->reader.memo);
    corpus_destroy(&d->corpus);
    wire_arena_destroy(&d->arena);
    wire_buffer_deinit(&d->header);
    wire_buffer_deinit(&d->payload);
    checkpoint_close(&d->checkpoint);
    unlock_directory(d);
}
