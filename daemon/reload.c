/* SPDX-License-Identifier: Apache-2.0 */
/* SIGHUP: the file of options and the command line are read again.  What only the loop looks at
 * takes effect at once; what sockets, workers or the pool were made with needs a restart, which
 * costs no document either, and is named.  Options that are wrong change nothing. */
#include "daemon/kvasird.h"

#include <string.h>

#include "common/log.h"

/* The options that may change while we run. */
static const char *const live[] = {"request-timeout", "drain-timeout", "worker-liveness",
                                   "log-level", "max-waiting"};

static bool
is_live(const char *name)
{
    for (size_t i = 0; i < sizeof(live) / sizeof(live[0]); i++) {
        if (strcmp(live[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static bool
is_same(const struct conf_option *option, const void *a, const void *b)
{
    const char *left = (const char *)a + option->offset, *right = (const char *)b + option->offset;

    if (option->type == CONF_STRING) {
        const char *const *text_a = (const void *)left, *const *text_b = (const void *)right;

        return *text_a == NULL || *text_b == NULL ? *text_a == *text_b
                                                  : strcmp(*text_a, *text_b) == 0;
    }
    return memcmp(left, right, option->type == CONF_BOOL ? sizeof(bool) : sizeof(uint64_t)) == 0;
}

static void
name_changes(const struct kvasird *d, struct conf now)
{
    for (size_t i = 0; i < now.count; i++) {
        const struct conf_option *option = &now.table[i];

        if (!is_same(option, &d->options, now.options)) {
            log_info("option_changed", "name=%s effect=%s", option->name,
                     is_live(option->name) ? "now" : "restart");
        }
    }
}

static void
take_live(struct kvasird *d, struct options *now)
{
    char *level = d->options.log_level;

    d->options.log_level = now->log_level; /* a swap: each is freed with its struct */
    now->log_level = level;
    d->options.request_timeout = now->request_timeout;
    d->options.drain_timeout = now->drain_timeout;
    d->options.worker_liveness = now->worker_liveness;
    d->options.max_waiting = now->max_waiting;
    sched_set_waiting_max(d->sched, (uint32_t)now->max_waiting);
    log_set_level((enum log_level)log_level_parse(d->options.log_level));
}

void
reload_options(struct kvasird *d)
{
    struct options now = {0};
    enum status st = options_read(d->argc, d->argv, &now);

    if (st == ST_OK) {
        st = options_check(&now);
    }
    if (st == ST_OK) {
        name_changes(d, options_conf(&now));
        take_live(d, &now);
        log_info("reloaded", "argc=%d", d->argc);
    } else {
        log_error("reload_failed", "detail=\"%s\", keeping the old options", status_detail());
    }
    options_deinit(&now);
}
