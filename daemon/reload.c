/* SPDX-License-Identifier: Apache-2.0 */
/* SIGHUP, and Admin/Reload: the file of options and the command line are read again.  What only the
 * loop looks at takes effect at once; what sockets, workers or the pool were made with needs a
 * restart, which costs no document either, and is named.  Options that are wrong change nothing. */
#include "daemon/kvasird.h"

#include <stdio.h>
#include <string.h>

#include "common/log.h"

#include "kvasir/v1/admin.pb-c.h"

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

/* --- what would change ------------------------------------------------------------------------ */

#define CHANGES_MAX   64 /* more options than there are */
#define CHANGE_VALUES 1024

struct changes {
    Kvasir__V1__OptionChange items[CHANGES_MAX];
    Kvasir__V1__OptionChange *list[CHANGES_MAX];
    char values[CHANGES_MAX][2][CHANGE_VALUES];
    size_t count;
};

/* The value as a file has it; NULL: a string that is not set. */
static char *
value_of(struct conf conf, const struct conf_option *option, char text[CHANGE_VALUES])
{
    const char *const *string = (const void *)((const char *)conf.options + option->offset);
    FILE *out;

    if (option->type == CONF_STRING && *string == NULL) {
        return NULL;
    }
    text[0] = '\0';
    out = fmemopen(text, CHANGE_VALUES - 1, "w"); /* ends in a zero, cut if need be */
    if (out != NULL) {
        conf_print_value(conf, option, out);
        (void)fclose(out);
    }
    return text;
}

static void
find_changes(struct kvasird *d, struct conf now, struct changes *changes)
{
    changes->count = 0;
    for (size_t i = 0; i < now.count && changes->count < CHANGES_MAX; i++) {
        const struct conf_option *option = &now.table[i];
        Kvasir__V1__OptionChange *change = &changes->items[changes->count];
        char(*values)[CHANGE_VALUES] = changes->values[changes->count];

        if (is_same(option, &d->options, now.options)) {
            continue;
        }
        kvasir__v1__option_change__init(change);
        change->name = (char *)(uintptr_t)option->name; /* only packed */
        change->from = value_of(options_conf(&d->options), option, values[0]);
        change->to = value_of(now, option, values[1]);
        change->effect = (char *)(uintptr_t)(is_live(option->name) ? "now" : "restart");
        changes->list[changes->count++] = change;
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

/* Reads the options into a zeroed struct and finds what differs; nothing has changed yet. */
static enum status
read_again(struct kvasird *d, const Kvasir__V1__ReloadRequest *request, struct options *now,
           struct changes *changes)
{
    if (request != NULL && request->text != NULL) {
        TRY(options_read_text(d->argc, d->argv, request->name == NULL ? "text" : request->name,
                              request->text, now));
    } else {
        TRY(options_read(d->argc, d->argv, now));
    }
    TRY(options_check(now));
    find_changes(d, options_conf(now), changes);
    return ST_OK;
}

static void
take(struct kvasird *d, struct options *now, const struct changes *changes)
{
    for (size_t i = 0; i < changes->count; i++) {
        log_info("option_changed", "name=%s effect=%s", changes->items[i].name,
                 changes->items[i].effect);
    }
    take_live(d, now);
    log_info("reloaded", "argc=%d", d->argc);
}

static struct changes changes; /* one thread, and large for a stack */

void
reload_options(struct kvasird *d)
{
    struct options now = {0};

    if (read_again(d, NULL, &now, &changes) == ST_OK) {
        take(d, &now, &changes);
    } else {
        log_error("reload_failed", "detail=\"%s\", keeping the old options", status_detail());
    }
    options_deinit(&now);
}

void
reload_call(struct kvasird *d, struct call *call, const Kvasir__V1__ReloadRequest *request)
{
    Kvasir__V1__ReloadReply reply = KVASIR__V1__RELOAD_REPLY__INIT;
    struct options now = {0};
    enum status st = request->text != NULL && !request->dry_run
                         ? ERR(ST_INVALID, "text goes with dry_run")
                         : read_again(d, request, &now, &changes);

    if (st != ST_OK) {
        service_reply_status(d, call, ST_INVALID, status_detail());
    } else {
        reply.n_changes = changes.count;
        reply.changes = changes.list;
        if (!request->dry_run) {
            start_reload_access(d);
            take(d, &now, &changes);
        }
        deliver_reply(d, call, RPC_OK, NULL, 0, &reply.base, true);
    }
    options_deinit(&now);
}
