/* SPDX-License-Identifier: Apache-2.0 */
/* kvasird - schedules requests over the workers of this host and owns their pool of KV. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/conf.h"
#include "common/failpoint.h"
#include "common/log.h"
#include "common/notify.h"
#include "daemon/kvasird.h"

#ifdef HAVE_JEMALLOC
/* Read by jemalloc at its start: give memory back in the background, not in the loop. */
extern const char *malloc_conf;
const char *malloc_conf = "background_thread:true,metadata_thp:auto,dirty_decay_ms:5000,narenas:4";
#endif

/* Before any thread starts: all of them inherit the mask, and signals come through the loop. */
static enum status
start_signals(struct kvasird *d)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGUSR2);
    (void)sigaddset(&set, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) {
        return ERR(ST_SYSTEM, "sigprocmask: %s", strerror(errno));
    }
    d->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return d->signal_fd < 0 ? ERR(ST_SYSTEM, "signalfd: %s", strerror(errno)) : ST_OK;
}

static enum status
start(struct kvasird *d)
{
    TRY(start_signals(d));
    TRY(start_directory(d));
    TRY(start_model(d));
    TRY(start_parts(d));
    log_info("ready", "dir=%s pid=%d", d->dir, (int)getpid());
    serve_status(d);
    return notify_send("READY=1");
}

static int
run(struct kvasird *d)
{
    enum status st;

    list_init(&d->listings);
    list_init(&d->forgets);
    st = start(d);
    if (st == ST_OK) {
        st = serve(d);
    }
    if (st != ST_OK) {
        log_error("failed", "status=%s detail=\"%s\" where=%s", status_name(st), status_detail(),
                  status_where());
        d->leaves_pool = true; /* the next one may do better */
    }
    start_undo(d);
    if (d->signal_fd >= 0) {
        (void)close(d->signal_fd);
    }
    if (st == ST_OK) {
        log_info("stopped", "pid=%d", (int)getpid());
    }
    return st == ST_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

static const char usage[] =
    "Usage: kvasird --model FILE [OPTION]...\n"
    "Schedules requests over the workers of this host and owns their pool of KV.\n";

int
main(int argc, char **argv)
{
    static struct kvasird daemon = {
        .lock_fd = -1,
        .signal_fd = -1,
        .estate = {.catalog_fd = -1, .arena_fds = {-1, -1}, .host_fds = {-1, -1}, .learned_fd = -1},
        .host = {.fd = -1, .index_fd = -1}};
    struct conf conf = options_conf(&daemon.options);
    int code = CONF_EXIT_USAGE;
    enum status st = options_read(argc, argv, &daemon.options);

    daemon.argc = argc;
    daemon.argv = argv;

    if (st == ST_OK && conf_print_only(conf, argc, argv, "kvasird", usage)) {
        code = EXIT_SUCCESS;
    } else if (st == ST_OK && (st = options_check(&daemon.options)) == ST_OK
               && (st = failpoint_init()) == ST_OK) {
        log_init("kvasird", (enum log_level)log_level_parse(daemon.options.log_level));
        code = run(&daemon);
    }
    if (st != ST_OK) {
        fprintf(stderr, "kvasird: %s\n", status_detail());
    }
    options_deinit(&daemon.options);
    return code;
}
