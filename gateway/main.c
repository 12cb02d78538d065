/* SPDX-License-Identifier: Apache-2.0 */
/* kvasir-gateway - OpenAI's HTTP interface in front of kvasird; a client of it like any other. */
#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/conf.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/notify.h"
#include "gateway/server.h"
#include "proto/endpoints.h"

#define DRAIN_LOOK_MS 20 /* how often draining looks whether it is done */
#define PEM_BYTES_MAX (1u << 20)

/* ---- what is served -------------------------------------------------------------------------- */

static void
on_model(void *opaque, const struct hub_reply *reply)
{
    struct server *server = opaque;
    const Kvasir__V1__ModelReply *model = (const void *)reply->message;

    if (reply->code != RPC_OK || model->name == NULL) {
        return; /* asked again with the next connection */
    }
    (void)pthread_mutex_lock(&server->lock);
    (void)snprintf(server->model, sizeof(server->model), "%s", model->name);
    (void)pthread_mutex_unlock(&server->lock);
}

static void
on_daemon(void *opaque, struct hub *hub, bool is_connected)
{
    struct server *server = opaque;
    uint64_t id;

    (void)notify_send(is_connected ? "STATUS=serving" : "STATUS=waiting for kvasird");
    if (is_connected
        && hub_call(
               hub,
               &(struct hub_call){.method = METHOD_MODEL, .on_reply = on_model, .opaque = server},
               &id)
               != ST_OK) {
        log_warn("model_unknown", "detail=\"%s\"", status_detail());
    }
}

/* ---- start ----------------------------------------------------------------------------------- */

static enum status
read_keys(struct server *server)
{
    const struct options *o = &server->options;
    struct keys *keys = NULL;

    if (o->api_key == NULL && o->api_keys == NULL) {
        return ST_OK;
    }
    TRY(o->api_key != NULL ? keys_new_single(o->api_key, &keys) : keys_read(o->api_keys, &keys));
    (void)pthread_mutex_lock(&server->lock);
    struct keys *old = server->keys;

    server->keys = keys;
    (void)pthread_mutex_unlock(&server->lock);
    keys_destroy(&old);
    return ST_OK;
}

static enum status
read_pem(const char *path, char **text_out)
{
    FILE *file;
    size_t length;

    if (path == NULL) {
        return ST_OK;
    }
    file = fopen(path, "re");
    if (file == NULL) {
        return ERR(ST_SYSTEM, "%s: %s", path, strerror(errno));
    }
    *text_out = mem_zalloc(PEM_BYTES_MAX, 1);
    length = *text_out == NULL ? 0 : fread(*text_out, 1, PEM_BYTES_MAX - 1, file);
    (void)fclose(file);
    return length > 0 ? ST_OK : ERR(ST_INVALID, "%s: nothing to read", path);
}

static enum status
start_hub(struct server *server)
{
    const struct options *o = &server->options;
    char dir[ENDPOINT_PATH_MAX];
    char url[ENDPOINT_URL_MAX];
    struct hub_config config = {
        .url = o->endpoint,
        .retry_ms = (uint32_t)o->retry,
        .retry_bytes_max = HUB_RETRY_BYTES_MAX,
        .on_connection = on_daemon,
        .opaque = server,
    };

    if (o->endpoint == NULL) {
        TRY(endpoint_dir(o->runtime_dir, dir));
        TRY(endpoint_url(dir, ENDPOINT_CLIENT, url));
        config.url = url;
    }
    return hub_new(&config, &server->hub);
}

/* Before any thread starts: all of them inherit the mask. */
static enum status
start_signals(int *fd_out)
{
    sigset_t set;

    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) {
        return ERR(ST_SYSTEM, "sigprocmask: %s", strerror(errno));
    }
    *fd_out = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return *fd_out < 0 ? ERR(ST_SYSTEM, "signalfd: %s", strerror(errno)) : ST_OK;
}

static enum status
start(struct server *server, int *signal_fd)
{
    char ready[64];

    TRY(start_signals(signal_fd));
    TRY(read_keys(server));
    TRY(read_pem(server->options.tls_cert, &server->certificate));
    TRY(read_pem(server->options.tls_key, &server->private_key));
    TRY(start_hub(server));
    TRY(server_start(server));
    log_info("ready", "host=%s port=%u tls=%d keys=%d pid=%d", server->options.host,
             server_port(server), server->certificate != NULL, server->keys != NULL, (int)getpid());
    (void)snprintf(ready, sizeof(ready), "READY=1\nX_PORT=%u", server_port(server));
    return notify_send(ready);
}

/* ---- serve ----------------------------------------------------------------------------------- */

static void
reload(struct server *server)
{
    (void)notify_send("RELOADING=1");
    if (read_keys(server) == ST_OK) {
        log_info("reloaded", "keys=%d", server->keys != NULL);
    } else {
        log_error("reload_failed", "detail=\"%s\" keeping the keys that were", status_detail());
    }
    (void)notify_send("READY=1");
}

/* Waits for a signal; 0 when the time is over. */
static int
wait_signal(int fd, int timeout_ms)
{
    struct signalfd_siginfo info;
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    if (poll(&poll_fd, 1, timeout_ms) <= 0
        || read(fd, &info, sizeof(info)) != (ssize_t)sizeof(info)) {
        return 0;
    }
    return (int)info.ssi_signo;
}

/* Until what is open has ended, the time is over, or we are told a second time. */
static void
drain(struct server *server, int signal_fd)
{
    uint64_t by_us = clock_now_us() + server->options.drain_timeout * 1000;

    log_info("stopping", "requests=%u drain_timeout_ms=%llu", atomic_load(&server->exchanges_open),
             (unsigned long long)server->options.drain_timeout);
    (void)notify_send("STOPPING=1\nSTATUS=draining");
    server_drain(server);
    while (atomic_load(&server->exchanges_open) > 0 && clock_now_us() < by_us) {
        int signo = wait_signal(signal_fd, DRAIN_LOOK_MS);

        if (signo == SIGTERM || signo == SIGINT) {
            return;
        }
    }
}

static void
serve(struct server *server, int signal_fd)
{
    for (;;) {
        int signo = wait_signal(signal_fd, -1);

        if (signo == SIGHUP) {
            reload(server);
        } else if (signo != 0) {
            break;
        }
    }
    drain(server, signal_fd);
}

static int
run(struct server *server)
{
    int signal_fd = -1;
    enum status st = start(server, &signal_fd);

    if (st == ST_OK) {
        serve(server, signal_fd);
    } else {
        log_error("failed", "status=%s detail=\"%s\" where=%s", status_name(st), status_detail(),
                  status_where());
    }
    server_stop(server);
    hub_destroy(&server->hub);
    keys_destroy(&server->keys);
    mem_free(server->certificate);
    mem_free(server->private_key);
    if (signal_fd >= 0) {
        (void)close(signal_fd);
    }
    if (st == ST_OK) {
        log_info("stopped", "pid=%d", (int)getpid());
    }
    return st == ST_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

static const char usage[] = "Usage: kvasir-gateway [OPTION]...\n"
                            "Serves OpenAI's HTTP interface; what is asked goes to kvasird.\n";

int
main(int argc, char **argv)
{
    static struct server server;
    struct conf conf = options_conf(&server.options);
    int code = CONF_EXIT_USAGE;
    enum status st = options_read(argc, argv, &server.options);

    metrics_init(&server.metrics);
    (void)pthread_mutex_init(&server.lock, NULL);
    if (st == ST_OK && conf_print_only(conf, argc, argv, "kvasir-gateway", usage)) {
        code = EXIT_SUCCESS;
    } else if (st == ST_OK && (st = options_check(&server.options)) == ST_OK) {
        log_init("kvasir-gateway", (enum log_level)log_level_parse(server.options.log_level));
        code = run(&server);
    }
    if (st != ST_OK) {
        fprintf(stderr, "kvasir-gateway: %s\n", status_detail());
    }
    metrics_deinit(&server.metrics);
    (void)pthread_mutex_destroy(&server.lock);
    options_deinit(&server.options);
    return code;
}
